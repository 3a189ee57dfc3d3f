"""The interface of a source: its tables in parts that the data alone cuts, each read whole."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self

from pydantic import AfterValidator

from gatehouse.runtime.redaction import holds_secret

if TYPE_CHECKING:
    import pyarrow as pa


def without_password(url: str) -> str:
    """The URL. Raises ValueError if it holds a password, without it: the text would reach the log."""
    if holds_secret(url):
        raise ValueError("holds a password: let the environment give the credentials, or the whole URL in url_env")
    return url


Url = Annotated[str, AfterValidator(without_password)]
"""A URL that holds no password."""


@dataclass(frozen=True)
class Raw:
    """The rows of one part with the declared columns, and the rejected ones with those of `declared.SCHEMA`, if any.

    `columns` are name and type of the columns as the source delivers them; None if it does not say.
    """

    table: "pa.Table"
    rejected: "pa.Table | None" = None
    columns: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Part:
    """A piece of a table that is read whole and becomes one blob.

    Where a part begins and ends depends on the data alone, so that an append leaves the earlier parts as they are: a
    block of a file, a file of a lakehouse table, a run of rows in key order. Equal fingerprints mean
    equal rows; a part without one is read every time. `position` is where the next read goes on after it, if the source
    needs that.
    """

    fingerprint: str
    read: Callable[[], Raw]
    position: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EarlierPart:
    """A part that an earlier snapshot of the same source holds."""

    fingerprint: str
    position: Mapping[str, Any]


class Opened:
    """A client that is closed at the end of its `with` statement, if it was opened."""

    _opened: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


class Source(Protocol):
    """One source, opened."""

    def state(self) -> Mapping[str, Any]:
        """By table, what makes a read repeatable and identifies the content now; the snapshot's record keeps it.

        Digests of files, the query's text and a watermark, a table's version: plain JSON without clocks, hosts
        or credentials. Two equal states mean equal content. Raises SourceError if the source cannot be reached or lacks
        a table.
        """

    def parts(self, table: str, earlier_parts: tuple[EarlierPart, ...]) -> Iterator[Part]:
        """The parts of a table, in row order, without reading more than it takes to cut them.

        A source that only grows may yield the `earlier_parts` of its newest snapshot again without looking; the
        result does not depend on them otherwise.
        """
