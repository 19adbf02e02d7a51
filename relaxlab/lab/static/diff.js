// Differences between two lists of line numbers, and their rows on a page. No DOM here.

/**
 * What changed from `a` to `b`, as runs in order: `same` runs have equal lines, `change` runs
 * replace the lines [a0, a1) by [b0, b1). Patience diff: lines that occur once on both sides and
 * in the same order stay, and so on between them; about linear in the number of lines.
 * @param {number[]} a @param {number[]} b
 * @returns {{kind: "same" | "change", a0: number, a1: number, b0: number, b1: number}[]}
 */
export function diffLines(a, b) {
  const pairs = [];
  const work = [[0, a.length, 0, b.length]];
  while (work.length > 0) {
    let [a0, a1, b0, b1] = work.pop();
    while (a0 < a1 && b0 < b1 && a[a0] === b[b0]) pairs.push([a0++, b0++]);
    while (a0 < a1 && b0 < b1 && a[a1 - 1] === b[b1 - 1]) pairs.push([--a1, --b1]);
    if (a0 === a1 || b0 === b1) continue;
    const anchors = inOrder(uniquePairs(a, b, a0, a1, b0, b1));
    if (anchors.length === 0) {
      pairs.push(...smallDiff(a, b, a0, a1, b0, b1));
      continue;
    }
    let [x, y] = [a0, b0];
    for (const [i, j] of [...anchors, [a1, b1]]) {
      work.push([x, i, y, j]);
      [x, y] = [i, j]; // the anchor itself is the next range's common beginning
    }
  }
  pairs.sort((p, q) => p[0] - q[0]);
  return runs(pairs, a.length, b.length);
}

/** Lines that occur exactly once in both ranges, in the order of `a`. */
function uniquePairs(a, b, a0, a1, b0, b1) {
  const seen = new Map();
  const count = (line, at, side) => {
    const entry = seen.get(line) ?? [0, 0, 0, 0];
    entry[side] += 1;
    entry[side + 2] = at;
    seen.set(line, entry);
  };
  for (let i = a0; i < a1; i++) count(a[i], i, 0);
  for (let j = b0; j < b1; j++) count(b[j], j, 1);
  const found = [];
  for (let i = a0; i < a1; i++) {
    const [inA, inB, , at] = seen.get(a[i]);
    if (inA === 1 && inB === 1) found.push([i, at]);
  }
  return found;
}

/** The longest subsequence of pairs whose second numbers rise (patience sorting). */
function inOrder(pairs) {
  const tops = [];
  const before = pairs.map(() => -1);
  pairs.forEach(([, j], k) => {
    let [low, high] = [0, tops.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pairs[tops[middle]][1] < j) low = middle + 1;
      else high = middle;
    }
    before[k] = low > 0 ? tops[low - 1] : -1;
    tops[low] = k;
  });
  const found = [];
  for (let k = tops.at(-1) ?? -1; k >= 0; k = before[k]) found.push(pairs[k]);
  return found.reverse();
}

const SMALL = 40_000;

/** A longest common subsequence by a table, where that is small; else nothing is the same. */
function smallDiff(a, b, a0, a1, b0, b1) {
  const [n, m] = [a1 - a0, b1 - b0];
  if (n * m > SMALL) return [];
  const length = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
  for (let i = n - 1; i >= 0; i--) {
    for (let j = m - 1; j >= 0; j--) {
      length[i][j] = a[a0 + i] === b[b0 + j]
        ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const found = [];
  for (let i = 0, j = 0; i < n && j < m;) {
    if (a[a0 + i] === b[b0 + j]) found.push([a0 + i++, b0 + j++]);
    else if (length[i + 1][j] >= length[i][j + 1]) i += 1;
    else j += 1;
  }
  return found;
}

function runs(pairs, n, m) {
  const found = [];
  let [x, y] = [0, 0];
  for (const [i, j] of [...pairs, [n, m]]) {
    if (i > x || j > y) found.push({ kind: "change", a0: x, a1: i, b0: y, b1: j });
    const last = found.at(-1);
    if (i < n && j < m) {
      if (last?.kind === "same" && last.a1 === i && last.b1 === j) [last.a1, last.b1] = [i + 1, j + 1];
      else found.push({ kind: "same", a0: i, a1: i + 1, b0: j, b1: j + 1 });
    }
    [x, y] = [i + 1, j + 1];
  }
  return found;
}

const MOST_PIECES = 3000; // of a run of changed lines, on both sides together

/**
 * Of the lines of changed runs, the numbers of the pieces that are on one side alone: what a line
 * that was wrapped otherwise has in common with what it replaces is not among them. Runs that have little
 * in common, or are very long, are left out.
 * @param {ReturnType<typeof diffLines>} found @param {string[][]} a pieces by line @param {string[][]} b
 * @returns {{a: Map<number, Set<number>>, b: Map<number, Set<number>>}} by line
 */
export function changedPieces(found, a, b) {
  const changed = { a: new Map(), b: new Map() };
  for (const run of found) {
    if (run.kind === "same" || run.a0 === run.a1 || run.b0 === run.b1) continue;
    const ids = new Map();
    const flat = (lines, from, to) => {
      const pieces = [];
      for (let line = from; line < to; line++) {
        lines[line].forEach((text, i) => { if (text.trim()) pieces.push({ line, i, id: ids.get(text) ?? ids.set(text, ids.size).size - 1 }); });
      }
      return pieces;
    };
    const [x, y] = [flat(a, run.a0, run.a1), flat(b, run.b0, run.b1)];
    if (x.length + y.length > MOST_PIECES) continue;
    const parts = diffLines(x.map((p) => p.id), y.map((p) => p.id));
    const common = parts.reduce((n, p) => n + (p.kind === "same" ? p.a1 - p.a0 : 0), 0);
    if (3 * common < Math.min(x.length, y.length)) continue;
    for (const part of parts.filter((p) => p.kind !== "same")) {
      for (const p of x.slice(part.a0, part.a1)) put(changed.a, p);
      for (const p of y.slice(part.b0, part.b1)) put(changed.b, p);
    }
    fillUp(changed.a, run.a0, run.a1);
    fillUp(changed.b, run.b0, run.b1);
  }
  return changed;
}

function put(map, { line, i }) {
  if (!map.has(line)) map.set(line, new Set());
  map.get(line).add(i);
}

/** Lines of a run in which nothing is new have an empty set: they only stand elsewhere. */
function fillUp(map, from, to) {
  for (let line = from; line < to; line++) if (!map.has(line)) map.set(line, new Set());
}

/** How many lines were added and removed. */
export function countChanges(found) {
  let [added, removed] = [0, 0];
  for (const run of found) {
    if (run.kind === "change") [added, removed] = [added + run.b1 - run.b0, removed + run.a1 - run.a0];
  }
  return { added, removed };
}

/**
 * The rows of a diff one below the other: `same`, `del`, `add`, and `fold` in place of the unchanged
 * lines farther than `context` from a change and from line `keep` of the new side. `a`, `b`: line
 * indices, -1 where the side has none.
 * @returns {{kind: string, a: number, b: number, count?: number}[]}
 */
export function unifiedRows(found, context = 3, keep = -1) {
  const rows = [];
  found.forEach((run, k) => {
    if (run.kind === "change") {
      for (let i = run.a0; i < run.a1; i++) rows.push({ kind: "del", a: i, b: -1 });
      for (let j = run.b0; j < run.b1; j++) rows.push({ kind: "add", a: -1, b: j });
    } else {
      rows.push(...sameRows(run, k === 0 ? 0 : context, k === found.length - 1 ? 0 : context, context, keep));
    }
  });
  return rows;
}

/** The rows of an unchanged run: `head` and `tail` lines of it and those around `keep`, the others
 * folded. */
function sameRows(run, head, tail, context, keep) {
  const count = run.a1 - run.a0;
  const shown = (i) => i < head || i >= count - tail || (keep >= 0 && Math.abs(run.b0 + i - keep) <= context);
  const rows = [];
  for (let i = 0; i < count;) {
    let j = i;
    while (j < count && !shown(j)) j += 1;
    if (j > i + 1) {
      rows.push({ kind: "fold", a: run.a0 + i, b: run.b0 + i, count: j - i });
      i = j;
    } else {
      rows.push({ kind: "same", a: run.a0 + i, b: run.b0 + i });
      i += 1;
    }
  }
  return rows;
}

/** The rows of a diff side by side: changed lines stand beside what replaces them. */
export function pairedRows(found, context = 3, keep = -1) {
  const rows = [];
  found.forEach((run, k) => {
    if (run.kind === "same") {
      rows.push(...sameRows(run, k === 0 ? 0 : context, k === found.length - 1 ? 0 : context, context, keep));
      return;
    }
    const count = Math.max(run.a1 - run.a0, run.b1 - run.b0);
    for (let i = 0; i < count; i++) {
      rows.push({
        kind: "pair",
        a: run.a0 + i < run.a1 ? run.a0 + i : -1,
        b: run.b0 + i < run.b1 ? run.b0 + i : -1,
      });
    }
  });
  return rows;
}
