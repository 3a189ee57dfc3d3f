"""Ranking: the order of the rows of a group."""

from typing import TYPE_CHECKING

from gatehouse.metrics.tasks.task import Task, lacks_variety

if TYPE_CHECKING:
    from gatehouse.metrics.metric import Array, Predictions
    from gatehouse.metrics.tasks.task import Mask


def _is_label(labels: "Array") -> "Mask":
    return (labels >= 0) & (labels < float("inf"))


def _read(scores: "Array", groups: "Array | None") -> "Predictions":
    from gatehouse.metrics.metric import Predictions

    return Predictions(scores, groups=groups)


RANKING = Task(
    name="ranking",
    losses={"pairwise": "pairwise"},
    output="score",
    watched=("ndcg",),
    label="finite numbers from 0 up",
    is_label=_is_label,
    lacks=lacks_variety,
    read=_read,
)
