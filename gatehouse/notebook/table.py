"""Rows that a notebook shows as a table and gives as a data frame."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Row = Mapping[str, Any]
Item = TypeVar("Item")
_MOST_ROWS = 60


class Tabular(ABC):
    """What has rows: a data frame, and a table in a notebook."""

    @abstractmethod
    def rows(self) -> Iterable[Row]:
        """The rows, as dictionaries by column."""

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
