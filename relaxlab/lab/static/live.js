// A view with a kernel behind it: controls that make it anew. The view's data comes as messages,
// compressed; what the reader chose in the view stays.

import { h, localModel, mount } from "./core.js";

async function inflated(buffer) {
  const stream = new Blob([buffer]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

function control(c, values, changed) {
  const put = (value) => {
    values[c.name] = value;
    changed();
  };
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
  const area = h("textarea", {
    "aria-label": c.name, rows: 14, spellcheck: "false", value: c.value,
    style: "width:100%;font:12px/1.45 var(--mono);background:var(--bg);color:var(--fg);border:1px solid var(--line);border-radius:5px",
    oninput: () => { values[c.name] = area.value; },
    onkeydown(event) {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey || event.shiftKey)) {
        event.preventDefault();
        put(area.value);
      }
    },
  });
  const run = h("button", { type: "button", onclick: () => put(area.value) }, "Run (Ctrl+Enter)");
  return h("details", { style: "flex:1 1 100%" }, h("summary", {}, `edit the ${c.name}`), area, run);
}

export default {
  render({ model, el, views }) {
    const { root, cleanup } = mount(el);
    const values = Object.fromEntries(model.get("controls").map((c) => [c.name, c.value]));
    const said = h("span", { class: "muted", role: "status" });
    const wrong = h("div", { class: "error", role: "alert", hidden: true });
    const place = h("div");
    const state = localModel({});
    let end = null;
    const ask = () => {
      said.textContent = "running …";
      model.send({ type: "run", values });
    };
    const received = async (message, buffers) => {
      wrong.hidden = message.type !== "error";
      said.textContent = "";
      if (message.type === "error") {
        wrong.textContent = message.text;
        return;
      }
      const data = await inflated(buffers[0]);
      end?.();
      state.set("state", data);
      const view = h("div");
      place.replaceChildren(view);
      end = views[model.get("kind")].render({ model: state, el: view, views });
    };
    model.on("msg:custom", received);
    root.append(
      h("div", { class: "row", style: "margin-bottom:8px", role: "group", "aria-label": "options" },
        model.get("controls").map((c) => control(c, values, ask)), said),
      wrong, place);
    ask();
    return () => {
      model.off("msg:custom", received);
      end?.();
      cleanup();
    };
  },
};
