// A program's functions, one at a time, below what stopped its compilation.

import { failurePanel } from "./failure.js";
import { field, h, mount, notes } from "./core.js";

/**
 * A view of `state.functions`. The first one shown is number `state.start`.
 * @param {(fn: any, model: any, state: any) => {element: HTMLElement, stop: () => void}} view of one
 * @param {() => HTMLElement | null} [legend] what its marks mean
 */
export function ofFunctions(view, legend = () => null) {
  return {
    render({ model, el }) {
      const state = model.get("state");
      const { root, cleanup } = mount(el);
      const which = field(model, "function", state.start ?? 0);
      const place = h("div");
      let shown = null;
      const show = () => {
        shown?.stop();
        const fn = state.functions[Math.min(which.get(), state.functions.length - 1)];
        if (!fn) return;
        shown = view(fn, model, state);
        place.replaceChildren(shown.element);
      };
      const select = h("select", { "aria-label": "function", onchange: () => which.set(Number(select.value)) },
        state.functions.map((f, i) => h("option", { value: i }, f.name)));
      select.value = which.get();
      root.append(...[
        failurePanel(state.failure), ...notes(state),
        state.functions.length > 1 && h("label", {}, "Function ", select),
        state.functions.length > 0 && legend(), place,
      ].filter(Boolean));
      show();
      const off = which.on(show);
      return () => { off(); shown?.stop(); cleanup(); };
    },
  };
}
