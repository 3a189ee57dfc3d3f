"""How the rows of a view of the repository are joined: by its keys, its times, and its time to live."""

from collections.abc import Sequence

from gatehouse.components.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.components.features.definitions.repository import View
from gatehouse.components.features.point_in_time.asof_join import Joined


def joined(view: View, table: str, features: Sequence[str] = ()) -> Joined:
    """The join of a view.

    Args:
        view: The view.
        table: Where its rows are: a name, or any SQL that can follow FROM.
        features: Which of its features; by default all.
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
