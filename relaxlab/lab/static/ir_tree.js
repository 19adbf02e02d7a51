// The nodes of a program as a tree that folds, beside its text.

import { h, mount, notes, plural } from "./core.js";
import { plainRows, scriptPane } from "./script_pane.js";

const CSS = `
.nodes { font: 12px/19px var(--mono); border: 1px solid var(--line); border-radius: 5px; background: var(--bg); padding: 4px 8px; max-height: max(36em, var(--room, 0px)); overflow: auto; }
.nodes details, .nodes .leaf { margin-left: 14px; white-space: pre; } .nodes > details { margin-left: 0; }
.nodes .leaf { padding-left: 13px; } .nodes summary { cursor: pointer; margin-left: 0; }
.nodes .label { color: var(--muted); } .nodes .type { color: var(--name); font-weight: 600; } .nodes .values { color: var(--number); }
.nodes .chosen { background: var(--accent-bg); border-radius: 3px; }
`;
const [SMALL, LEVELS, FEW_LEVELS] = [160, 12, 3]; // nodes of a small tree, and levels open at first

/** How many nodes there are in a tree. */
export const countNodes = ([, , , , children]) => children.reduce((n, c) => n + countNodes(c), 1);

/** The elements of a tree, `levels` of which are open; the children of a node are made when it is first opened. */
function nodeElement(node, levels, choose) {
  const [label, type, values, lines, children] = node;
  const text = [label && h("span", { class: "label" }, `${label}: `), h("span", { class: "type" }, type), values && h("span", { class: "values" }, ` ${values}`)];
  const look = (event) => choose(event.currentTarget, lines);
  if (!children.length) return h("div", { class: "leaf", tabindex: 0, onmouseenter: look, onfocus: look }, text);
  const fill = () => {
    if (details.children.length === 1) details.append(...children.map((c) => nodeElement(c, levels - 1, choose)));
  };
  const details = h("details", { open: levels > 0, ontoggle: fill }, h("summary", { onmouseenter: look, onfocus: look }, text));
  if (levels > 0) fill();
  return details;
}

export default {
  render({ model, el }) {
    const { root, cleanup } = mount(el);
    const state = model.get("state");
    const pane = scriptPane({ rows: plainRows(state.lines.map((i) => state.table[i])), label: "script", height: "36em" });
    const count = countNodes(state.root);
    let chosen = null;
    const choose = (element, lines) => {
      chosen?.classList.remove("chosen");
      chosen = element;
      element.classList.add("chosen");
      if (!lines) return void pane.link([]);
      const rows = Array.from({ length: lines[1] - lines[0] + 1 }, (_, i) => lines[0] + i);
      pane.link(rows);
      const [top, low] = [pane.pane.scrollTop, pane.pane.scrollTop + pane.pane.clientHeight];
      if (rows[0] * 18 < top || rows[0] * 18 > low - 18) pane.scrollTo(rows[0], false);
      pane.link(rows); // those that scrolling made, too
    };
    const tree = h("div", { class: "nodes", role: "group", tabindex: 0, "aria-label": "nodes" }, nodeElement(state.root, count <= SMALL ? LEVELS : FEW_LEVELS, choose));
    const all = (open) => {
      for (let found = tree.querySelectorAll(open ? "details:not([open])" : "details details[open]"); found.length; found = tree.querySelectorAll("details:not([open])")) {
        for (const one of found) {
          one.open = open;
          one.dispatchEvent(new Event("toggle"));
        }
        if (!open) break;
      }
    };
    root.append(h("style", {}, CSS), ...notes(state), h("div", { class: "row", style: "margin-bottom:6px" },
      h("h3", { class: "grow", style: "margin:0" }, state.title, h("span", { class: "muted" }, ` · ${plural(count, "node")}`)),
      h("button", { type: "button", onclick: () => all(true) }, "Open all"), h("button", { type: "button", onclick: () => all(false) }, "Close all")),
    h("div", { class: "halves" }, tree, pane.element));
    return () => {
      pane.stop();
      cleanup();
    };
  },
};
