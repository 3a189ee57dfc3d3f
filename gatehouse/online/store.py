"""The interface of online stores: the newest row of every key of a view, and how far each view is materialized.

For each key the row with the greatest (generation, event, created) is stored. So a correction with the same event time
replaces the row that it corrects, and a late row about an older event does not replace a newer one. Every
materialization is a new generation: for the keys that it writes, its rows replace those of earlier generations. A row
that is written on its own does not: it has to be newer by (event, created). A read gives the same values as an offline
join at the same moment; for a view with event times only, from the moment at which its newest row is known.
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
NEVER, FOREVER = -(2**62), 2**62  # Earlier and later than all times, in microseconds since 1970.


@dataclass(frozen=True)
class OnlineView:
    """One feature view as an online store holds it; the fields mean what they mean in `Joined`.

    `kinds` are the types of the join keys, `string` or `int64`, in their order; empty where they are not known.
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
    """How far a view has been materialized. Times are in microseconds since 1970.

    Attributes:
        generation: The newest generation that was completed.
        last: The newest generation that was begun. If it is above `generation`, a run is writing or was killed.
        base: The generation that last wrote the whole view.
        known: The watermark: all rows known up to it are written; None if there is none.
        settled: Rows known up to here do not change any more: the watermark, or earlier.
        past: Digest of the rows known up to `settled`, as the feature table gave them.
    """

    generation: int = 0
    last: int = 0
    base: int = 0
    known: int | None = None
    settled: int | None = None
    past: str = ""
    features: tuple[str, ...] = ()
    tables: str = ""

    def dump(self) -> str:
        """As text; equal states give equal text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def load(cls, text: str | bytes | None) -> "State":
        """From text; None gives the state of a view that was never written."""
        body: dict[str, Any] = json.loads(text) if text else {}
        body.pop("pushed", None)  # Stores that were written when features could be pushed have it.
        return cls(**{**body, "features": tuple(body.get("features", ()))})


class OnlineStore(Protocol):
    """The feature rows of one Feast project. Every method raises StoreError if the store cannot be reached.

    Writers need no lock: the store compares when it writes. Times are in microseconds since 1970.
    """

    def write(
        self,
        view: OnlineView,
        rows: pa.Table,
        generation: int | None = None,
        as_of: int = NEVER,
        provisional: int = NEVER,
    ) -> int:
        """Write rows in any order, repeatedly if needed; per key the greatest (generation, event, created) stays.

        Args:
            rows: The columns of the view, among others. A row without an event removes the stored row of its key.
            generation: The generation of the rows; by default the newest that was begun, for rows on their own.
            as_of: A stored row of an earlier generation also stays if it became known after this time and its (event,
                created) is not smaller; by default whenever it became known.
            provisional: The store notes the keys of rows known from this time on, which the next table may replace,
                and forgets the other keys. By default it notes all keys.

        Returns how many rows changed the content of the store. Raises ConfigurationError if Feast's layout does not
        support the type of a column.
        """
        ...

    def provisional(self, view: OnlineView) -> pa.Table:
        """The keys of provisional rows, shape (keys, join keys)."""
        ...

    def read(self, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
        """The features of `views` for each row of `keys`, in order; null where no fresh value is stored at `now`.

        `keys` has one column per join key; where a key is null, the features of its views are null. Raises
        ConfigurationError if a key column is missing or has another type than the view's key.
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


def require_materialized(store: OnlineStore, views: Iterable[OnlineView]) -> None:
    """Raises ConfigurationError with the views and features that the store has no values of."""
    states = [(view, store.state(view.name)) for view in views]
    missing = [
        view.name if state.known is None else f"{view.name}.{feature}"
        for view, state in states
        for feature in view.features
        if feature not in state.features
    ]
    if missing:
        raise ConfigurationError(
            f"The online store has no values of {', '.join(dict.fromkeys(missing))}. Write them with `gatehouse "
            "features materialize`."
        )


Read = Callable[[Sequence[OnlineView], pa.Table, datetime], pa.Table]


def read_present(read: Read, views: Sequence[OnlineView], keys: pa.Table, now: datetime) -> pa.Table:
    """`OnlineStore.read` on top of a `read` that takes keys without nulls and of the right type."""
    for view in views:
        for name, kind in zip(view.keys, view.kinds or ("",) * len(view.keys), strict=True):
            if name not in keys.column_names:
                present = ", ".join(keys.column_names) or "none"
                raise ConfigurationError(
                    f"Entity keys: expected a column {name}, a key of {view.name}, found {present}."
                )
            actual = keys.schema.field(name).type
            text = pa.types.is_string(actual) or pa.types.is_large_string(actual)
            whole = pa.types.is_integer(actual) and not pa.types.is_int32(actual)
            if kind and not (text if kind == "string" else whole):
                raise ConfigurationError(f"Entity key {name}: {view.name} has keys of type {kind}, found {actual}.")
    if not any(keys[key].null_count for view in views for key in view.keys):
        return read(views, keys, now)
    columns: dict[str, pa.ChunkedArray] = {}
    for view in views:
        valid = np.logical_and.reduce([keys[key].is_valid().to_numpy() for key in view.keys])
        values = read([view], keys.filter(pa.array(valid)), now)
        place = pa.array(np.cumsum(valid) - 1, mask=~valid)
        columns |= {name: values[name].take(place) for name in values.column_names}
    return pa.table(columns)


def key_table(view: OnlineView, keys: Sequence[tuple[str | int, ...]]) -> pa.Table:
    """Keys as a table with one column per join key of a view."""
    columns = zip(*keys, strict=True) if keys else [()] * len(view.keys)
    return pa.table(dict(zip(view.keys, map(pa.array, columns), strict=True)))


def online_view(view: View) -> OnlineView:
    """A repository view as an online store holds it."""
    spec = view.spec
    return OnlineView(
        name=view.name,
        keys=tuple(spec.entities),
        features=tuple(spec.features),
        event=EVENT_TIMESTAMP,
        created=KNOWN_FROM,
        ttl=spec.ttl,
        event_time_only=spec.event_time_only,
        kinds=view.kinds,
    )


def offline_join(view: OnlineView, table: str, prefix: str = "") -> Joined:
    """The offline join that gives the same values as an online read of `view`; `table` is SQL that can follow FROM."""
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
