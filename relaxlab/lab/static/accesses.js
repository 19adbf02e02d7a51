// Recorded accesses of a loop function: where they are, what memory holds at a step, what is reused.

/** The indices of element number `element` of a row-major array. */
export function indicesOf(element, shape) {
  const found = [];
  for (let i = shape.length - 1; i >= 0; i -= 1) {
    found.unshift(element % shape[i]);
    element = Math.floor(element / shape[i]);
  }
  return found;
}

/** The number of the element at some indices. */
export const elementAt = (indices, shape) => shape.reduce((n, size, i) => n * size + indices[i], 0);

/** "C[1, 2]" */
export const placeText = (buffer, element) => `${buffer.name}[${indicesOf(element, buffer.shape).join(", ")}]`;

/** Several elements: "C[1, 0–7]" where they fill a box, else the first three. */
export function placesText(buffer, elements) {
  const places = [...new Set(elements)].sort((a, b) => a - b);
  const along = buffer.shape.map((_, d) => [...new Set(places.map((e) => indicesOf(e, buffer.shape)[d]))].sort((a, b) => a - b));
  const box = along.reduce((n, indices) => n * indices.length, 1) === places.length;
  if (box) return `${buffer.name}[${along.map((indices) => rangesText(indices)).join(", ")}]`;
  return places.slice(0, 3).map((e) => placeText(buffer, e)).join(", ") + (places.length > 3 ? `, … (${places.length})` : "");
}

/**
 * A run with the place of each step in its columns: `first` access and `value` of each step.
 * @param {any} run what Python's `run_state` wrote
 */
export function decode(run) {
  const { site, count } = run.steps;
  const first = [0];
  const value = [0];
  site.forEach((s, i) => {
    first.push(first[i] + count[i]);
    value.push(value[i] + run.sites[s].loops.length);
  });
  const stepOf = new Int32Array(first[site.length]);
  site.forEach((_, i) => stepOf.fill(i, first[i], first[i + 1]));
  return { ...run, count: site.length, first, value, stepOf };
}

/** The values of the loops around a step, as pairs of name and number. */
export function loopValues(run, step) {
  const names = run.sites[run.steps.site[step]].loops;
  return names.map((name, i) => [name, run.steps.values[run.value[step] + i]]);
}

/** The next step, after `step` and then from the beginning, in another round of a loop; `step` where
 * there is none. */
export function nextRound(run, step, variable) {
  const round = (i) => loopValues(run, i).find(([name]) => name === variable)?.[1] ?? null;
  for (let i = 1; i < run.count; i += 1) {
    const next = (step + i) % run.count;
    if (round(next) !== null && round(next) !== round(step)) return next;
  }
  return step;
}

/** The accesses of a step: buffer, element, write, value (text), distance and line distance. */
export function accessesOf(run, step) {
  const found = [];
  const a = run.accesses;
  for (let i = run.first[step]; i < run.first[step + 1]; i += 1) {
    found.push({
      buffer: a.buffer[i], element: a.element[i], write: a.write[i] === 1,
      value: run.values[a.value[i]], distance: a.distance[i], line: a.line[i],
    });
  }
  return found;
}

/**
 * What memory holds after a step. `to(step)` goes there from wherever it was; per buffer and
 * element: `value` (a number of `run.values`, -1 where nothing was written), `touched` (step of the
 * first access, -1), `last` (step of the last one), `times`.
 */
export function memoryOf(run) {
  const make = () => run.buffers.map((b) => {
    const size = b.shape.reduce((n, d) => n * d, 1);
    return {
      value: b.initial ? Int32Array.from(b.initial) : new Int32Array(size).fill(-1),
      touched: new Int32Array(size).fill(-1), last: new Int32Array(size).fill(-1),
      times: new Int32Array(size),
    };
  });
  let buffers = make();
  let at = -1;
  return {
    buffers: () => buffers,
    to(step) {
      if (step < at) {
        buffers = make();
        at = -1;
      }
      const a = run.accesses;
      for (let i = run.first[at + 1]; i < run.first[step + 1]; i += 1) {
        const b = buffers[a.buffer[i]];
        const e = a.element[i];
        if (b.touched[e] < 0) b.touched[e] = run.stepOf[i];
        b.last[e] = run.stepOf[i];
        b.times[e] += 1;
        if (a.write[i]) b.value[e] = a.value[i];
      }
      at = step;
      return buffers;
    },
  };
}

/** Counts of distances as bars: first touches, 0, 1, 2–3, 4–7, … */
export function distanceBars(counts) {
  const bars = [{ label: "first", count: 0 }];
  for (const [distance, n] of counts) {
    const at = distance < 0 ? 0 : distance === 0 ? 1 : 2 + Math.floor(Math.log2(distance));
    while (bars.length <= at) {
      const low = bars.length === 1 ? 0 : 2 ** (bars.length - 2);
      bars.push({ label: low < 2 ? String(low) : `${low}–${2 * low - 1}`, count: 0 });
    }
    bars[at].count += n;
  }
  return bars;
}

/** How many accesses a cache of the `size` places used last serves. */
export const servedBy = (counts, size) =>
  counts.reduce((n, [distance, count]) => n + (distance >= 0 && distance < size ? count : 0), 0);

/** The part of an array that a grid shows: leading indices of its slice, first row and column. */
export function pageOf(element, shape, rows, columns) {
  const at = indicesOf(element, shape);
  const [row, column] = [at.at(-2) ?? 0, at.at(-1) ?? 0];
  return {
    slice: at.slice(0, -2), row: Math.floor(row / rows) * rows, column: Math.floor(column / columns) * columns,
  };
}

/** Numbers as ranges: [0, 1, 2, 5] -> "0–2, 5" */
export function rangesText(numbers, most = 3) {
  const runs = [];
  for (const n of numbers) {
    const last = runs.at(-1);
    if (last && n === last[1] + 1) last[1] = n;
    else if (!last || n !== last[1]) runs.push([n, n]);
  }
  const shown = runs.slice(0, most).map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`));
  return shown.join(", ") + (runs.length > most ? ", …" : "");
}
