"""A report: one self-contained HTML page, the same bytes for the same content."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatehouse.components.reports.format import escape, is_number, number
from gatehouse.components.reports.style import STYLE

MARKS = ("pass", "fail", "refused", "warn")
_WIDE = 7  # Tables of more columns are set smaller.
_SIGNS = {"pass": "✓", "fail": "✕", "refused": "✕", "warn": "!"}


@dataclass(frozen=True)
class Verdict:
    """What was decided: `pass`, `fail`, `refused` or `warn`, and why. Several lines of text become a list."""

    word: str
    text: str = ""

    def __post_init__(self) -> None:
        if self.word not in MARKS:
            raise ValueError(f"verdict: expected one of {', '.join(MARKS)}, found {self.word!r}")


@dataclass(frozen=True)
class Marked:
    """A cell that stands out: `good`, `bad`, `warn`, `soft` (of less weight) or `best` (of its row)."""

    value: Any
    mark: str


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
            self._parts.append(_verdict(verdict))

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
        """Names and values, one a line; references are set in a fixed width."""
        rows = "".join(f"<dt>{escape(name)}</dt>{_fact(value)}" for name, value in facts.items())
        self._parts.append(f"<dl>{rows}</dl>")
        return self

    def table(
        self,
        headers: Sequence[str],
        rows: Iterable[Sequence[Any]],
        marks: Mapping[int, str] | None = None,
        formats: Mapping[str, Callable[[Any], str]] | None = None,
    ) -> "Report":
        """A table. Columns of numbers are aligned to the right, and formatted by `format.number` unless told otherwise.

        Args:
            headers: Names of the columns.
            rows: The cells: text, numbers, None for nothing, or any of them `Marked`.
            marks: Row number to `good`, `bad`, `warn` or `soft`, for rows that should stand out.
            formats: Column name to the function that writes its numbers, e.g. `format.percent`.

        Raises:
            ValueError: if a row has another number of cells than there are headers.
        """
        body = [[cell if isinstance(cell, Marked) else Marked(cell, "") for cell in row] for row in rows]
        wrong = next((index for index, row in enumerate(body) if len(row) != len(headers)), None)
        if wrong is not None:
            raise ValueError(f"table: expected {len(headers)} cells a row, found {len(body[wrong])} in row {wrong}")
        write = [(formats or {}).get(name, number) for name in headers]
        right = [_numeric([row[column].value for row in body]) for column in range(len(headers))]
        head = "".join(
            f'<th scope="col"{_classes("n" if flag else "")}>{escape(name)}</th>'
            for name, flag in zip(headers, right, strict=True)
        )
        lines = []
        for index, row in enumerate(body):
            cells = "".join(
                f"<td{_classes('n' if flag else '', cell.mark)}>{_cell(cell.value, form)}</td>"
                for cell, flag, form in zip(row, right, write, strict=True)
            )
            lines.append(f"<tr{_classes((marks or {}).get(index, ''))}>{cells}</tr>")
        wide = _classes("wide" if len(headers) > _WIDE else "")
        body_rows = f"<tbody>{''.join(lines)}</tbody>"
        self._parts.append(f'<div class="scroll"><table{wide}><thead><tr>{head}</tr></thead>{body_rows}</table></div>')
        return self

    def figure(self, svg: str, caption: str) -> "Report":
        """One chart: an SVG from `charts` with a caption."""
        return self.figures((svg, caption))

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
            '<meta name="color-scheme" content="light dark">'
            f"<title>{escape(self._title)}</title><style>{STYLE}</style></head>\n"
            f"<body><main>\n{chr(10).join(self._parts)}\n</main></body></html>\n"
        )


def _verdict(verdict: Verdict) -> str:
    lines = [escape(line) for line in verdict.text.splitlines() if line.strip()]
    if len(lines) > 1:
        text = f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>"
    else:
        text = "".join(f"<p>{line}</p>" for line in lines)
    sign = f'<span class="sign" aria-hidden="true">{_SIGNS[verdict.word]}</span>'
    return f'<div class="verdict {verdict.word}"><b>{sign}{verdict.word}</b>{text}</div>'


def _fact(value: Any) -> str:
    mono = ' class="mono"' if isinstance(value, str) and "/sha256-" in value else ""
    return f"<dd{mono}>{escape(number(value))}</dd>"


def _cell(value: Any, form: Callable[[Any], str]) -> str:
    return escape(form(value) if value is None or is_number(value) else value)


def _numeric(cells: Sequence[Any]) -> bool:
    return bool(cells) and all(cell is None or is_number(cell) for cell in cells)


def _classes(*names: str) -> str:
    used = " ".join(name for name in names if name)
    return f' class="{escape(used)}"' if used else ""
