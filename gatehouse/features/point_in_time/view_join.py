"""How the rows of a view are joined: by its keys, its times, and its time to live."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.features.definitions.repository import View


@dataclass(frozen=True)
class Joined:
    """One view of a join.

    Attributes:
        table: Name of its table in the connection, or any SQL that can follow FROM.
        keys: Column of the entity rows by key column of the table; empty for a view without entities.
        event: Column with the event timestamp.
        features: Output name by feature column.
        created: Column with the created timestamp; empty for none. A null in it counts as known at the event.
        ttl: How long a row stays fresh; None or zero for ever.
        event_time_only: Use `created` only to order equal events, not as the time when a row became known.
    """

    table: str
    keys: dict[str, str]
    event: str
    features: dict[str, str] = field(default_factory=dict)
    created: str = ""
    ttl: timedelta | None = None
    event_time_only: bool = False


def joined(view: View, table: str, features: Sequence[str] = ()) -> Joined:
    """The join of a view.

    Args:
        view: The view.
        table: Where its rows are: a name, or any SQL that can follow FROM.
        features: Features to join; by default all.
    """
    return Joined(
        table=table,
        keys={key: key for key in view.spec.entities},
        event=EVENT_TIMESTAMP,
        created=KNOWN_FROM,
        features={feature: feature for feature in features or view.spec.features},
        ttl=view.spec.ttl,
        event_time_only=view.spec.event_time_only,
    )
