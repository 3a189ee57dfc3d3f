"""Rows that a notebook shows as a table and gives as a data frame, and pages in a frame."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import pyarrow as pa

from gatehouse.reports.page import environment

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]
MOST_ROWS = 60
"""Rows that a notebook shows of a table."""
_HEIGHT = 640
_TABLE = (
    "{% if title %}<p><b>{{ title }}</b></p>{% endif %}<table><thead><tr>{% for name in names %}<th>{{ name }}</th>"
    "{% endfor %}</tr></thead><tbody>{% for row in rows %}<tr>{% for value in row %}<td>{{ value }}</td>{% endfor %}"
    "</tr>{% endfor %}</tbody></table>{% if more %}<p>and {{ more }} more</p>{% endif %}"
)


class Tabular:
    """What has rows: a data frame, and a table in a notebook."""

    title = ""

    def rows(self) -> Iterable[Row]:
        """The rows, as dictionaries by column."""
        raise NotImplementedError

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        return table_of(self.rows())

    def to_pandas(self) -> "pd.DataFrame":
        """The rows as a data frame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def _repr_html_(self) -> str:
        return html_table(list(self.rows()), self.title)


Item = TypeVar("Item")


class Listing(Tabular, Sequence[Item], Generic[Item]):
    """A list of things in a store, with a row for each."""

    def __init__(self, pairs: Iterable[tuple[Item, Row]]) -> None:
        """Keep things with their rows."""
        self._pairs = list(pairs)

    def rows(self) -> Iterator[Row]:
        """A row for each thing."""
        return (row for _, row in self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> "Listing[Item]": ...
    def __getitem__(self, index: int | slice) -> "Item | Listing[Item]":
        return Listing(self._pairs[index]) if isinstance(index, slice) else self._pairs[index][0]

    def __repr__(self) -> str:
        return "\n".join("  ".join(map(_text, row.values())) for row in self.rows()) or "[]"


class Comparison(Tabular):
    """What differs between two things: numbers side by side, and changes in how they were made."""

    def __init__(self, title: str, numbers: Sequence[Row], changes: Sequence[Row], warning: str = "") -> None:
        """Keep rows of numbers and of changes; `warning` says why the numbers do not compare."""
        self.title, self.numbers, self.warning = title, numbers, warning
        self.changes = Listing((change["name"], change) for change in changes)

    def rows(self) -> Sequence[Row]:
        """A row for each number."""
        return self.numbers

    def _repr_html_(self) -> str:
        changes = html_table(list(self.changes.rows()), "What changed" if len(self.changes) else "Nothing changed")
        return f"{super()._repr_html_()}<p>{escape(self.warning)}</p>{changes}"


def table_of(rows: Iterable[Row]) -> pa.Table:
    """An Arrow table of rows; a column of several types is text."""
    listed = list(rows)
    columns = {}
    for name in dict.fromkeys(name for row in listed for name in row):
        values = [row.get(name) for row in listed]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            columns[name] = pa.array([None if value is None else str(value) for value in values])
    return pa.table(columns)


def html_table(rows: Sequence[Row], title: str = "") -> str:
    """Rows as a table of HTML, the first `MOST_ROWS` of them."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    shown = [[_text(row.get(name)) for name in names] for row in rows[:MOST_ROWS]]
    template = environment().from_string(_TABLE)
    return template.render(title=title, names=names, rows=shown, more=max(0, len(rows) - MOST_ROWS))


def framed(page: str) -> str:
    """A page in a frame, which keeps its style from the notebook's, and may run no script."""
    style = f"width:100%;height:{_HEIGHT}px;border:1px solid #ddd"
    return f'<iframe sandbox srcdoc="{escape(page)}" style="{style}"></iframe>'


def moment(seconds: float | None) -> datetime | None:
    """A time in UTC, of seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
