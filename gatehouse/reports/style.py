"""The look of a report: type, spacing and colours, light and dark, wide and narrow, on screen and on paper.

The colours are data, so that a test can hold their contrast against WCAG's level AA.

The four colours of series (blue, vermilion, green, purple) keep apart under the common forms of colour blindness, after
Okabe and Ito; dashes tell them apart without any colour. A caption has no width of its own, so it is as wide as
its chart. A box that scrolls has a shadow at each side where more is.
"""

LIGHT = {
    "ink": "#17202b",
    "soft": "#56626f",
    "line": "#e3e8ee",
    "axis": "#7d8998",
    "page": "#ffffff",
    "tint": "#f6f8fa",
    "good": "#0a6b4c",
    "good-tint": "#e9f5f0",
    "bad": "#b42318",
    "bad-tint": "#fdf0ee",
    "warn": "#855600",
    "warn-tint": "#fcf5e5",
    "a": "#0067b1",
    "b": "#c44e00",
    "c": "#008060",
    "d": "#9b4f96",
}
DARK = {
    "ink": "#e6eaf0",
    "soft": "#a3aebc",
    "line": "#2b343f",
    "axis": "#74808f",
    "page": "#12161c",
    "tint": "#1a2028",
    "good": "#58cda0",
    "good-tint": "#12291f",
    "bad": "#ff9a90",
    "bad-tint": "#331917",
    "warn": "#e9ba62",
    "warn-tint": "#2e2411",
    "a": "#5cb0ff",
    "b": "#ff9a52",
    "c": "#4fd0a5",
    "d": "#d596d0",
}


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


_COLOURS = f"""
:root {{ color-scheme: light dark; {_variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}
@media print {{ :root {{ color-scheme: light; {_variables(LIGHT)} }} }}
"""

_RULES = """
* { box-sizing: border-box; }
[hidden] { display: none !important; }
html { scroll-padding-top: 60px; }
body { margin: 0; background: var(--page); color: var(--ink); -webkit-text-size-adjust: 100%;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
.page { max-width: 976px; margin: 0 auto; padding: 32px 32px 64px; }
main { outline: none; min-width: 0; }
a { color: var(--a); text-decoration-thickness: 1px; text-underline-offset: 4px; }
a:hover { text-decoration-thickness: 2px; }
:focus-visible { outline: 2.5px solid var(--a); outline-offset: 2px; border-radius: 3px; }
.skip { position: absolute; left: 12px; top: -60px; z-index: 9; padding: 10px 16px; border-radius: 0 0 8px 8px;
  background: var(--ink); color: var(--page); } .skip:focus { top: 0; }
.contents { position: sticky; top: 0; z-index: 6; margin: 16px -4px 0; font-size: 14px; background: var(--page);
  border-bottom: 1px solid var(--line); overflow-x: auto; }
.contents ul { list-style: none; margin: 0; padding: 6px 4px; display: flex; gap: 2px 18px; }
.contents li { flex: none; }
.contents a { display: inline-block; padding: 3px 0; text-decoration: none; overflow-wrap: anywhere; }
.contents a:hover { text-decoration: underline; } .contents small { color: var(--soft); }
h1 { font-size: 26px; font-weight: 650; line-height: 1.2; margin: 0; letter-spacing: -0.015em;
  overflow-wrap: anywhere; }
h2 { font-size: 17px; font-weight: 650; margin: 42px 0 8px; letter-spacing: -0.005em;
  overflow-wrap: anywhere; }
p { margin: 6px 0; max-width: 78ch; overflow-wrap: anywhere; }
.sub, figcaption, .note { color: var(--soft); }
.sub { margin-top: 6px; } .note { font-size: 13.5px; }
.verdict { margin: 22px 0 8px; padding: 14px 18px; border-radius: 8px; background: var(--tint);
  border: 1px solid var(--line); }
.verdict b { display: flex; align-items: center; gap: 9px; font-size: 17px; }
.verdict b span:last-child { display: inline-block; }
.verdict b span:last-child::first-letter { text-transform: uppercase; }
.sign { display: inline-flex; flex: none; width: 21px; height: 21px; border-radius: 50%; align-items: center;
  justify-content: center; font-size: 13px; line-height: 1; color: var(--page); background: var(--soft); }
.verdict p { margin: 5px 0 0 30px; } .verdict ul { margin: 6px 0 0 30px; padding-left: 17px; }
.verdict li { margin: 2px 0; overflow-wrap: anywhere; }
.pass { background: var(--good-tint); border-color: transparent; } .pass b { color: var(--good); }
.pass .sign { background: var(--good); }
.fail, .refused { background: var(--bad-tint); border-color: transparent; } .fail b, .refused b { color: var(--bad); }
.fail .sign, .refused .sign { background: var(--bad); }
.verdict.warn { background: var(--warn-tint); border-color: transparent; } .warn b { color: var(--warn); }
.verdict.warn .sign { background: var(--warn); }
.aside { margin: 8px 0; padding: 10px 18px; border-radius: 8px; border: 1px solid var(--line); font-size: 14px; }
.aside b { display: flex; align-items: center; gap: 9px; } .aside ul { margin: 4px 0 0 30px; padding-left: 17px; }
.aside li { margin: 2px 0; overflow-wrap: anywhere; } .aside.warn .sign { background: var(--warn); }
.aside.warn { background: var(--warn-tint); border-color: transparent; }
.aside.unchecked { background: var(--tint); border-style: dashed; border-color: var(--axis); }
.scroll { overflow-x: auto; margin: 10px 0; background: linear-gradient(90deg, var(--page) 50%, transparent) local,
  linear-gradient(-90deg, var(--page) 50%, transparent) 100% 0 local, linear-gradient(90deg, var(--axis), transparent),
  linear-gradient(-90deg, var(--axis), transparent) 100% 0; background-repeat: no-repeat;
  background-size: 36px 100%, 36px 100%, 7px 100%, 7px 100%; } figure .scroll { margin: 0; }
table { border-collapse: collapse; font-size: 14px; line-height: 1.4; min-width: 46%; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 12.5px; white-space: nowrap;
  border-bottom: 1.5px solid var(--axis); }
td { border-bottom: 1px solid var(--line); }
th, td { padding: 6px 12px; vertical-align: top; overflow-wrap: break-word; }
.wide { font-size: 12.5px; min-width: 100%; } .wide th { font-size: 12px; } .wide th, .wide td { padding: 5px 8px; }
th:first-child, td:first-child { padding-left: 2px; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } td.n { white-space: nowrap; }
th[scope="row"] { color: var(--ink); border-bottom: 1px solid var(--line); font-weight: 500; font-size: inherit; }
td.prose { min-width: 240px; } td small { display: block; color: var(--soft); font-size: 11px;
  font-weight: 400; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.best { font-weight: 700; } td.good { color: var(--good); } td.bad, tr.bad td { color: var(--bad); }
td.warn, tr.warn td { color: var(--warn); } td.soft, tr.soft td { color: var(--soft); }
tr.good td { color: var(--good); }
tr.bad td { background: var(--bad-tint); }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 4px 22px; margin: 10px 0; font-size: 14px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
code, .mono { font: 12.5px/1.7 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.figures { display: flex; flex-wrap: wrap; gap: 14px 12px; } figure { margin: 10px 0; min-width: 0; }
figcaption { font-size: 13px; line-height: 1.45; margin-top: 6px; contain: inline-size; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px; margin: 0 0 6px; contain: inline-size; }
.legend span { display: inline-flex; align-items: center; gap: 7px; } .legend svg { flex: none; }
.rows { width: 720px; max-width: 100%; font-size: 12.5px; line-height: 1.35; }
.row { display: grid; grid-template-columns: minmax(0, 34%) minmax(0, 1fr) 62px; column-gap: 10px;
  min-height: 22px; }
.row span { align-self: center; text-align: right; overflow-wrap: anywhere; } .row .value { color: var(--soft);
  font-variant-numeric: tabular-nums; }
.lane { width: 100%; align-self: stretch; contain: size; overflow: visible; max-width: none; }
.lane .bar { stroke: var(--a); stroke-width: 14; } .lane .bar.bad { stroke: var(--bad); }
.lane .grid { stroke-width: 1; }
.copy { font: 12.5px/1.6 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  color: var(--ink); background: var(--tint); border: 1px solid var(--line); border-radius: 4px; padding: 1px 6px;
  user-select: all; -webkit-user-select: all; overflow-wrap: anywhere; }
.folded { margin: 12px 0; } .folded > summary { color: var(--a); font-size: 14px; }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; margin: 16px 0; }
.tiles div { display: flex; flex-direction: column-reverse; padding: 10px 16px; min-width: 96px; flex: 0 1 auto;
  background: var(--tint); border: 1px solid var(--line); border-radius: 8px; }
.tiles dd { white-space: nowrap; }
.tiles dd { font-size: 21px; font-weight: 650; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tiles dt { font-size: 12.5px; } .tiles .bad dd { color: var(--bad); } .tiles .warn dd { color: var(--warn); }
.chip { display: inline-flex; align-items: center; gap: 6px; font-weight: 600; font-size: 13px; white-space: nowrap; }
.chip .sign { width: 17px; height: 17px; font-size: 11px; } .chip.fail, .chip.warn, .chip.pass { background: none; }
.chip.fail { color: var(--bad); } .chip.warn { color: var(--warn); } .chip.pass { color: var(--good); }
.chip.warn .sign { background: var(--warn); }
.filters { position: sticky; top: 0; z-index: 5; display: flex; flex-wrap: wrap; gap: 8px 14px; align-items: center;
  margin: 20px -12px 0; padding: 10px 12px; background: var(--page); border-bottom: 1px solid var(--line);
  font-size: 13.5px; color: var(--soft); }
.filters label { display: inline-flex; align-items: center; gap: 7px; min-width: 0; }
.filters .search { flex: 1 1 210px; } .filters .search input { flex: 1; min-width: 0; }
.filters input, .filters select, .filters button { font: inherit; color: var(--ink); background: var(--page);
  border: 1px solid var(--axis); border-radius: 6px; padding: 5px 9px; min-height: 32px; max-width: 100%; }
.filters input::placeholder { color: var(--soft); opacity: 1; }
.filters select { min-width: 0; max-width: 170px; } .filters button { cursor: pointer; }
.filters button:hover { background: var(--tint); } .buttons { display: inline-flex; gap: 6px; }
.filters output { min-width: 96px; font-variant-numeric: tabular-nums; } .filters output:empty { display: none; }
.none { color: var(--soft); font-style: italic; } .empty > .scroll { display: none; }
.entries { width: 100%; } .entries > tbody > tr > td { border-bottom: 0; }
.entries td[data-l="where"] { min-width: 156px; } .entries td[data-l="rule"] { min-width: 118px; }
.entries td[data-l="expected"] { min-width: 170px; overflow-wrap: anywhere; }
.entries td[data-l="rows"] { white-space: nowrap; font-variant-numeric: tabular-nums; }
.entries tbody { border-bottom: 1px solid var(--line); scroll-margin-top: 16px; }
.entries tbody:target { background: var(--tint); }
.entries .more > td { padding: 0 12px 8px 2px; }
.more .note { max-width: none; margin: 0 0 4px; line-height: 1.8; }
.more summary { color: var(--a); font-size: 13.5px; }
summary { cursor: pointer; min-height: 24px; } details details .scroll { margin-bottom: 4px; }
.card { border: 1px solid var(--line); border-radius: 8px; margin: 8px 0; scroll-margin-top: 16px; }
.card > summary { display: grid; grid-template-columns: 10px minmax(0, 1fr) 84px 84px 104px 162px 106px; gap: 4px 14px;
  align-items: center; padding: 9px 14px; list-style: none; border-radius: 8px; font-size: 13px; color: var(--soft); }
.card > summary::-webkit-details-marker { display: none; }
.card > summary::before { content: ""; width: 7px; height: 7px; border: solid var(--soft); border-width: 0 2px 2px 0;
  transform: rotate(-45deg); } .card[open] > summary::before { transform: rotate(45deg) translate(-2px, -2px); }
.card > summary:hover { background: var(--tint); } .card[open] > summary { border-bottom: 1px solid var(--line);
  border-radius: 8px 8px 0 0; background: var(--tint); }
.card h3 { font-size: 14.5px; font-weight: 600; color: var(--ink); margin: 0; overflow-wrap: anywhere; }
.card .body { padding: 12px 16px 16px; } .card .body:empty { display: none; }
.card .found { list-style: none; margin: 2px 0 12px; padding: 0; font-size: 14px; }
.card .found li { display: flex; flex-wrap: wrap; gap: 2px 10px; padding: 3px 0; overflow-wrap: anywhere; }
.sides { display: flex; flex-wrap: wrap; gap: 12px 32px; align-items: flex-start; }
.sides > * { min-width: 0; max-width: 100%; margin: 4px 0; } .sides table { min-width: 260px; }
.body table { font-size: 13px; } .body th, .body td { padding: 4px 10px; }
.body th:first-child { padding-left: 2px; font-weight: 400; }
h4 { font-size: 13px; font-weight: 600; margin: 0 0 2px; color: var(--soft); }
.long { width: max-content; max-width: 260px; overflow-wrap: anywhere; white-space: normal; }
.marks { display: flex; gap: 12px; } .distinct { font-variant-numeric: tabular-nums; white-space: nowrap; }
.nulls, .share { display: flex; align-items: center; gap: 8px; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.nulls { flex-wrap: wrap; } .odd { color: var(--warn); font-weight: 600; white-space: nowrap; }
.meter { width: 60px; height: 8px; flex: none; border-radius: 2px; overflow: hidden; background: var(--line);
  fill: var(--a); }
.meter .tick { fill: var(--b); stroke: var(--page); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.values .meter { width: 84px; } .spark { width: 84px; height: 24px; }
.values .scroll { margin: 0; }
.values td:first-child, .values th[scope="row"] { white-space: normal; overflow-wrap: anywhere; max-width: 280px; }
svg { max-width: 100%; height: auto; display: block; } figure svg { max-width: none; } svg.clip { overflow: hidden; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .label { fill: var(--ink); } svg .grid { stroke: var(--line); } svg .axis { stroke: var(--axis); }
svg .halo { paint-order: stroke; stroke: var(--page); stroke-width: 5px; stroke-linejoin: round; }
svg .grid { fill: none; }
svg .series { fill: none; stroke-width: 2; stroke-linejoin: round; } svg .dashed { stroke-dasharray: 3 4; }
svg .s0 { stroke: var(--a); stroke-width: 2.4; } svg .s1 { stroke: var(--b); stroke-dasharray: 8 3; }
svg .s2 { stroke: var(--c); stroke-dasharray: 2.5 2.5; } svg .s3 { stroke: var(--d); stroke-dasharray: 8 3 2 3; }
svg .ref { stroke: var(--soft); stroke-width: 1.3; } svg .area { stroke: none; opacity: 0.14; }
svg .area.s0 { fill: var(--a); } svg .area.s1 { fill: var(--b); } svg .area.s2 { fill: var(--c); }
svg .area.s3 { fill: var(--d); }
svg .f0 { fill: var(--a); } svg .f1 { fill: var(--b); } svg .f2 { fill: var(--c); } svg .f3 { fill: var(--d); }
svg .f-bad { fill: var(--bad); } svg .l-bad { stroke: var(--bad); } svg .f-soft { fill: var(--axis); }
svg .range { stroke-width: 1.6; stroke-dasharray: none; opacity: 0.75; }
svg .hollow { fill: var(--page); stroke-width: 1.8; stroke-dasharray: none; }
svg .dots { stroke-linecap: round; stroke-width: 6; stroke-dasharray: none; fill: none; }
svg .small { stroke-width: 3; } svg .faint { opacity: 0.4; } svg .thin { stroke-width: 1.3; stroke-dasharray: none; }
svg .bad { stroke: var(--bad); } svg .soft { stroke: var(--axis); }
svg .own { fill: var(--a); fill-opacity: 0.28; stroke: var(--a); stroke-width: 1.2; stroke-linejoin: round; }
svg .key { stroke: var(--a); stroke-width: 2.4; } .spark .own { stroke-width: 1; vector-effect: non-scaling-stroke; }
svg .other { fill: none; stroke: var(--b); stroke-width: 1.8; stroke-dasharray: 6 3; }
@media (max-width: 1023px) { .filters { position: static; } }
@media (min-width: 1024px) { .with-contents { max-width: 1180px; display: grid; column-gap: 40px;
    grid-template-columns: 160px minmax(0, 1fr); } .with-contents > header, .with-contents > main { grid-column: 2; }
  .contents { grid-area: 1 / 1 / span 2; top: 24px; align-self: start; margin: 4px 0 0; border: 0; z-index: 1;
    max-height: calc(100vh - 48px); overflow-y: auto; }
  .contents ul { flex-direction: column; } }
@media (max-width: 640px) { .page { padding: 20px 16px 48px; } h1 { font-size: 22px; } h2 { margin-top: 32px; }
  dl { grid-template-columns: minmax(0, 1fr); gap: 0; } dd { margin-bottom: 7px; } .tiles { gap: 8px; }
  .tiles dd { margin: 0; } .tiles div { padding: 8px 12px; min-width: 76px; flex: 1 1 auto; }
  .verdict, .aside { padding: 12px 14px; } .aside ul { margin-left: 0; } .verdict p, .verdict ul { margin-left: 0; }
  .filters { margin: 16px 0 0; padding: 8px 0; gap: 8px; }
  .filters .search { flex-basis: 100%; } .filters select { max-width: 104px; }
  .filters input, .filters select { font-size: 16px; padding: 4px 8px; } .buttons { flex: 1; }
  .buttons button { flex: 1; padding: 4px; }
  figure svg.fits { max-width: 100%; } svg.fits text { font-size: 14.5px; }
  .entries, .entries > tbody, .entries > tbody > tr { display: block; } .entries > thead { position: absolute;
    width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
  .entries > tbody { border: 1px solid var(--line); border-radius: 8px; margin: 8px 0; padding: 8px 12px; }
  .entries > tbody > tr > td { display: grid; grid-template-columns: 78px minmax(0, 1fr); padding: 2px 0;
    overflow-wrap: anywhere; white-space: normal; }
  .entries td[data-l]::before { content: attr(data-l); color: var(--soft); font-size: 13px; }
  .entries > tbody > .more > td { display: block; padding: 4px 0 0; }
  .told > thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .told > tbody > tr { display: flex; flex-wrap: wrap; gap: 2px 14px; padding: 7px 2px;
    border-bottom: 1px solid var(--line); }
  .told > tbody > tr > * { padding: 0; border: 0; min-width: 0; overflow-wrap: anywhere; }
  .told .n[data-l]::before { content: attr(data-l) " "; color: var(--soft); font-size: 13px; }
  .told > tbody > tr > .prose { flex: 1 0 100%; }
  .card > summary { grid-template-columns: 10px minmax(0, 1fr) auto minmax(84px, auto); gap: 3px 10px;
    padding: 9px 12px; }
  .card > summary > h3 { grid-area: 1 / 2 / 1 / 4; } .card > summary > .spark { grid-area: 1 / 4; justify-self: end; }
  .card > summary > .kind { display: none; } .card > summary > .distinct { grid-area: 2 / 4; text-align: right; }
  .card > summary > .nulls { grid-area: 2 / 2; } .card > summary > .marks { grid-area: 2 / 3; }
  .card .body { padding: 10px 12px 14px; } .body th, .body td { padding: 4px 7px; } .sides table { min-width: 0; }
  .marks { gap: 6px; } .marks .chip { font-size: 0; gap: 0; } }
@media print { .page { max-width: none; padding: 0; display: block; } h2 { break-after: avoid; }
  .filters, .contents, .skip { display: none !important; } .scroll { overflow: visible; background: none; }
  table { font-size: 12px; } th, td { padding: 4px 6px; overflow-wrap: anywhere; } .entries td[data-l] { min-width: 0; }
  figure, tr, .verdict, .entries tbody, .card > summary { break-inside: avoid; } .card .body { break-before: avoid; }
  a { color: inherit; text-decoration: none; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""

STYLE = _COLOURS + _RULES
