// Scripts as text: the tokens of a line, the functions of a script, and what defines its names.

import { formatBytes, tupleText } from "./core.js";

const TOKEN = /(#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\b(\d[\w.]*(?:[eE][-+]?\d+)?)|(@?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)|(\s+)|(.)/g;
const KEYWORDS = new Set("def class return with for in if else elif from import as and or not True False None pass while lambda".split(" "));
const MODULES = /^@?(?:R|T|I)(?:\.|$)/;

/** Whether a string after `before` is a symbol: a dimension in the shape of a type. */
function isSymbol(text, before) {
  const open = Math.max(before.lastIndexOf("("), before.lastIndexOf("["));
  return open >= 0 && !/[)\]]/.test(before.slice(open)) && /^[A-Za-z_]\w*$/.test(text)
    && /(?:Tensor|Buffer|Shape)\($/.test(before.slice(0, open));
}

/**
 * The pieces of one line: kind (keyword, string, number, comment, module, def, link, name, plain)
 * and text. A `link` names a function of the module after `cls.`; a string that is a symbol's name
 * is a name, too (`R.Tensor(("n", 4))`).
 * @returns {{kind: string, text: string, name?: string}[]}
 */
export function tokens(line) {
  const found = [];
  const defines = /^\s*(def|class)\s/.test(line);
  for (const match of line.matchAll(TOKEN)) {
    const [text, comment, string, number, name] = match;
    if (comment) found.push({ kind: "comment", text });
    else if (string) {
      const inner = string.slice(1, -1);
      if (isSymbol(inner, line.slice(0, match.index))) {
        found.push({ kind: "name", text, name: inner });
      } else found.push({ kind: "string", text });
    } else if (number) found.push({ kind: "number", text });
    else if (name) {
      const last = found.findLast((t) => t.text.trim());
      if (KEYWORDS.has(name)) found.push({ kind: "keyword", text });
      else if (defines && last && (last.text === "def" || last.text === "class")) found.push({ kind: "def", text, name: text });
      else if (MODULES.test(name)) found.push({ kind: "module", text });
      else if (name.startsWith("cls.")) {
        found.push({ kind: "plain", text: "cls." }, { kind: "link", text: name.slice(4), name: name.slice(4) });
      } else {
        const dot = name.indexOf(".");
        const head = dot < 0 ? name : name.slice(0, dot);
        found.push({ kind: "name", text: head, name: head });
        if (dot >= 0) found.push({ kind: "plain", text: name.slice(dot) });
      }
    } else found.push({ kind: "plain", text });
  }
  return found;
}

/**
 * The functions of a script: name, "graph" or "loops", first line (of the decorators) and end.
 * @param {string[]} lines @returns {{name: string, kind: string, start: number, def: number, end: number}[]}
 */
export function outline(lines) {
  const functions = [];
  const indent = lines.some((l) => /^class /.test(l)) ? 4 : 0;
  const def = new RegExp(`^ {${indent}}def (\\w+)\\(`);
  const decorator = new RegExp(`^ {${indent}}@(R|T)\\.`);
  let start = -1;
  let kind = "graph";
  lines.forEach((line, i) => {
    const at = decorator.exec(line);
    if (at) {
      if (functions.length && functions.at(-1).end === null) functions.at(-1).end = i;
      start = i;
      kind = at[1] === "T" ? "loops" : "graph";
    }
    const found = def.exec(line);
    if (found && start >= 0) {
      functions.push({ name: found[1], kind, start, def: i, end: null });
      start = -1;
    }
  });
  for (const f of functions) {
    f.end ??= lines.length;
    while (f.end > f.start && !lines[f.end - 1].trim()) f.end -= 1;
  }
  return functions;
}

const BYTES = { float64: 8, int64: 8, uint64: 8, float32: 4, int32: 4, uint32: 4, float16: 2, bfloat16: 2, int16: 2, uint16: 2, int8: 1, uint8: 1, bool: 1 };

/** What a shape and a dtype take, as text: "1.00 KiB" or "4 B × n × 8". */
export function sizeText(shape, dtype) {
  const item = BYTES[dtype];
  if (item === undefined) return "";
  const known = shape.every((d) => /^\d+$/.test(d));
  if (known) return formatBytes(shape.reduce((n, d) => n * Number(d), item));
  const count = shape.filter((d) => /^\d+$/.test(d)).reduce((n, d) => n * Number(d), item);
  return `${count} B × ${shape.filter((d) => !/^\d+$/.test(d)).map((d) => (/\W/.test(d) ? `(${d})` : d)).join(" × ")}`;
}

/** `text` after an opening bracket, up to its closing one, split at its top-level commas. */
function insideOf(text) {
  const parts = [];
  let [depth, part] = [0, ""];
  for (const c of text) {
    if ("([{".includes(c)) depth += 1;
    if (")]}".includes(c)) {
      if (depth === 0) break;
      depth -= 1;
    }
    if (c === "," && depth === 0) {
      parts.push(part.trim());
      part = "";
    } else part += c;
  }
  if (part.trim()) parts.push(part.trim());
  return parts;
}

const unquoted = (text) => text.replace(/"(\w+)"/g, "$1").replace(/T\.int64\((\d+)\)/g, "$1");

/**
 * What a function's text says of its names: symbols, tensors, buffers, loops and block axes.
 * @param {string[]} lines the function's lines
 * @returns {Map<string, {kind: string, text: string, line: number}>}
 */
export function definitions(lines) {
  const found = new Map();
  const put = (name, kind, text, line) => { if (!found.has(name)) found.set(name, { kind, text, line }); };
  const typed = (kind, text) => {
    const at = /(?:R\.Tensor|T\.Buffer|match_buffer|alloc_buffer)\(/.exec(text);
    if (!at) return unquoted(text);
    const args = insideOf(text.slice(at.index + at[0].length));
    const shape = args.find((a) => a.startsWith("("));
    const dtype = args.map((a) => /^(?:dtype=)?"(\w+)"$/.exec(a)?.[1]).find((d) => d in BYTES);
    if (!shape) return unquoted(text);
    const dims = insideOf(shape.slice(1)).map(unquoted);
    const scope = args.map((a) => /^scope="(.+)"$/.exec(a)?.[1]).find(Boolean);
    return `${kind} ${tupleText(dims)} ${dtype ?? "?"}\n${sizeText(dims, dtype)}${scope ? `\nscope ${scope}` : ""}`;
  };
  lines.forEach((line, i) => {
    let m;
    if ((m = /^\s*(\w+) = T\.int64\(\)/.exec(line))) put(m[1], "symbol", "symbol, int64", i);
    else if ((m = /^\s*(\w+) = (T\.(?:match_buffer|sblock_alloc_buffer|alloc_buffer)\(.*)$/.exec(line))) put(m[1], "buffer", typed("buffer", m[2]), i);
    else if ((m = /^\s*([\w, ]+) = T\.axis\.remap\("(\w+)", \[(.*)\]\)/.exec(line))) {
      const [names, bound] = [m[1].split(", "), insideOf(m[3])];
      names.forEach((n, j) => put(n, "axis", `${m[2][j] === "R" ? "reduction" : "spatial"} axis, bound to ${bound[j]}`, i));
    } else if ((m = /^\s*(\w+) = T\.axis\.(\w+)\((.*)\)$/.exec(line))) {
      const args = insideOf(m[3]).map(unquoted);
      put(m[1], "axis", `${m[2] === "reduce" ? "reduction" : m[2]} axis over ${args[0]}, bound to ${args[1] ?? ""}`, i);
    } else if ((m = /^\s*for ([\w, ]+) in (T\.(\w+)|range)\((.*)\):/.exec(line))) {
      const [names, ends] = [m[1].split(", "), insideOf(m[4]).map(unquoted)];
      const how = m[3] && m[3] !== "grid" && m[3] !== "serial" ? `${m[3]} loop` : "loop";
      names.forEach((n, j) => put(n, "loop", `${how} over ${names.length > 1 ? ends[j] : ends.slice(0, 2).join(" to ")}`, i));
    } else if ((m = /^\s*(\w+): (R\.\w.*?)(?: = (.*)|,)$/.exec(line))) put(m[1], "value", typed(m[3] ? "tensor" : "parameter", m[2]), i);
    else if (/^\s*def /.test(line)) {
      for (const p of line.matchAll(/(\w+): ((?:T\.Buffer|T\.handle|R\.\w+|T\.\w+)(?:\((?:[^()]|\([^()]*\))*\))?)/g)) put(p[1], "parameter", typed("parameter", p[2]), i);
    }
  });
  return found;
}
