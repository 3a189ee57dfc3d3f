"""The look of a report: type, spacing and colours, light and dark, on screen and on paper.

The four colours of series (blue, vermilion, green, purple) keep apart under the common forms of colour blindness, after
Okabe and Ito; dashes tell them apart without any colour. A caption has no width of its own, so it is as wide as
its chart.
"""

STYLE = """
:root { color-scheme: light dark; --ink: #17202b; --soft: #5c6978; --line: #e3e8ee; --axis: #9aa6b4; --page: #ffffff;
  --tint: #f6f8fa; --good: #0a6b4c; --good-tint: #e9f5f0; --bad: #b42318; --bad-tint: #fdf0ee; --warn: #8a5a00;
  --warn-tint: #fcf5e5; --a: #0067b1; --b: #cf5200; --c: #008a65; --d: #9b4f96; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9ba7b6; --line: #2b343f; --axis: #64707f;
  --page: #12161c; --tint: #1a2028; --good: #58cda0; --good-tint: #12291f; --bad: #ff8f84; --bad-tint: #331917;
  --warn: #e9ba62; --warn-tint: #2e2411; --a: #5cb0ff; --b: #ff9a52; --c: #4fd0a5; --d: #d596d0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); -webkit-text-size-adjust: 100%;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 976px; margin: 0 auto; padding: 32px 32px 64px; }
h1 { font-size: 26px; font-weight: 650; line-height: 1.2; margin: 0; letter-spacing: -0.015em;
  overflow-wrap: anywhere; }
h2 { font-size: 17px; font-weight: 650; margin: 42px 0 8px; letter-spacing: -0.005em; }
p { margin: 6px 0; max-width: 78ch; overflow-wrap: anywhere; }
.sub, figcaption, .note { color: var(--soft); }
.sub { margin-top: 6px; } .note { font-size: 13.5px; }
.verdict { margin: 22px 0 8px; padding: 14px 18px; border-radius: 8px; background: var(--tint);
  border: 1px solid var(--line); }
.verdict b { display: flex; align-items: center; gap: 9px; font-size: 17px; }
.verdict b { text-transform: capitalize; }
.sign { display: inline-flex; width: 21px; height: 21px; border-radius: 50%; align-items: center;
  justify-content: center; font-size: 13px; line-height: 1; color: var(--page); background: var(--soft); }
.verdict p { margin: 5px 0 0 30px; } .verdict ul { margin: 6px 0 0 30px; padding-left: 17px; }
.verdict li { margin: 2px 0; overflow-wrap: anywhere; }
.pass { background: var(--good-tint); border-color: transparent; } .pass b { color: var(--good); }
.pass .sign { background: var(--good); }
.fail, .refused { background: var(--bad-tint); border-color: transparent; } .fail b, .refused b { color: var(--bad); }
.fail .sign, .refused .sign { background: var(--bad); }
.verdict.warn { background: var(--warn-tint); border-color: transparent; } .warn b { color: var(--warn); }
.verdict.warn .sign { background: var(--warn); }
.scroll { overflow-x: auto; margin: 10px 0; }
table { border-collapse: collapse; font-size: 14px; line-height: 1.4; min-width: 46%; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 12.5px; white-space: nowrap;
  border-bottom: 1.5px solid var(--axis); }
td { border-bottom: 1px solid var(--line); }
th, td { padding: 6px 12px; vertical-align: top; overflow-wrap: break-word; }
.wide { font-size: 12.5px; min-width: 100%; } .wide th { font-size: 12px; } .wide th, .wide td { padding: 5px 8px; }
th:first-child, td:first-child { padding-left: 2px; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } td.n { white-space: nowrap; }
td.best { font-weight: 700; } td.good { color: var(--good); } td.bad, tr.bad td { color: var(--bad); }
td.warn, tr.warn td { color: var(--warn); } td.soft, tr.soft td { color: var(--soft); }
tr.good td { color: var(--good); }
tr.bad td { background: var(--bad-tint); }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 4px 22px; margin: 10px 0; font-size: 14px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.mono { font: 12.5px/1.7 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.figures { display: flex; flex-wrap: wrap; gap: 14px 12px; } figure { margin: 10px 0; min-width: 0; }
figcaption { font-size: 13px; line-height: 1.45; margin-top: 6px; contain: inline-size; }
svg { max-width: 100%; height: auto; display: block; } svg.clip { overflow: hidden; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .label { fill: var(--ink); } svg .grid { stroke: var(--line); } svg .axis { stroke: var(--axis); }
svg .halo { paint-order: stroke; stroke: var(--page); stroke-width: 5px; stroke-linejoin: round; }
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
@media print { main { max-width: none; padding: 0; } h2 { break-after: avoid; }
  figure, tr, .verdict { break-inside: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
