// The address of a saved page: what its reader chose stands after the `#`, and is restored from it.

import { localModel } from "./core.js";

const slug = (title) => title.toLowerCase().replace(/\W+/g, "-");

/** What a value is in an address; null for those that are not kept there. */
function spelled(value) {
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value !== "string") return null;
  return /^["-\d]|^(true|false)$/.test(value) ? JSON.stringify(value) : value;
}

function parsed(text) {
  try {
    return /^["-\d]|^(true|false)$/.test(text) ? JSON.parse(text) : text;
  } catch {
    return text;
  }
}

/**
 * "#fusion:step+main=3": the tab, and what was chosen in it. Without tabs "#step+main=3".
 * @param {Record<string, any>} chosen by key; of a tab's view, after its number and a dot
 * @param {string[]} titles of the tabs; none for a view alone
 */
export function addressOf(chosen, titles) {
  const prefix = titles.length ? `${chosen.tab ?? 0}.` : "";
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(chosen)) {
    const text = spelled(value);
    if (text !== null && key.startsWith(prefix) && key !== "tab") query.set(key.slice(prefix.length), text);
  }
  const tab = titles.length ? slug(titles[chosen.tab ?? 0] ?? "") : "";
  return [tab, query.toString()].filter(Boolean).join(":");
}

/** What `addressOf` was given, as far as it is kept; a tab that is not there is the first one. */
export function chosenIn(address, titles) {
  const text = address.replace(/^#/, "");
  const cut = titles.length ? text.indexOf(":") : -1;
  const tab = titles.map(slug).indexOf(cut < 0 ? text : text.slice(0, cut));
  const found = tab > 0 ? { tab } : {};
  const query = titles.length ? (cut < 0 ? "" : text.slice(cut + 1)) : text;
  const prefix = titles.length ? `${Math.max(0, tab)}.` : "";
  for (const [key, value] of new URLSearchParams(query)) found[prefix + key] = parsed(value);
  return found;
}

/** A model of a page's only view, which reads the address at first and follows what is chosen. */
export function addressedModel(state) {
  const titles = (state.tabs ?? []).map((t) => t.title);
  const restored = chosenIn(location.hash, titles);
  const kept = { ...restored };
  const first = {};
  const model = localModel({ state, ...restored });
  return {
    ...model,
    set(key, value) {
      if (!(key in first) && !(key in restored)) first[key] = value;
      kept[key] = value;
      model.set(key, value);
    },
    save_changes() {
      const chosen = Object.fromEntries(Object.entries(kept).filter(([k, v]) => v !== first[k]));
      const address = addressOf(chosen, titles);
      history.replaceState(null, "", address ? `#${address}` : location.pathname + location.search);
    },
  };
}
