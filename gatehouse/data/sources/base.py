"""The interface of a source: its tables in parts that the data alone cuts, each read whole."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Raw:
    """The rows of one part, and those that were set aside.

    Attributes:
        table: Rows in their order, with the declared columns, types and names.
        rejected: Rows that do not fit the declaration, with the columns of `rejects.SCHEMA`; None where there are none.
        columns: Name and type of the columns as the source delivers them; None where it does not tell.
    """

    table: "pa.Table"
    rejected: "pa.Table | None" = None
    columns: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Part:
    """A piece of a table that is read whole and becomes one blob.

    Where a part begins and ends depends on the data alone, so that an append leaves the earlier parts as they are: a
    block of a file, a file of a lakehouse table, a run of rows in key order, a run of offsets.

    Attributes:
        fingerprint: What identifies its content before it is read. Equal fingerprints mean equal rows. Empty where the
            source cannot tell; such a part is read every time.
        read: Reads it.
        position: Where the next read of the source goes on after this part (last key, last offset); empty where the
            source does not need it.
    """

    fingerprint: str
    read: Callable[[], Raw]
    position: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class KnownPart:
    """A part that an earlier snapshot of the same source holds."""

    fingerprint: str
    rows: int
    position: Mapping[str, Any]


class Opened:
    """What is closed at the end of its `with` statement."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what is open."""
        raise NotImplementedError


class Source(Protocol):
    """One source, opened."""

    def state(self) -> Mapping[str, Any]:
        """What makes a read repeatable, and identifies the content now, by table.

        Digests of files, the query's text and a watermark, a table's version, offsets: plain JSON without clocks, hosts
        or credentials. Two equal states mean equal content; the snapshot keeps it. Cheap where the source can be.

        Raises:
            SourceError: if the source cannot be reached or lacks a table.
        """

    def parts(self, table: str, known: tuple[KnownPart, ...]) -> Iterator[Part]:
        """The parts of a table, in row order, without reading more than it takes to cut them.

        Args:
            table: Name of the table.
            known: The parts of the newest snapshot of this source, in order; a source that only grows may yield their
                fingerprints again without looking. What is yielded never depends on them otherwise.
        """
