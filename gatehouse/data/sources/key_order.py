"""Checks that rows come in a total order: each key above the one before it, none null."""

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.sources.declared import shown
from gatehouse.errors import SourceError


class KeyOrder:
    """The order of one table's rows, over the pieces that it comes in.

    Columns are compared one after the other: numbers and times by value, text by its UTF-8 bytes.

    Args:
        name: The table's name, for messages.
        columns: Its key; without columns nothing is checked.
        sensitive: Columns whose values are not shown.
    """

    def __init__(self, name: str, columns: tuple[str, ...], sensitive: Collection[str] = ()) -> None:
        self._name = name
        self._columns = columns
        self._sensitive = sensitive
        self._last: pa.Table | None = None

    def check(self, rows: pa.Table) -> None:
        """Check the next rows.

        Raises:
            SourceError: naming the first key that is null, repeated, or below the one before it.
        """
        if not self._columns or rows.num_rows == 0:
            return
        keys = rows.select(list(self._columns))
        for column in self._columns:
            if keys[column].null_count:
                raise SourceError(
                    f"Table {self._name}: order_by column {column} is null in {keys[column].null_count} rows, so they "
                    "have no place in the order. Leave them out in the query, or order by other columns."
                )
        if self._last is not None:
            keys = pa.concat_tables([self._last, keys])
        keys = keys.combine_chunks()
        self._compare(keys.slice(0, keys.num_rows - 1), keys.slice(1))
        self._last = keys.slice(keys.num_rows - 1)

    def _compare(self, before: pa.Table, after: pa.Table) -> None:
        rising = pa.chunked_array([pa.repeat(False, before.num_rows)])
        for column in reversed(self._columns):
            equal = pc.equal(after[column], before[column])
            rising = pc.or_(pc.greater(after[column], before[column]), pc.and_(equal, rising))
        wrong = pc.index(rising, False).as_py()
        if wrong < 0:
            return
        first, second = before.slice(wrong, 1).to_pylist()[0], after.slice(wrong, 1).to_pylist()[0]
        key = self._text(second)
        if first == second:
            raise SourceError(
                f"Table {self._name}: several rows have the key {key}, so their order is not fixed. "
                "Add columns to order_by until no two rows share their values, or declare sort_on_ingest."
            )
        raise SourceError(
            f"Table {self._name}: the database puts the row with {key} after that with {self._text(first)}: its order "
            "of these values is not that of the declared type. Declare the column's own type, or convert it in the "
            "query."
        )

    def _text(self, key: dict[str, Any]) -> str:
        return ", ".join(f"{column}={shown(column, value, self._sensitive)}" for column, value in key.items())
