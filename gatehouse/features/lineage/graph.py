"""The lineage of features as a graph: columns, and the steps by which one comes from others.

A column can depend on another column in two ways. VALUE: its value is computed from it. ROWS: it decides which rows
count (a filter, a join, a grouping, a window). A question about leakage concerns both.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

By = Literal["value", "rows"]
VALUE: By = "value"
ROWS: By = "rows"
RAW = "raw"
REQUEST = "request"


class Column(NamedTuple):
    """A column of `raw.<table>`, `staging.<table>` or a view; an empty name stands for the set of rows of the table."""

    table: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.table}.{self.name}" if self.name else f"{self.table} (rows)"

    @property
    def is_source(self) -> bool:
        """Whether it is a column of a raw table, or a value of a request."""
        return (self.table.startswith(f"{RAW}.") or self.table == REQUEST) and bool(self.name)


class Edge(NamedTuple):
    """`after` is computed from `before` (value), or `before` decides which rows count for it (rows)."""

    before: Column
    after: Column
    by: By


@dataclass(frozen=True)
class Lineage:
    """All that features depend on.

    Attributes:
        features: The columns that the lineage explains.
        edges: Every step, from the features down to the sources.
    """

    features: tuple[Column, ...]
    edges: tuple[Edge, ...]

    def before(self, column: Column) -> list[tuple[Column, By]]:
        """What a column depends on directly, values first."""
        found = [(edge.before, edge.by) for edge in self.edges if edge.after == column]
        return sorted(found, key=lambda pair: (pair[1] != VALUE, pair[0]))

    def sources(self) -> list[tuple[Column, By]]:
        """The raw columns and request values, each with how it counts; one that counts both ways is given twice.

        `value` means that every step to a feature is by value; `rows` means that at least one step decides rows.
        """
        valued, reached = self.value_columns(), self._reached(self.features, (VALUE, ROWS))
        # One step that decides rows is enough, whatever the other steps are.
        deciding = {edge.before for edge in self.edges if edge.by == ROWS and edge.after in reached}
        rows = self._reached(deciding, (VALUE, ROWS))
        found = [(column, VALUE) for column in valued] + [(column, ROWS) for column in rows]
        return sorted(
            ((column, by) for column, by in found if column.is_source), key=lambda one: (one[0], one[1] != VALUE)
        )

    def value_columns(self) -> set[Column]:
        """The columns that the features' values are computed from, over all steps, and the features themselves."""
        return self._reached(self.features, (VALUE,))

    def _reached(self, ends: Iterable[Column], kinds: Iterable[By]) -> set[Column]:
        steps: dict[Column, list[Column]] = {}
        for edge in self.edges:
            if edge.by in kinds:
                steps.setdefault(edge.after, []).append(edge.before)
        found, pending = set(ends), list(ends)
        while pending:
            fresh = set(steps.get(pending.pop(), ())) - found
            found |= fresh
            pending += fresh
        return found


def leading_to(edges: Iterable[Edge], ends: Iterable[Column]) -> list[Edge]:
    """The edges on all paths to some columns."""
    by_end: dict[Column, list[Edge]] = {}
    for edge in edges:
        by_end.setdefault(edge.after, []).append(edge)
    found: dict[Edge, None] = {}
    seen, pending = set(ends), list(ends)
    while pending:
        for edge in by_end.get(pending.pop(0), ()):
            found[edge] = None
            if edge.before not in seen:
                seen.add(edge.before)
                pending.append(edge.before)
    return list(found)
