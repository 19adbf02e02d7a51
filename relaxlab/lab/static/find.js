// A search box that walks through what it finds.

import { h } from "./core.js";

/** The places whose text has all words of a search, in any case; none for an empty search. */
export function matching(texts, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  return texts.flatMap((text, i) => (words.every((w) => text.toLowerCase().includes(w)) ? [i] : []));
}

/**
 * A search box: Enter goes to the next place, Shift+Enter to the one before, Escape empties it.
 * @param {{label: string, texts: () => string[], at: () => number, go: (i: number) => void,
 *   changed?: (found: number[], search: string) => void}} options `at` is the place from which on it
 *   searches, `changed` hears what is found at each letter
 */
export function finder({ label, texts, at, go, changed = () => {} }) {
  const said = h("span", { class: "muted", role: "status" });
  let found = [];
  const search = () => {
    found = matching(texts(), box.value);
    said.textContent = box.value.trim() === "" ? "" : found.length ? `${found.length} found` : "not found";
    changed(found, box.value.trim());
  };
  const step = (back) => {
    if (!found.length) return;
    const now = at();
    const to = back ? found.findLast((i) => i < now) ?? found.at(-1) : found.find((i) => i > now) ?? found[0];
    go(to);
    said.textContent = `${found.indexOf(to) + 1} of ${found.length}`;
    box.focus();
  };
  const box = h("input", { type: "search", placeholder: label, "aria-label": label, style: "width:15em", oninput: search,
    onkeydown(event) {
      if (event.key === "Enter") step(event.shiftKey);
      else if (event.key === "Escape" && box.value) {
        box.value = "";
        search();
      } else return;
      event.preventDefault();
      event.stopPropagation();
    } });
  return h("span", { class: "row", role: "search" }, box, said);
}
