// A view with a kernel behind it: controls that make it anew. The view's data comes as messages,
// compressed; what the reader chose in the view stays. Until the first answer the recorded view is
// shown, and so it is wherever there is no kernel.

import { h, localModel, mount } from "./core.js";

const PAUSE = 1000; // milliseconds without a key after which an edited program runs
const PATIENCE = 5000; // milliseconds in which a kernel that has nothing else to do begins
const LONG = 60000; // milliseconds after which a kernel that began may have been restarted
const SILENT = "No answer yet. A busy kernel answers later; after a restart the kernel no longer knows this view; run the cell again.";
const TEXT = "width:100%;font:12px/1.45 var(--mono);background:var(--bg);color:var(--fg);border:1px solid var(--line);border-radius:5px";

async function inflated(buffer) {
  const stream = new Blob([buffer]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** A text area for a program, which runs after a pause in typing: Tab indents by four spaces, Escape
 * and then Tab leaves it. */
function editor(c, put) {
  const pending = h("span", { class: "open", role: "status" });
  let [leaving, timer] = [false, 0];
  const run = () => {
    clearTimeout(timer);
    pending.textContent = "";
    put(area.value);
  };
  const changed = () => {
    pending.textContent = "changed, not run yet";
    clearTimeout(timer);
    timer = setTimeout(run, PAUSE);
  };
  const area = h("textarea", {
    "aria-label": c.name, rows: Math.min(24, c.value.split("\n").length + 2), spellcheck: "false", value: c.value, style: TEXT,
    oninput: changed,
    onkeydown(event) {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey || event.shiftKey)) run();
      else if (event.key === "Tab" && !leaving && !event.shiftKey) {
        area.setRangeText("    ", area.selectionStart, area.selectionEnd, "end");
        changed();
      } else {
        leaving = event.key === "Escape";
        return;
      }
      event.preventDefault();
    },
  });
  const button = h("button", { type: "button", onclick: run }, "Run (Ctrl+Enter)");
  return h("details", { open: true, style: "flex:1 1 100%" }, h("summary", {}, `edit the ${c.name}`), area, h("div", { class: "row" }, button, pending));
}

function control(c, set) {
  const put = (value) => set(c.name, value);
  if (c.kind === "choice") {
    const select = h("select", { "aria-label": c.name, onchange: () => put(select.value) },
      c.choices.map((text) => h("option", { value: text, selected: text === c.value }, text)));
    return h("label", {}, c.name, select);
  }
  if (c.kind === "number") {
    const input = h("input", { type: "number", value: c.value, "aria-label": c.name, style: "width:7em", onchange: () => put(Number(input.value)) });
    return h("label", {}, c.name, input);
  }
  if (c.kind === "switch") {
    const box = h("input", { type: "checkbox", checked: c.value, onchange: () => put(box.checked) });
    return h("label", {}, box, c.name);
  }
  return editor(c, put);
}

/** Puts controls into `el`; `replaced` is called before the first view that the kernel made. */
function attach(model, el, views, replaced) {
  const { root, cleanup } = mount(el);
  const values = Object.fromEntries(model.get("controls").map((c) => [c.name, c.value]));
  const said = h("span", { class: "muted", role: "status" });
  const wrong = h("div", { class: "error", role: "alert", hidden: true });
  const place = h("div");
  const state = localModel({});
  let [end, timer] = [null, 0];
  let [waiting, stale] = [false, false]; // for an answer; which will be of values that changed since
  let asked = 0;
  const silent = () => {
    waiting = false;
    said.textContent = SILENT;
  };
  const ask = () => {
    // After a while it is asked again, as the kernel may have been restarted meanwhile.
    stale = waiting && Date.now() - asked < PATIENCE;
    if (stale) return;
    [waiting, asked] = [true, Date.now()];
    clearTimeout(timer);
    said.textContent = "running …";
    timer = setTimeout(silent, PATIENCE);
    try {
      model.send({ type: "run", values });
    } catch { // the connection was closed
      silent();
    }
  };
  const put = (name, value) => {
    values[name] = value;
    ask();
  };
  const received = async (message, buffers) => {
    clearTimeout(timer);
    said.textContent = message.type === "started" ? "running …" : "";
    if (message.type === "started") {
      timer = setTimeout(silent, LONG);
      return;
    }
    waiting = false;
    if (stale) ask();
    wrong.hidden = message.type !== "error";
    wrong.textContent = message.text ?? "";
    if (message.type === "error") return;
    const data = await inflated(buffers[0]);
    replaced();
    end?.();
    state.set("state", data);
    const view = h("div", { "data-part": "true" });
    place.replaceChildren(view);
    end = views[model.get("kind")].render({ model: state, el: view, views, put });
  };
  model.on("msg:custom", received);
  root.append(
    h("div", { class: "row", style: "margin-bottom:8px", role: "group", "aria-label": "options" },
      model.get("controls").filter((c) => c.kind !== "inner").map((c) => control(c, put)), said),
    wrong, place);
  const stop = () => {
    clearTimeout(timer);
    model.off("msg:custom", received);
    end?.();
    cleanup();
  };
  return { ask, stop };
}

/** Puts controls above a recorded view on the page, which stays until the kernel made another. */
function attachAbove(model, host, views) {
  const el = h("div", { style: "margin-bottom:6px" });
  host.prepend(el);
  const { ask, stop } = attach(model, el, views, () => {
    host.dataset.replaced = "true";
    for (const child of host.children) child.hidden = child !== el;
  });
  if (model.get("controls").some((c) => c.kind === "inner")) ask(); // the recorded view cannot
  return () => {
    stop();
    el.remove();
  };
}

export default {
  /** Where the page has the recorded view as HTML: finds it, now and whenever it is shown again. */
  initialize({ model, views }) {
    const attached = new Map();
    const find = () => {
      for (const host of document.querySelectorAll(`.relaxlab-view[data-live="${model.get("place")}"]`)) {
        if (!attached.has(host)) attached.set(host, attachAbove(model, host, views));
      }
    };
    let timer = 0;
    const watcher = new MutationObserver(() => {
      clearTimeout(timer);
      timer = setTimeout(find, 100);
    });
    watcher.observe(document.body, { childList: true, subtree: true });
    find();
    return () => {
      watcher.disconnect();
      clearTimeout(timer);
      for (const stop of attached.values()) stop();
    };
  },
  /** As a widget of its own. */
  render({ model, el, views }) {
    const { ask, stop } = attach(model, el, views, () => {});
    ask();
    return stop;
  },
};
