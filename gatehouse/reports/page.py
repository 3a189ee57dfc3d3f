"""Renders pages from Jinja templates: each one HTML file that loads nothing, the same bytes for the same content.

A page in a room is a function that reads an artifact and calls `render` with the name of a template and plain data.
Templates escape every text; only charts, which escape what they draw, are markup. The page's policy
(Content-Security-Policy) allows its own style sheet and no script.
"""

import base64
import hashlib
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from gatehouse.reports import charts
from gatehouse.reports import format as formats
from gatehouse.reports.advice import advised
from gatehouse.reports.charts import Axis
from gatehouse.reports.format import column_format, is_number, moment, percent
from gatehouse.store.reference import Reference

TEMPLATES = Path(__file__).parent / "templates"
STYLE = "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in ("colours.css", "style.css"))


# HTML has no control characters, and UTF-8 no lone surrogates.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_CODE = re.compile("`([^`\n]+)`")
_POLICY = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
_SENTENCE = 60  # Characters above which a cell is a sentence, which a narrow screen does not squeeze.
_WIDE = 7  # A table with more columns has smaller text.
_NARROW = 4  # A table with more columns scrolls on a phone.


class Cell(NamedTuple):
    """A table cell that stands out; `mark` is `good`, `bad`, `warn`, `soft` (of less weight) or `best` (of its row)."""

    value: Any
    mark: str = ""
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """The box at the top of a page. Its `word` (`pass`, `fail`, `refused` or `warn`) decides the colour."""

    word: str
    text: str = ""
    reasons: Sequence[str] = ()
    warnings: Sequence[str] = ()
    unchecked: Sequence[str] = ()
    todo: str = ""
    title: str = ""

    @property
    def lines(self) -> list[str]:
        """The lines of the text, if there are several, and the reasons."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        return [*(lines if len(lines) > 1 else ()), *self.reasons]


def prose(text: Any) -> Markup:
    """A sentence as markup: what stands between backticks is set as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def breaking(text: Any) -> Markup:
    """A name from data as markup: isolated from the direction of the text around it, with breaks after underscores."""
    return Markup(f"<bdi>{str(escape(text)).replace('_', '_<wbr>')}</bdi>")


def layout(
    columns: Sequence[str] | Mapping[str, str],
    rows: Sequence[Any],
    percents: Collection[str] = (),
    marks: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """The texts and classes of a table for its template.

    `columns` are the headers, if a row is a sequence of cells; else by header the key or attribute of each row. Columns
    in `percents` are shares. `marks` says by index of a row what makes it stand out, as in `Cell`. Raises ValueError if
    a row has another number of cells than there are headers.
    """
    if isinstance(columns, Mapping):
        keys = list(columns.values())
        rows = [[row[key] if isinstance(row, Mapping) else getattr(row, key) for key in keys] for row in rows]
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    by_column = list(zip(*cells, strict=True)) or [()] * len(columns)
    if len(by_column) != len(columns):
        raise ValueError(f"table: expected {len(columns)} cells per row, found {len(by_column)}")
    head, writers = [], []
    for header, column in zip(columns, by_column, strict=True):
        numbers = [cell.value is None or is_number(cell.value) or cell.mark[:1] == "n" for cell in column]
        head.append((header, "n" if column and all(numbers) else ""))
        writers.append(percent if header in percents else column_format(cell.value for cell in column))
    body = [
        [_cell(cell, *header, write) for cell, header, write in zip(row, head, writers, strict=True)] for row in cells
    ]
    return {
        "head": head,
        "rows": [((marks or {}).get(index, ""), row) for index, row in enumerate(body)],
        "wide": len(columns) > _WIDE,
        "scrolls": len(columns) > _NARROW,
        "folds": len(columns) <= _NARROW and any("prose" in cell["classes"] for row in body for cell in row),
    }


def _cell(cell: Cell, header: str, alignment: str, write: Callable[[Any], str]) -> dict[str, Any]:
    value = cell.value
    sentence = "prose" if isinstance(value, str) and len(value) > _SENTENCE else ""
    text = write(value) if value is None or is_number(value) else prose(value) if sentence else value
    classes = " ".join(filter(None, dict.fromkeys((alignment, sentence, *cell.mark.split()))))
    return {"header": header, "classes": classes, "text": text, "note": cell.note}


@cache
def environment() -> Environment:
    """The Jinja environment of all pages, also of those that `gatehouse serve` shows."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    filters: dict[str, Callable[..., Any]] = {
        "advised": advised,
        "breaking": breaking,
        "moment": lambda text: moment(text) if text else "",
        "prose": prose,
        "short": lambda text: Reference.parse(text).short,
    }
    made.filters |= filters | {
        name: getattr(formats, name) for name in ("cut", "duration", "number", "percent", "share")
    }
    made.globals |= {"layout": layout, "Axis": Axis, "Cell": Cell, "nan": math.nan}
    drawing = ("Series", "histogram", "line_chart", "meter", "Dot", "bar_chart", "dot_chart")
    made.globals |= {name: getattr(charts, name) for name in drawing}
    return made


def render(
    template: str | Template, title: str, subtitle: str = "", verdict: Verdict | None = None, **values: Any
) -> str:
    """The page, as HTML, of a template (or the name of its file) that extends `report.html`."""
    # The page may use its own style sheet and nothing else.
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    html = (
        environment()
        .get_template(template)
        .render(
            values,
            title=title,
            subtitle=subtitle,
            verdict=verdict,
            contents=[],  # Each section adds itself.
            style=Markup(STYLE),
            content_security_policy=f"{_POLICY}; style-src 'sha256-{digest}'",
        )
    )
    return _UNPRINTABLE.sub("\ufffd", html)
