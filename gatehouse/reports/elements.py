"""The elements that a page is made of: tables, facts, links, meters, entries and cards that expand.

Each is `Html`. What it takes is text and gets escaped, unless it is `Html` itself: another element, or a chart.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gatehouse.reports.format import Html, column_format, escape, is_number, number, printed, prose

MARKS = ("pass", "fail", "refused", "warn")
SIGNS = {"pass": "✓", "fail": "✕", "refused": "✕", "warn": "!"}
_WIDE = 7  # Tables of more columns are set smaller.
_NARROW = 4  # Tables of no more columns fit a phone, and are no stop of the tabulator.
_LONGEST = 300
_BREAKS_FROM = 24
_PROSE_FROM = 60  # Characters, from which on a cell is a sentence, which no narrow screen may squeeze.


@dataclass(frozen=True)
class Marked:
    """A cell that stands out: `good`, `bad`, `warn`, `soft` (of less weight) or `best` (of its row)."""

    value: Any
    mark: str


@dataclass(frozen=True)
class Entry:
    """One row of a table that filters and expands.

    Attributes:
        cells: Text, numbers, or `Html`.
        anchor: What links to this row name; unique on the page.
        facets: By facet of the page's filter, the values that this row has.
        more: Summary and content of what the row expands to.
        note: What stands below its cells.
    """

    cells: Sequence[Any]
    anchor: str
    facets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    more: tuple[str, Html] | None = None
    note: Html | None = None


@dataclass(frozen=True)
class Card:
    """Something with a name that expands.

    Attributes:
        title: Its name.
        anchor: What links to it name; unique on the page.
        summary: What stands beside the name while it is closed.
        html: What it expands to.
        facets: By facet of the page's filter, the values that it has.
    """

    title: str
    anchor: str
    summary: Html
    html: Html
    facets: Mapping[str, Sequence[str]] = field(default_factory=dict)


def shortened(text: str, longest: int = _LONGEST) -> str:
    """`text`, cut with its length told where it is longer than a page should show."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def link(anchor: str, text: Any) -> Html:
    """A link to something else on this page."""
    return Html(f'<a href="#{escape(anchor)}">{isolated(text)}</a>')


def isolated(text: Any) -> Html:
    """Text from data within a line: whichever direction it is written in, what stands around it stays in place.

    It may break after underscores, where names of columns and rules are longer than a cell is wide.
    """
    return Html(f"<bdi>{escape(text).replace('_', '_<wbr>')}</bdi>")


def sign(word: str) -> Html:
    """A verdict or severity: a word with a sign, told apart without colour."""
    return Html(f'<span class="chip {word}"><span class="sign" aria-hidden="true">{SIGNS[word]}</span>{word}</span>')


def meter(share: float, other: float | None = None) -> Html:
    """A share as a bar, and optionally a tick at another share. The caller writes the number beside it."""
    tick = f'<path class="tick" d="M{min(96, 100 * other):.0f},0h4v8h-4"/>' if other else ""
    bar = f'<path d="M0,0h{max(1, 100 * share):.0f}v8H0"/>' if share > 0 else ""
    drawn = f'<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">{bar}{tick}</svg>'
    return Html(drawn)


def cell(text: str, longest: int) -> Html:
    """Text in a cell of its own: a long one breaks into lines, and is cut where it is longer than `longest`."""
    shown = (prose if len(text) > _PROSE_FROM else escape)(shortened(text, longest))
    return Html(f'<div class="long">{shown}</div>') if len(text) > _BREAKS_FROM else shown


def facts(values: Mapping[str, Any]) -> Html:
    """Names and values, one a line; references are set in a fixed width."""
    rows = "".join(f"<dt>{escape(name)}</dt>{_fact(value)}" for name, value in values.items())
    return Html(f"<dl>{rows}</dl>")


def tiles(values: Mapping[str, Any]) -> Html:
    """A few numbers, large, each over its name; `Marked` ones in their colour."""
    marked = {name: value if isinstance(value, Marked) else Marked(value, "") for name, value in values.items()}
    numbers = "".join(
        f"<div{classes(one.mark)}><dt>{escape(_of_one(name) if one.value == 1 else name)}</dt>"
        f"<dd>{escape(number(one.value))}</dd></div>"
        for name, one in marked.items()
    )
    return Html(f'<dl class="tiles">{numbers}</dl>')


def _of_one(name: str) -> str:
    """What a number of things is called where it is one: `rules judged` is `rule judged`."""
    things, space, rest = name.partition(" ")
    return f"{things.removesuffix('s')}{space}{rest}"


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    marks: Mapping[int, str] | None = None,
    formats: Mapping[str, Callable[[Any], str]] | None = None,
    label: str = "",
    named: bool = False,
) -> Html:
    """A table in a box that scrolls by itself where the page is too narrow; one of few columns with sentences folds.

    Args:
        headers: Names of the columns.
        rows: The cells: text, numbers, None for nothing, `Html`, or any of them `Marked`.
        marks: Row number to `good`, `bad`, `warn` or `soft`, for rows that should stand out.
        formats: Column name to the function that writes its numbers, e.g. `format.percent`.
        label: What the table is about, for those who cannot see what stands above it.
        named: Whether the first cell names its row.

    Raises:
        ValueError: if a row has another number of cells than there are headers.
    """
    body = [[cell if isinstance(cell, Marked) else Marked(cell, "") for cell in row] for row in rows]
    wrong = next((index for index, row in enumerate(body) if len(row) != len(headers)), None)
    if wrong is not None:
        raise ValueError(f"table: expected {len(headers)} cells a row, found {len(body[wrong])} in row {wrong}")
    columns = [[row[at].value for row in body] for at in range(len(headers))]
    right = [_numeric(column) for column in columns]
    write = [(formats or {}).get(name) or column_format(column) for name, column in zip(headers, columns, strict=True)]
    head = "".join(
        f'<th scope="col"{classes("n" if flag else "")}>{escape(name)}</th>'
        for name, flag in zip(headers, right, strict=True)
    )
    folds = len(headers) <= _NARROW and any(_is_prose(cell.value) for row in body for cell in row)
    lines = []
    for index, row in enumerate(body):
        cells = "".join(
            _cell(cell, form, flag, headers[at] if flag and folds else "", named and at == 0)
            for at, (cell, flag, form) in enumerate(zip(row, right, write, strict=True))
        )
        lines.append(f"<tr{classes((marks or {}).get(index, ''))}>{cells}</tr>")
    form = classes("wide" if len(headers) > _WIDE else "")
    inner = Html(f"<table{form}><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>")
    if folds:
        inner = _folding(inner)
    return scrolling(inner, label) if len(headers) > _NARROW else Html(f'<div class="scroll">{inner}</div>')


def _folding(html: Html) -> Html:
    """A table whose rows are lines of text on a narrow screen; the roles say what they are there too."""
    text = str(html).replace("<table>", '<table role="table" class="told">')
    parts = {"thead": "rowgroup", "tbody": "rowgroup", "tr": "row", 'th scope="col"': "columnheader"}
    for tag, role in (parts | {'th scope="row"': "rowheader", "td": "cell"}).items():
        text = re.sub(rf"<{tag}(?=[ >])", f'<{tag} role="{role}"', text)
    return Html(text)


def scrolling(html: Html, label: str) -> Html:
    """A box that may scroll sideways, by keyboard too: it takes the focus, and so it has a name."""
    return Html(f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(label)}">{printed(html)}</div>')


def entries(headers: Sequence[str], rows: Sequence[Entry], facets: Mapping[str, Sequence[str]], label: str) -> Html:
    """A table whose rows filter and expand; on a narrow screen every row is a card."""
    head = "".join(f'<th scope="col" role="columnheader">{escape(name)}</th>' for name in headers)
    bodies = []
    for row in rows:
        cells = "".join(
            f'<td role="cell" data-l="{escape(name)}">{_content(cell, number)}</td>'
            for name, cell in zip(headers, row.cells, strict=True)
        )
        below = f'<p class="note">{printed(row.note)}</p>' if row.note else ""
        if row.more:
            below += f"<details><summary>{escape(row.more[0])}</summary>{printed(row.more[1])}</details>"
        span = f'role="cell" colspan="{len(headers)}"'
        more = f'<tr role="row" class="more"><td {span}>{below}</td></tr>' if below else ""
        opening = f'<tbody role="rowgroup" id="{escape(row.anchor)}" {_item(row.facets, facets)}>'
        bodies.append(f'{opening}<tr role="row" class="find">{cells}</tr>{more}</tbody>')
    # The roles say what it is where the style sheet makes blocks of its rows, which takes a table's meaning away.
    inner = Html(
        f'<table role="table" class="entries"><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f"{''.join(bodies)}</table>"
    )
    return Html(f'<div class="items">{scrolling(inner, label)}{_NONE}</div>')


def cards(shown: Sequence[Card], facets: Mapping[str, Sequence[str]]) -> Html:
    """Cards below each other, closed."""
    drawn = "".join(
        f'<details class="card" {_item(card.facets, facets)}><summary class="find"><h3>{isolated(card.title)}</h3>'
        f'{printed(card.summary)}</summary><div class="body" id="{escape(card.anchor)}">{printed(card.html)}</div>'
        "</details>\n"
        for card in shown
    )
    return Html(f'<div class="items">{drawn}{_NONE}</div>')


_NONE = '<p class="none" hidden>Nothing here matches the filter.</p>'


def filters(facets: Mapping[str, Sequence[str]]) -> Html:
    """The bar that filters entries and cards; hidden until the page's script has started."""
    selects = "".join(
        f'<label>{escape(name)} <select data-facet="{escape(name)}"><option value="">all</option>'
        + "".join(f'<option value="{index}">{escape(value)}</option>' for index, value in enumerate(values))
        + "</select></label>"
        for name, values in facets.items()
        if len(values) > 1
    )
    return Html(
        '<form class="filters" role="search" aria-label="Filter this report" hidden>'
        '<label class="search">Search <input type="search" autocomplete="off" spellcheck="false" '
        'aria-keyshortcuts="/" placeholder="column, rule, owner"></label>'
        f"{selects}"
        '<span class="buttons"><button type="button" data-open="1">Expand all</button>'
        '<button type="button" data-open="">Collapse all</button></span>'
        '<output aria-live="polite"></output></form>'
    )


def _item(own: Mapping[str, Sequence[str]], facets: Mapping[str, Sequence[str]]) -> str:
    """Attributes of something that filters; values go by their number, as a name may hold any character."""
    places = {
        name: " ".join(str(values.index(value)) for value in own.get(name, ())) for name, values in facets.items()
    }
    return " ".join(["data-item", *(f'data-{escape(name)}="{place}"' for name, place in places.items())])


def _fact(value: Any) -> str:
    mono = ' class="mono"' if isinstance(value, str) and "/sha256-" in value else ""
    return f"<dd{mono}>{escape(number(value))}</dd>"


def _cell(cell: Marked, form: Callable[[Any], str], right: bool, label: str, heads: bool) -> str:
    tag, scope = ("th", ' scope="row"') if heads else ("td", "")
    prose = "prose" if _is_prose(cell.value) else ""
    attributes = classes("n" if right else "", prose, cell.mark) + (f' data-l="{escape(label)}"' if label else "")
    return f"<{tag}{scope}{attributes}>{_content(cell.value, form)}</{tag}>"


def _is_prose(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Html) and len(value) > _PROSE_FROM


def _content(value: Any, form: Callable[[Any], str]) -> str:
    return printed(form(value) if value is None or is_number(value) else value)


def _numeric(cells: Sequence[Any]) -> bool:
    return bool(cells) and all(cell is None or is_number(cell) for cell in cells)


def classes(*names: str) -> str:
    """The attribute for those names that are not empty."""
    used = " ".join(name for name in names if name)
    return f' class="{escape(used)}"' if used else ""
