// Where a graph's nodes, groups and edges are drawn, and which nodes an edge joins.

const MOST = 500; // nodes: with more, a drawing takes noticeable time at each change
const ROW = 18; // half the height of a node
const FRAME = { side: 6, head: 26, more: 12, above: 30 }; // an open group around its nodes

const widthOf = (inner) => Math.max(170, inner.width + FRAME.more);

/** Moves a point as the open groups push it: down below one of them, to the right beside one. */
function mover(graph, open) {
  const count = graph.nodes.length;
  const grown = [];
  graph.items.forEach((item, i) => {
    if (item < count || !open.has(item - count)) return;
    const [x, y] = graph.top.at[i];
    const inner = graph.layouts[graph.groups[item - count].layout];
    grown.push({ x, y, dx: widthOf(inner) - 170, dy: inner.height + FRAME.above - 2 * ROW });
  });
  return (x, y) => {
    let [mx, my] = [x, y];
    for (const g of grown) {
      if (y > g.y + ROW - 2) my += g.dy;
      else if (Math.abs(y - g.y) < ROW && x > g.x + 1) mx += g.dx;
    }
    return [mx, my];
  };
}

/** A curve between two boxes; it starts and ends at their borders. */
function curveBetween(from, to, ends, flat, shift) {
  const points = [];
  for (let i = 0; i < flat.length; i += 2) points.push(shift(flat[i], flat[i + 1]));
  points[0][1] = from.y + from.h;
  points.at(-1)[1] = to.y;
  return { a: ends[0], b: ends[1], points };
}

/**
 * The boxes and curves of a drawing in which the groups in `open` are: a group grows in place, what
 * is below moves down, what is beside it to the right moves on.
 * @param {any} graph @param {Set<number>} open
 */
export function placed(graph, open) {
  const count = graph.nodes.length;
  const move = mover(graph, open);
  const found = new Map(); // boxes by item
  const curves = [];
  const add = (key, b) => found.set(key, b);
  const node = (v, x, y) => add(v, { node: v, x: x - graph.nodes[v].width / 2, y: y - ROW, w: graph.nodes[v].width, h: 2 * ROW });
  const curve = (a, b, flat, shift) => curves.push(curveBetween(found.get(a), found.get(b), [a, b], flat, shift));
  const openGroup = (k, left, top) => {
    const { start, layout } = graph.groups[k];
    const inner = graph.layouts[layout];
    const [x0, y0] = [left + FRAME.side, top + FRAME.head];
    add(count + k, { group: k, open: true, x: left, y: top, w: widthOf(inner), h: inner.height + FRAME.above });
    inner.at.forEach(([x, y], j) => node(start + j, x0 + x, y0 + y));
    inner.edges.forEach(([a, b], e) => curve(start + a, start + b, inner.curves[e], (x, y) => [x + x0, y + y0]));
  };
  graph.items.forEach((item, i) => {
    const [x, y] = move(...graph.top.at[i]);
    if (item < count) node(item, x, y);
    else if (open.has(item - count)) openGroup(item - count, x - 85, y - ROW);
    else add(item, { group: item - count, x: x - 85, y: y - ROW, w: 170, h: 2 * ROW });
  });
  graph.top.edges.forEach(([a, b], e) => curve(graph.items[a], graph.items[b], graph.top.curves[e], move));
  const boxes = [...found.values()];
  const right = Math.max(graph.top.width, ...boxes.map((b) => b.x + b.w + 8));
  const low = Math.max(graph.top.height, ...boxes.map((b) => b.y + b.h + 8));
  return { boxes, curves, width: right, height: low };
}

/** The open groups after group `k` was opened or closed; others close where too much would be shown. */
export function toggled(graph, open, k) {
  const now = new Set(open);
  if (now.delete(k)) return [...now];
  const size = (g) => graph.groups[g].end - graph.groups[g].start;
  let visible = graph.items.length + size(k);
  for (const g of now) visible += size(g);
  for (const g of [...now]) {
    if (visible <= MOST) break;
    visible -= size(g);
    now.delete(g);
  }
  return [...now, k];
}

/** The scale at which a drawing is seen as a whole in a pane, 1 where it is smaller than that. */
export const fitting = ([wide, tall], [width, height]) => Math.min(1, width / wide, height / tall);

/** Producers and consumers of each node, by number. */
export function neighbours(graph) {
  const before = graph.nodes.map(() => []);
  const after = graph.nodes.map(() => []);
  for (const [a, b] of graph.edges) {
    before[b].push(a);
    after[a].push(b);
  }
  return { before, after };
}
