// Several views under tabs, each started when it is first shown.

import { field, h, mount, tabs } from "./core.js";

function part(model, prefix, state) {
  return {
    get: (key) => (key === "state" ? state : model.get(`${prefix}.${key}`)),
    set: (key, value) => model.set(`${prefix}.${key}`, value),
    on: (event, f) => model.on(event.replace("change:", `change:${prefix}.`), f),
    off: (event, f) => model.off(event.replace("change:", `change:${prefix}.`), f),
    save_changes: () => model.save_changes(),
    send: () => {},
  };
}

export default {
  render({ model, el, views }) {
    const { root, cleanup } = mount(el);
    const all = model.get("state").tabs;
    const ends = [];
    root.append(tabs({
      titles: all.map((t) => t.title),
      at: field(model, "tab", 0),
      label: "views",
      panel(i) {
        const inner = h("div", { "data-part": "true" });
        ends.push(views[all[i].kind].render({ model: part(model, String(i), all[i].state), el: inner, views }));
        return inner;
      },
    }));
    return () => {
      for (const end of ends) end?.();
      cleanup();
    };
  },
};
