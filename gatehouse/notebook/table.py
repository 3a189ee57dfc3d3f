"""Rows that a notebook shows as a table and gives as a data frame."""

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Row = Mapping[str, Any]
Item = TypeVar("Item")
_MOST_ROWS = 60


class Tabular:
    """What has rows: a data frame, and a table in a notebook."""

    def rows(self) -> Iterable[Row]:
        """The rows, as dictionaries by column."""
        raise NotImplementedError

    def to_pandas(self) -> "pd.DataFrame":
        """The rows as a data frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows()))

    def to_arrow(self) -> "pa.Table":
        """The rows as an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_pandas(self.to_pandas(), preserve_index=False)

    def _repr_html_(self) -> str:
        return self.to_pandas().to_html(index=False, max_rows=_MOST_ROWS, border=0, na_rep="")


class Listing(list[Item], Tabular, Generic[Item]):
    """A list of things, with a row for each."""

    def __init__(self, items: Iterable[Item], row: Callable[[Item], Row]) -> None:
        super().__init__(items)
        self._row = row

    def rows(self) -> Iterable[Row]:
        """A row for each thing."""
        return map(self._row, self)


class Comparison(Tabular):
    """The numbers of two things side by side, and as `changes` what differs in how they were made."""

    def __init__(self, numbers: Iterable[Row], changes: Iterable[Row], warning: str = "") -> None:
        self._numbers, self.changes, self.warning = numbers, Listing(changes, dict), warning

    def rows(self) -> Iterable[Row]:
        """A row for each number."""
        return self._numbers

    def _repr_html_(self) -> str:
        changes = f"What changed:{self.changes._repr_html_()}" if self.changes else "Nothing changed."
        return f"{super()._repr_html_()}<p>{escape(self.warning)}</p>{changes}"


def side_by_side(head: str, names: Iterable[str], values: Mapping[str, Iterable[Any]]) -> list[Row]:
    """Rows of values of several things, by the name of the value and of the thing."""
    names = list(names)
    return [{head: name} | dict(zip(names, sides, strict=True)) for name, sides in values.items()]
