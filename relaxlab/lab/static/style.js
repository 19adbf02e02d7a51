// The look of all views: colour tokens for light and dark, and the parts that views share.

export const CSS = `
:host { all: initial; display: block; color-scheme: light dark; }
:host(.full) { position: fixed; inset: 0; width: 100vw; height: 100vh; overflow: auto; --room: calc(100vh - 14em); }
:host(.full) .root { min-height: 100%; border: none; border-radius: 0; }
.root {
  --bg: light-dark(#ffffff, #16191d); --fg: light-dark(#1b1f24, #e2e6ea);
  --panel: light-dark(#f6f8fa, #1d2126); --muted: light-dark(#57606a, #a0a8b2);
  --line: light-dark(#d5dae0, #343a42); --accent: light-dark(#0a58ca, #7ab0ff);
  --accent-bg: light-dark(#dbe9ff, #1f3556);
  --add: light-dark(#11662c, #6fd58b); --add-bg: light-dark(#dff6e4, #15321f);
  --del: light-dark(#a8172b, #ff9aa2); --del-bg: light-dark(#fde5e7, #41191e);
  --warn: light-dark(#7a4b00, #f0c36b); --warn-bg: light-dark(#fff2d6, #3a2c10);
  --keyword: light-dark(#8a1f9c, #d79bf0); --string: light-dark(#0b5e2b, #8fd19e);
  --number: light-dark(#0a4fa8, #8fc1ff); --comment: light-dark(#5d6670, #98a1ab);
  --name: light-dark(#7a3e00, #f0b97a); --find-bg: light-dark(#ffe58a, #5c4b00);
  --group-0: light-dark(#cfe3ff, #1f3d66); --group-1: light-dark(#d6f3d6, #1d4426);
  --group-2: light-dark(#ffe3c2, #5a3a12); --group-3: light-dark(#f3d9fa, #4a2457);
  --group-4: light-dark(#d3f4f4, #124a4c); --group-5: light-dark(#ffd9dc, #5c2228);
  --group-6: light-dark(#eeeec2, #484811); --group-7: light-dark(#e0dcff, #342e6b);
  --group-8: light-dark(#f7dfd0, #553322); --group-9: light-dark(#dde3e8, #3a434c);
  --mono: ui-monospace, "SFMono-Regular", Menlo, Consolas, "Liberation Mono", monospace;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  background: var(--bg); color: var(--fg); font: 13px/1.45 var(--sans);
  border: 1px solid var(--line); border-radius: 6px; padding: 10px; overflow: clip;
  container-type: inline-size;
}
.root *, .root *::before { box-sizing: border-box; }
.root [hidden] { display: none !important; }
.root :focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
h3 { font-size: 14px; margin: 0 0 6px; font-weight: 600; }
h4 { font-size: 13px; margin: 8px 0 4px; font-weight: 600; }
p { margin: 4px 0; }
a { color: var(--accent); }
code, .mono { font-family: var(--mono); font-size: 12px; }
.muted { color: var(--muted); }
.row { display: flex; gap: 8px; align-items: center; flex-wrap: wrap; }
.grow { flex: 1 1 0; min-width: 0; }
.split { display: grid; gap: 10px; grid-template-columns: minmax(200px, 270px) minmax(0, 1fr); }
.halves { display: grid; gap: 10px; grid-template-columns: repeat(2, minmax(0, 1fr)); }
@container (max-width: 620px) { .split, .halves { grid-template-columns: minmax(0, 1fr); } }
.panel { border: 1px solid var(--line); border-radius: 5px; background: var(--panel); padding: 6px 8px; overflow-wrap: anywhere; }
.scroll { overflow: auto; max-height: max(30em, var(--room, 0px)); position: relative; }
.strip { display: flex; justify-content: flex-end; gap: 4px; margin: -6px -6px 3px; }
.strip button { min-height: 0; padding: 0 5px; line-height: 16px; border-color: transparent; background: none; color: var(--muted); }
.note { background: var(--warn-bg); color: var(--warn); border-radius: 4px; padding: 4px 8px; margin: 0 0 6px; }
.error { background: var(--del-bg); color: var(--del); border-radius: 4px; padding: 6px 8px; margin: 0 0 6px;
  font: 12px/1.45 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; }
button, select, input { font: inherit; color: inherit; }
button, select, input:not([type=range]):not([type=checkbox]) {
  background: var(--panel); border: 1px solid var(--line); border-radius: 4px; padding: 2px 8px; min-height: 26px; }
button { cursor: pointer; }
button:hover:not(:disabled, [aria-disabled=true]) { border-color: var(--accent); }
button:disabled, button[aria-disabled=true] { color: var(--muted); cursor: default; opacity: .65; }
button[aria-pressed=true], [role=tab][aria-selected=true] { background: var(--accent-bg); border-color: var(--accent); }
button.link { text-align: left; background: none; border: none; padding: 0; min-height: 0; color: var(--accent); text-decoration: underline; }
input[type=range] { accent-color: var(--accent); min-width: 80px; }
input[type=checkbox] { accent-color: var(--accent); }
label { display: inline-flex; gap: 5px; align-items: center; }
table { border-collapse: collapse; font-size: 12px; }
th, td { text-align: left; padding: 2px 8px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; color: var(--muted); position: sticky; top: 0; background: var(--bg); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.tabs { display: flex; gap: 4px; flex-wrap: wrap; border-bottom: 1px solid var(--line); margin-bottom: 8px; padding-bottom: 6px; }
.stepper { margin-bottom: 6px; }
.stepper input { flex: 1 1 120px; }
.stepper output { font-variant-numeric: tabular-nums; color: var(--muted); min-width: 5em; }
.list { list-style: none; margin: 0; padding: 0; }
.list [role=option] { padding: 2px 8px; border-radius: 4px; cursor: pointer; display: flex; gap: 6px; align-items: baseline; overflow-wrap: anywhere; }
.list [role=option]:hover { background: var(--panel); }
.list [role=option][aria-selected=true] { background: var(--accent-bg); }
.symbols { margin: 4px 0 8px; }
.symbols label { font-family: var(--mono); font-size: 12px; }
.symbols input[type=number] { width: 6.5em; }
.script { font: 12px/18px var(--mono); tab-size: 4; background: var(--bg); border: 1px solid var(--line); border-radius: 5px; }
.script .chunk { min-width: max-content; }
.script .ln { display: flex; height: 18px; white-space: pre; padding-right: 12px; }
.script .ln > .no { flex: none; width: 4.2em; padding-right: 8px; text-align: right; color: var(--muted); user-select: none; }
.script .ln > .mark { flex: none; width: 1.4em; user-select: none; text-align: center; }
.script .ln.add { background: var(--add-bg); } .script .ln.add > .mark { color: var(--add); }
.script .ln.del { background: var(--del-bg); } .script .ln.del > .mark { color: var(--del); }
.script .ln.rewrapped { background: var(--panel); }
.script .add .changed { background: color-mix(in srgb, var(--add) 28%, transparent); border-radius: 2px; }
.script .ln .changed { color: var(--fg); } .script .del .changed { background: color-mix(in srgb, var(--del) 28%, transparent); border-radius: 2px; }
.script .ln.hot { background: var(--warn-bg); }
.script .ln.linked { background: var(--accent-bg); }
.script .ln.fold { color: var(--muted); background: var(--panel); }
.script .t-keyword { color: var(--keyword); } .script .t-string { color: var(--string); }
.script .t-number { color: var(--number); } .script .t-comment { color: var(--comment); font-style: italic; }
.script .t-module { color: var(--muted); } .script .t-def { color: var(--name); font-weight: 600; }
.script .t-link { color: var(--accent); text-decoration: underline dotted; cursor: pointer; }
.script .t-name { cursor: pointer; }
.script .lit { background: var(--find-bg); border-radius: 2px; box-shadow: 0 0 0 1px var(--warn); }
.tip { position: fixed; z-index: 10; max-width: 34em; background: var(--panel); color: var(--fg); border: 1px solid var(--line);
  border-radius: 5px; padding: 4px 8px; font: 12px/1.45 var(--sans); box-shadow: 0 2px 10px #0003; pointer-events: none; white-space: pre-line; }
svg { display: block; max-width: 100%; }
svg text { font: 11px var(--sans); fill: var(--fg); }
.wide-left { display: grid; gap: 10px; grid-template-columns: minmax(0, 1fr) minmax(220px, 300px); }
@container (max-width: 760px) { .wide-left { grid-template-columns: minmax(0, 1fr); } }
.decided { display: grid; gap: 10px; grid-template: "graph decision" auto "graph facts" 1fr / minmax(0, 1fr) minmax(220px, 300px); align-items: start; }
.decided > :nth-child(1) { grid-area: decision; } .decided > :nth-child(2) { grid-area: graph; } .decided > :nth-child(3) { grid-area: facts; }
@container (max-width: 900px) { .decided { grid-template: "decision" "graph" "facts" / minmax(0, 1fr); } .decided > :nth-child(1) { min-height: 7.5em; } }
.made { color: var(--add); } .refused { color: var(--del); }
.decisions li { padding: 1px 4px; display: flex; gap: 8px; }
.open { color: var(--warn); }
.badge { display: inline-block; padding: 0 5px; margin-left: 3px; border: 1px solid currentColor; border-radius: 8px; font: 10px/15px var(--sans); }
.wide-left.half { grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); }
@container (max-width: 760px) { .wide-left.half { grid-template-columns: minmax(0, 1fr); } }
.values [role=option], .values-head { display: grid; gap: 6px; grid-template-columns: minmax(4em, 1fr) minmax(6em, 1.2fr) minmax(9em, 2fr) minmax(6em, 1.1fr) 5em minmax(2em, 4.6em); }
.values, .values-head { min-width: 36em; } /* below that names and types would be broken inside words */
.values-head { padding: 0 8px 3px; border-bottom: 1px solid var(--line); color: var(--muted); font-weight: 600; position: sticky; top: -6px; background: var(--panel); }
.values .made-up { font-style: italic; color: var(--muted); }
.values .what { color: var(--number); } .values .amount, .values-head .amount { text-align: right; }
.factlist li { margin: 3px 0; overflow-wrap: anywhere; } .remedy { margin-left: 1.2em; }
.nowrap { white-space: nowrap; }
.stack > * + * { margin-top: 8px; }
.chart { width: 100%; height: auto; } .chart text { font-size: 12px; fill: var(--muted); }
.chart .gridline { stroke: var(--line); } .chart .peak { stroke: var(--del); stroke-width: 2; } .chart text.peak { paint-order: stroke; stroke: var(--bg); stroke-width: 4px; fill: var(--del); }
.chart .block { cursor: pointer; } .chart .block rect { stroke: var(--bg); stroke-width: 1; } .chart .block text { fill: var(--fg); pointer-events: none; }
.chart .block.under rect { stroke: var(--warn); stroke-width: 3; stroke-dasharray: 4 2; }
.chart .block.chosen rect { stroke: var(--accent); stroke-width: 3; } .chart .block:focus-visible { outline: none; }
path.line { fill: none; stroke-width: 2; }
.facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 10px; margin: 4px 0; }
.facts dt { color: var(--muted); } .facts dd { margin: 0; overflow-wrap: anywhere; }
ul.plain { list-style: none; margin: 0; padding: 0; }
pre.wrap { white-space: pre-wrap; overflow-wrap: anywhere; margin: 4px 0; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 14px; margin: 0 0 6px; padding: 0; }
.legend li { display: flex; gap: 5px; align-items: center; }
.swatch { display: inline-block; min-width: 22px; padding: 0 4px; border: 1px solid var(--line); border-radius: 3px; font: 10px/16px var(--sans); text-align: center; }
.graph svg { margin: 0 auto; }
.graph { border: 1px solid var(--line); border-radius: 5px; margin-top: 6px; resize: vertical; }
.graph .edge { fill: none; stroke: var(--muted); stroke-width: 1; opacity: .65; }
.graph .edge.lit { stroke: var(--accent); stroke-width: 2; opacity: 1; }
.graph .node, .graph .group { cursor: pointer; }
.graph .node rect { stroke: var(--muted); stroke-width: 1; }
.graph .node.library rect { stroke-dasharray: 5 2; } .graph .node.check rect { stroke-dasharray: 2 2; }
.graph .node.missed { opacity: .25; }
.graph .node.strong rect { stroke: var(--fg); stroke-width: 2; } .graph .node.faint { opacity: .45; }
.graph .node.chosen rect { stroke: var(--accent); stroke-width: 3; }
.graph .group rect { fill: var(--panel); stroke: var(--muted); stroke-dasharray: 6 3; }
.graph .group.open rect { fill: none; }
.graph text.small { font-size: 10px; fill: var(--muted); } .graph text.tag { font-size: 8px; fill: var(--muted); paint-order: stroke; stroke: var(--bg); stroke-width: 3px; }
.graph g:focus-visible { outline: none; } .graph g:focus-visible > rect { stroke: var(--accent); stroke-width: 3; }
.visually-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
`;
