// What the threads of a launch touch: which thread which element, one access after the other.

import { formatBytes, h, plural, position, scroller, stepper, table, tupleText } from "./core.js";
import { elementAt, placeText, rangesText } from "./accesses.js";
import { bufferGrid } from "./grid.js";

export const THREADS_CSS = `
.grid td.th0 { background: var(--group-0); } .grid td.th1 { background: var(--group-1); } .grid td.th2 { background: var(--group-2); }
.grid td.th3 { background: var(--group-3); } .grid td.th4 { background: var(--group-4); } .grid td.th5 { background: var(--group-5); }
.grid td.th6 { background: var(--group-6); } .grid td.th7 { background: var(--group-7); }
.grid td.past { opacity: .75; } .threads .grid td.read, .threads .grid td.write { outline-width: 1px; font-weight: 400; }
`;

const [WARP, SECTOR] = [32, 32]; // threads, bytes of main memory

/** "(1, 0, 0)" of thread number n of a block of the given sizes. */
export function threadText(n, sizes) {
  const x = n % sizes[0];
  const y = Math.floor(n / sizes[0]) % sizes[1];
  return `(${x}, ${y}, ${Math.floor(n / (sizes[0] * sizes[1]))})`;
}

/** By element, the threads that touch it, ascending. */
export function threadsOf(access) {
  const found = new Map();
  access.elements.forEach((e, i) => found.set(e, [...(found.get(e) ?? []), access.threads[i]]));
  return found;
}

const costText = (one, unit) => {
  if (!one.least) return "";
  const what = unit === "sectors" ? "sectors of 32 bytes" : "rounds of the banks";
  if (one.count <= one.least) return `${one.count} ${what}, the fewest possible`;
  return `${one.count} ${what}, ${(one.count / one.least).toFixed(1)} × the fewest (${one.least})`;
};

/**
 * Where a problem is seen: launch, block and access of the thread that has it, in its statement; null
 * where that is not among the recorded accesses.
 */
export function placeOf(threads, problem) {
  for (const [launch, l] of threads.launches.entries()) {
    const number = ([, , , x, y, z]) => x + l.threads[0] * (y + l.threads[1] * z);
    for (const [block, b] of l.blocks.entries()) {
      const mine = problem.threads.slice(0, 1).filter((t) => t.slice(0, 3).join() === b.block.join()).map(number);
      const access = b.accesses.findIndex((a) => {
        const buffer = l.buffers[l.sites[a.site].buffer];
        const element = buffer.name === problem.buffer ? elementAt(problem.index, buffer.shape) : -1;
        return l.sites[a.site].name === problem.site && a.threads.some((t, k) => mine.includes(t) && a.elements[k] === element);
      });
      if (mine.length && access >= 0) return { launch, block, access };
    }
  }
  return null;
}

function problemBox(p, go) {
  return h("div", { class: "error" }, h("strong", {}, `${p.kind}: `), p.message,
    p.site && h("div", {}, p.site), p.other && h("div", {}, `before, ${p.other}`), p.count > 1 && h("div", {}, `${p.count} times`),
    go && h("button", { type: "button", onclick: go }, "Go to it"));
}

const describe = (launch, access) => {
  const site = launch.sites[access.site];
  return `${site.write ? "store to" : "load from"} ${launch.buffers[site.buffer].name}${site.block ? ` in block ${site.block}` : ""}`;
};

/** The buffers as grids; `draw(i)` shows access i and, pale, those before it. */
function accessGrids(launch, accesses) {
  let shown = new Map();
  let access = null;
  const before = launch.buffers.map(() => new Map());
  let done = 0; // accesses that are in `before`
  const paint = (b) => (cell) => {
    const site = launch.sites[access.site];
    const now = site.buffer === b ? shown.get(cell) : undefined;
    const threads = now ?? before[b].get(cell);
    if (!threads) return {};
    const buffer = launch.buffers[b];
    const part = buffer.scope === "global" ? Math.floor((cell * buffer.itemsize) / SECTOR) : Math.floor(threads[0] / WARP);
    const who = threads.slice(0, 4).map((t) => threadText(t, launch.threads)).join(", ");
    return {
      text: rangesText(threads, 1), cls: `${now ? (site.write ? "write" : "read") : "past"} th${part % 8}`,
      title: `${placeText(buffer, cell)}: thread ${who}${threads.length > 4 ? ", …" : ""}`,
    };
  };
  const grids = launch.buffers.map((b, i) => bufferGrid(b, paint(i), { columns: WARP }));
  const draw = (i) => {
    access = accesses[i];
    if (i < done) {
      before.forEach((m) => m.clear());
      done = 0;
    }
    for (; done < i; done += 1) {
      const to = before[launch.sites[accesses[done].site].buffer];
      for (const [e, t] of threadsOf(accesses[done])) to.set(e, t);
    }
    shown = threadsOf(access);
    const site = launch.sites[access.site];
    grids[site.buffer].look(access.elements[0]);
    grids.forEach((g, b) => {
      g.element.hidden = !launch.sites.some((other) => other.buffer === b && other.text === site.text);
      g.show();
    });
  };
  return { elements: grids.map((g) => g.element), draw };
}

/** The accesses of one block of threads, one after the other. */
function blockPanel(launch, accesses, model, key) {
  if (!accesses.length) return { element: h("p", { class: "muted" }, "This block touches neither main nor shared memory."), stop() {} };
  const at = position(model, key, accesses.length);
  const grids = accessGrids(launch, accesses);
  const said = h("div", { class: "said", "aria-live": "polite" });
  const bar = stepper({ count: accesses.length, at, describe: (i) => describe(launch, accesses[i]), label: "accesses of the block" });
  const draw = () => {
    const access = accesses[at.get()];
    const site = launch.sites[access.site];
    grids.draw(at.get());
    const warps = new Set(access.threads.map((t) => Math.floor(t / WARP))).size;
    said.replaceChildren(h("div", {}, h("strong", {}, describe(launch, access))), h("div", {}, site.text),
      h("div", {}, `threads ${rangesText([...new Set(access.threads)])} in ${plural(warps, "warp")}: ${costText(access, site.unit)}`));
  };
  const stops = [at.on(draw), bar.stop];
  draw();
  return { element: h("div", {}, bar, said, h("div", { class: "grids threads" }, grids.elements)), stop: () => stops.forEach((s) => s()) };
}

const LEGEND = "Cells show the number of the thread; dashed: loads now, solid: stores now, pale: before. "
  + "Colours: sectors of 32 bytes in main memory, warps in shared memory.";

function launchPanel(launch, model, key) {
  const block = position(model, `${key}.block`, launch.blocks.length);
  const holder = h("div");
  const chosen = h("select", { "aria-label": "block of threads", onchange: () => block.set(Number(chosen.value)) },
    launch.blocks.map((b, i) => h("option", { value: i }, `block ${tupleText(b.block)}`)));
  let panel = null;
  const show = () => {
    panel?.stop();
    chosen.value = block.get();
    panel = blockPanel(launch, launch.blocks[block.get()].accesses, model, `${key}.step.${block.get()}`);
    holder.replaceChildren(panel.element);
  };
  const stop = block.on(show);
  show();
  const rows = launch.sites.map((s) => [
    s.write ? "store" : "load", launch.buffers[s.buffer].name, s.unit, s.count, s.least,
    s.count > s.least ? `${(s.count / s.least).toFixed(1)} ×` : "1 ×", s.block || s.text,
  ]);
  const total = launch.shared.reduce((n, b) => n + b.bytes, 0);
  const memory = launch.shared.map((b) => `${b.name} ${tupleText(b.shape)} ${b.dtype}, ${formatBytes(b.bytes)}`).join("; ");
  const element = h("div", {},
    h("p", {}, h("strong", {}, launch.name), ` · grid ${tupleText(launch.grid)} · block ${tupleText(launch.threads)}`,
      launch.barriers ? ` · ${plural(launch.barriers, "barrier")}` : ""),
    h("p", {}, total ? `Shared memory: ${formatBytes(total)} a block: ${memory}` : "No shared memory."),
    launch.cut ? h("p", { class: "note" }, `${plural(launch.cut, "access", "accesses")} more are not shown.`) : "",
    h("div", { class: "row" }, chosen, h("span", { class: "muted" }, LEGEND)),
    holder,
    h("h4", {}, `What the accesses of the first block cost${launch.costs_cut ? `, without the last ${launch.costs_cut}` : ""}`),
    scroller("costs of accesses", table(["", "buffer", "unit", "moved", "fewest", "ratio", "in"], rows)));
  return { element, stop: () => { stop(); panel.stop(); } };
}

/** @param {any} threads what Python's `threads_state` wrote */
export function threadsPanel(threads, model) {
  if (threads.error) return { element: h("p", { class: "error" }, threads.error), stop() {} };
  const at = position(model, "loops.launch", Math.max(1, threads.launches.length));
  const holder = h("div");
  let stop = () => {};
  const show = () => {
    stop();
    const made = launchPanel(threads.launches[at.get()], model, `loops.launch.${at.get()}`);
    stop = made.stop;
    holder.replaceChildren(made.element);
  };
  const chosen = h("select", { "aria-label": "launch", onchange: () => at.set(Number(chosen.value)) },
    threads.launches.map((l, i) => h("option", { value: i }, `launch ${i + 1}: ${l.name}`)));
  /** What goes to the access at which a problem is seen. */
  const goTo = (problem) => {
    const place = placeOf(threads, problem);
    return place && (() => {
      const key = `loops.launch.${place.launch}`;
      at.set(place.launch);
      model.set(`${key}.block`, place.block);
      model.set(`${key}.step.${place.block}`, place.access);
      show();
    });
  };
  const off = at.on(show);
  if (threads.launches.length) show();
  else holder.append(h("p", { class: "muted" }, "Nothing is launched at these sizes."));
  const element = h("div", {},
    threads.problems.length ? threads.problems.map((p) => problemBox(p, goTo(p))) : h("p", { class: "muted" }, "The SIMT interpreter found no races, stray accesses or missing barriers."),
    threads.launches.length > 1 ? chosen : "", holder);
  return { element, stop: () => { off(); stop(); } };
}
