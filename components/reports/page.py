"""A report: one self-contained HTML page, the same bytes for the same content."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatehouse.components.reports.format import escape, number

_STYLE = """
:root { --ink: #1c2430; --soft: #5b6675; --line: #dfe4ea; --page: #ffffff; --tint: #f5f7f9;
  --good: #0b6e4f; --bad: #b3261e; --warn: #8a5a00; --a: #0b63b5; --b: #c4570c; --c: #3d8f6e; --d: #8250a8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e9ee; --soft: #9aa5b3; --line: #323b47; --page: #14181e;
  --tint: #1c222b; --good: #5cc9a0; --bad: #ff8a80; --warn: #e5b35a; --a: #6cb2f7; --b: #f2a267; --c: #79ccab;
  --d: #c09be0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
main { max-width: 980px; margin: 0 auto; padding: 28px 24px 56px; }
h1 { font-size: 25px; line-height: 1.2; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 34px 0 8px; padding-bottom: 4px; border-bottom: 1px solid var(--line); }
p { margin: 6px 0; max-width: 76ch; } .sub, figcaption, .note { color: var(--soft); }
.sub { font-size: 13px; overflow-wrap: anywhere; margin-top: 4px; }
.verdict { margin: 18px 0 6px; padding: 12px 16px; border-left: 5px solid var(--soft); background: var(--tint);
  white-space: pre-line; }
.verdict b { text-transform: uppercase; letter-spacing: 0.04em; font-size: 13px; margin-right: 8px; }
.pass { border-color: var(--good); } .pass b { color: var(--good); }
.fail, .refused { border-color: var(--bad); } .fail b, .refused b { color: var(--bad); }
.warn { border-color: var(--warn); } .warn b { color: var(--warn); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 14px; margin: 8px 0; min-width: 40%; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 12.5px; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
tr.bad td { color: var(--bad); } tr.warn td { color: var(--warn); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 3px 18px; margin: 8px 0; font-size: 14px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.figures { display: flex; flex-wrap: wrap; gap: 18px 26px; } figure { margin: 10px 0; }
figcaption { font-size: 13px; max-width: 46ch; } svg { max-width: 100%; height: auto; display: block; }
svg text { font: 11.5px system-ui, -apple-system, "Segoe UI", Arial, sans-serif; fill: var(--soft); }
svg .label { fill: var(--ink); } svg .grid { stroke: var(--line); } svg .axis { stroke: var(--soft); }
svg .series { fill: none; stroke-width: 2; } svg .dashed { stroke-dasharray: 4 4; }
svg .s0 { stroke: var(--a); } svg .s1 { stroke: var(--b); } svg .s2 { stroke: var(--c); } svg .s3 { stroke: var(--d); }
svg .ref { stroke: var(--soft); } svg .f0 { fill: var(--a); } svg .f1 { fill: var(--b); } svg .f2 { fill: var(--c); }
svg .f3 { fill: var(--d); }
@media print { main { max-width: none; padding: 0; } h2, figure, tr { break-inside: avoid; } }
"""

MARKS = ("pass", "fail", "refused", "warn")


@dataclass(frozen=True)
class Verdict:
    """What was decided: `pass`, `fail`, `refused` or `warn`, and why, in a few words."""

    word: str
    text: str = ""

    def __post_init__(self) -> None:
        if self.word not in MARKS:
            raise ValueError(f"verdict: expected one of {', '.join(MARKS)}, found {self.word!r}")


class Report:
    """Builds a page from top to bottom; every text is escaped.

    Example:
        >>> page = Report("Validation of flights", verdict=Verdict("pass"))
        >>> page.section("Columns").table(["column", "nulls"], [["dest", 0]]).html().startswith("<!doctype html>")
        True
    """

    def __init__(self, title: str, subtitle: str = "", verdict: Verdict | None = None) -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]
        if subtitle:
            self._parts.append(f'<p class="sub">{escape(subtitle)}</p>')
        if verdict:
            self._parts.append(
                f'<div class="verdict {verdict.word}"><b>{verdict.word}</b>{escape(verdict.text)}</div>'
            )

    def section(self, title: str, text: str = "") -> "Report":
        """Begin a section."""
        self._parts.append(f"<h2>{escape(title)}</h2>")
        if text:
            self._parts.append(f"<p>{escape(text)}</p>")
        return self

    def note(self, text: str) -> "Report":
        """A paragraph of smaller weight."""
        self._parts.append(f'<p class="note">{escape(text)}</p>')
        return self

    def facts(self, facts: Mapping[str, Any]) -> "Report":
        """Names and values, one a line."""
        rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(number(value))}</dd>" for name, value in facts.items())
        self._parts.append(f"<dl>{rows}</dl>")
        return self

    def table(
        self, headers: Sequence[str], rows: Iterable[Sequence[Any]], marks: Mapping[int, str] | None = None
    ) -> "Report":
        """A table; numbers are formatted and right-aligned.

        Args:
            headers: Names of the columns.
            rows: The cells.
            marks: Row number to `bad` or `warn`, for rows that should stand out.
        """
        body = [list(row) for row in rows]
        right = [bool(body) and all(_is_number(row[column]) for row in body) for column in range(len(headers))]
        head = "".join(f"<th{_right(flag)}>{escape(name)}</th>" for name, flag in zip(headers, right, strict=True))
        lines = []
        for index, row in enumerate(body):
            cells = "".join(
                f"<td{_right(flag)}>{escape(number(cell))}</td>" for cell, flag in zip(row, right, strict=True)
            )
            mark = (marks or {}).get(index, "")
            lines.append(f'<tr class="{escape(mark)}">{cells}</tr>' if mark else f"<tr>{cells}</tr>")
        self._parts.append(f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>')
        return self

    def figures(self, *figures: tuple[str, str]) -> "Report":
        """Charts side by side, each an SVG from `charts` with a caption."""
        drawn = "".join(f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for svg, caption in figures)
        self._parts.append(f'<div class="figures">{drawn}</div>')
        return self

    def html(self) -> str:
        """The whole page."""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self._title)}</title><style>{_STYLE}</style></head>\n"
            f"<body><main>\n{chr(10).join(self._parts)}\n</main></body></html>\n"
        )


def _is_number(cell: Any) -> bool:
    return cell is None or (isinstance(cell, (int, float)) and not isinstance(cell, bool))


def _right(flag: bool) -> str:
    return ' class="n"' if flag else ""
