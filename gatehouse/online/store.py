"""The interface of online stores: the newest row of every key of a view, and how far each view is materialized.

For each key the row with the greatest (event, created) is stored. So a correction with the same event time replaces the
row that it corrects, and a late row about an older event does not replace a newer one. A rewrite of a view is a new
generation: its rows replace those of earlier generations, whatever their times. A read gives the same values as an
offline join at the same moment.

Pushed rows, and rows that are provisional in their feature table, are valid until the next table. The store keeps the
keys of both kinds, and `settle` writes the next table's row for them: a newer row, an older one, or none.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.features.definitions.repository import View
from gatehouse.features.point_in_time.asof_join import Joined

_MICROSECOND = timedelta(microseconds=1)
NEVER = -(2**62)  # Earlier than all times, in microseconds since 1970.


@dataclass(frozen=True)
class OnlineView:
    """One feature view as an online store holds it.

    Attributes:
        name: Its name in Feast.
        keys: Join key columns.
        features: Feature columns.
        event: Column with the event timestamp.
        created: Column with the created timestamp; empty for none. A null in it counts as known at the event.
        ttl: How long a row stays fresh; None or zero for ever.
        event_time_only: Whether a row counts from its event time on, whenever it was created.
        kinds: Types of the join keys, `string` or `int64`, in their order; empty where they are not known.
    """

    name: str
    keys: tuple[str, ...]
    features: tuple[str, ...]
    event: str
    created: str = ""
    ttl: timedelta | None = None
    event_time_only: bool = False
    kinds: tuple[str, ...] = ()

    def oldest(self, now: datetime) -> int:
        """The oldest event time that is fresh at `now`, in microseconds since 1970."""
        return epoch_us(now) - self.ttl // _MICROSECOND if self.ttl else NEVER


@dataclass(frozen=True)
class State:
    """How far a view has been materialized.

    Attributes:
        generation: The generation whose rows are complete.
        known: The watermark: all rows known up to it are written, in microseconds since 1970; None if there is none.
        settled: Rows known up to here do not change any more, in microseconds since 1970: the watermark, or earlier.
        past: Digest of the rows known up to `settled`, as the feature table gave them.
        features: The columns that are written.
        last: The newest generation that was started. If it is above `generation`, a rewrite is running or was killed.
        target: Digest of the rows being written, or being written when the writer was killed; empty if there are none.
        writing: The generation of these rows.
        done: How many of these rows are written.
        tables: Reference of the feature tables that were written up to the watermark; empty if it is not known.
        pushed: The newest `as_of` of the pushed batches, in microseconds since 1970; None without any.
    """

    generation: int = 0
    known: int | None = None
    settled: int | None = None
    past: str = ""
    features: tuple[str, ...] = ()
    last: int = 0
    target: str = ""
    writing: int = 0
    done: int = 0
    tables: str = ""
    pushed: int | None = None

    def dump(self) -> str:
        """As text; equal states give equal text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def load(cls, text: str | bytes | None) -> "State":
        """From text; None gives the state of a view that was never written."""
        body: dict[str, Any] = json.loads(text) if text else {}
        return cls(**{**body, "features": tuple(body.get("features", ()))})


class OnlineStore(Protocol):
    """The feature rows of one Feast project. Writers need no lock: the store compares when it writes."""

    def write(self, view: OnlineView, rows: pa.Table, generation: int | None = None, provisional: int = NEVER) -> int:
        """Write rows in any order, repeatedly if needed; per key the row with the greatest (event, created) stays.

        Args:
            view: The view of the rows.
            rows: The columns of the view, among others.
            generation: The generation of the rows, which replace those of earlier generations; by default the newest
                that was started, for rows that arrive one by one.
            provisional: Keys of rows known from this time on are kept as provisional, in microseconds since 1970; by
                default the keys of all rows.

        Returns:
            How many rows changed the content of the store.

        Raises:
            ConfigurationError: if Feast's layout does not support the type of a column.
            StoreError: if the store cannot be reached.
        """
        ...

    def provisional(self, view: OnlineView) -> pa.Table:
        """The keys of provisional rows, shape (keys, join keys)."""
        ...

    def settle(self, view: OnlineView, rows: pa.Table, generation: int, as_of: int, provisional: int) -> int:
        """Write a feature table's rows for keys, replacing stored rows; a row without an event removes its key.

        Two kinds of stored rows stay: rows of a later generation, and pushed rows that are greater and became known
        after `as_of`.

        Args:
            view: The view of the rows.
            rows: The columns of the view, one row per key.
            generation: The generation of the rows.
            as_of: The time, in microseconds since 1970.
            provisional: As in `write`; the keys of other rows are no longer provisional.

        Returns:
            How many keys changed.
        """
        ...

    def read(self, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
        """The features of `views` for each row of `keys`, in order; null where no fresh value is stored at `now`.

        Args:
            views: The views to read; views with the same keys need one look-up together.
            keys: One column per join key. Where a key is null, the features of its views are null.
            now: The moment of the read; UTC where it has no zone.

        Returns:
            One column per feature, in the order of `views`.

        Raises:
            ConfigurationError: if a key column is missing or has another type than the view's key.
            StoreError: if the store cannot be reached.
        """
        ...

    def state(self, view: str) -> State:
        """How far a view has been materialized."""
        ...

    def swap(self, view: str, before: State, after: State) -> bool:
        """Set the state of a view if it is still `before`. Returns whether it was set."""
        ...

    def sweep(self, view: OnlineView, generation: int, dropped: Sequence[str] = ()) -> None:
        """Remove rows of a view that are older than `generation`, and the features in `dropped`."""
        ...


def require_materialized(store: OnlineStore, views: Iterable[OnlineView]) -> dict[str, int]:
    """The watermark of every view.

    Raises:
        ConfigurationError: naming the views and features that the store did not have when it was last materialized.
    """
    states = {view.name: (view, store.state(view.name)) for view in views}
    lacking = [
        name if state.known is None else f"{name}.{feature}"
        for name, (view, state) in states.items()
        for feature in view.features
        if feature not in state.features
    ]
    if lacking:
        raise ConfigurationError(
            f"The online store has no values of {', '.join(dict.fromkeys(lacking))}. Write them with `gatehouse "
            "features materialize`."
        )
    return {name: state.known or 0 for name, (_, state) in states.items()}


Read = Callable[[Sequence[OnlineView], pa.Table, datetime], pa.Table]


def read_known(read: Read, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
    """`OnlineStore.read` on top of a `read` that takes keys which are present and of the right type."""
    _check_keys(views, keys)
    asked = dict.fromkeys(key for view in views for key in view.keys)
    if not any(keys[key].null_count for key in asked):
        return read(views, keys, now)
    columns: dict[str, pa.ChunkedArray] = {}
    for view in views:
        known = np.logical_and.reduce([keys[key].is_valid().to_numpy() for key in view.keys])
        found = read([view], keys.filter(pa.array(known)), now)
        place = pa.array(np.cumsum(known) - 1, mask=~known)
        columns |= {name: found[name].take(place) for name in found.column_names}
    return pa.table(columns)


def _check_keys(views: Sequence[OnlineView], keys: pa.Table) -> None:
    if not isinstance(keys, pa.Table):
        raise ConfigurationError(
            f"Entity keys: expected a pyarrow table with one column per key, found {type(keys).__name__}. "
            "pyarrow.Table.from_pylist builds one from a list of dicts."
        )
    for view in views:
        for name, kind in zip(view.keys, view.kinds or ("",) * len(view.keys), strict=True):
            if name not in keys.column_names:
                found = ", ".join(keys.column_names) or "none"
                raise ConfigurationError(f"Entity keys: expected a column {name}, a key of {view.name}, found {found}.")
            found = keys.schema.field(name).type
            if kind and not _holds(kind, found):
                raise ConfigurationError(
                    f"Entity key {name}: {view.name} has keys of type {kind}, found {found}, which matches no row. "
                    f"Cast the column to {kind}."
                )


def _holds(kind: str, found: pa.DataType) -> bool:
    """Whether key values of a column of type `found` are written in the same way as keys of `kind`."""
    if kind == "string":
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    return bool(pa.types.is_integer(found) and not pa.types.is_int32(found))


def online_view(view: View, features: Sequence[str] = ()) -> OnlineView:
    """A repository view as an online store holds it, with all its features or some."""
    spec = view.spec
    chosen = tuple(features or spec.features)
    return OnlineView(
        name=view.name,
        keys=tuple(spec.entities),
        features=chosen,
        event=EVENT_TIMESTAMP,
        created=KNOWN_FROM,
        ttl=spec.ttl,
        event_time_only=spec.event_time_only,
        kinds=view.kinds,
    )


def offline_join(view: OnlineView, table: str, prefix: str = "") -> Joined:
    """The offline join that gives the same values as an online read of `view`.

    Args:
        view: The view.
        table: Where its rows are: any SQL that can follow FROM.
        prefix: Prefix of the feature names in the result.
    """
    return Joined(
        table=table,
        keys={key: key for key in view.keys},
        event=view.event,
        created=view.created,
        features={feature: f"{prefix}{feature}" for feature in view.features},
        ttl=view.ttl,
        event_time_only=view.event_time_only,
    )


def epoch_us(moment: datetime) -> int:
    """A time as exact microseconds since 1970; a time without a zone is UTC."""
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - datetime.fromisoformat("1970-01-01T00:00:00+00:00")) // _MICROSECOND
