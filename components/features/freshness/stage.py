"""The stage that measures how old the newest row of every feature view is, and judges it: an operational metric.

It depends on the moment of measuring, so it is kept beside the feature tables, as a measurement, and never in them.
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from gatehouse.components.artifacts.declaration import Effects, Resources
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.components.features.freshness.age import Newest


class FreshnessRequest(StageModel):
    """Feature tables, and the `as_of` of their sources (ISO 8601): ages are measured from it, not from the clock.

    If a source falls silent, `as_of` stands still too, and measured from it the views look as fresh as before.
    """

    feature_tables: str
    definitions: str
    as_of: str
    against: Literal["as_of", "clock"] = "clock"


class FreshnessResult(StageModel):
    """The age of the newest event in hours by view (none for a view without a known row), and the verdict on it."""

    hours: dict[str, float | None]
    stale: tuple[str, ...]
    verdict: str
    reasons: tuple[str, ...]


@stage(
    "freshness",
    title="Measure freshness",
    effects=Effects(
        reads="the clock, unless the project says as_of",
        writes="a measurement",
        why="Feature tables age without any parameter changing; a repeat measures again.",
    ),
    resources=Resources(cpu="500m", memory="1G", minutes=10),
)
def freshness(request: FreshnessRequest, store: ArtifactStore) -> FreshnessResult:
    """Measure the freshness of every view that has a time, and judge it; a view that states none is only measured.

    What was measured is recorded under `measurements/`, beside the feature tables. These never change: where the newest
    record knows all their rows, it is read in their place.
    """
    from gatehouse.components.features.definitions.repository import check_out
    from gatehouse.components.features.freshness.age import freshness_of, newest_rows
    from gatehouse.components.features.table_files import feature_files

    moment = datetime.now(UTC) if request.against == "clock" else datetime.fromisoformat(request.as_of)
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
    views = [view for view in repository.views.values() if not view.spec.static]
    newest = _recorded(store, request.feature_tables, moment)
    if newest.keys() != {view.name for view in views}:
        newest = newest_rows(views, feature_files(store, request.feature_tables), moment)
    found = freshness_of(views, newest, moment)
    hours = {one.view: None if one.age is None else round(one.age / timedelta(hours=1), 3) for one in found}
    stale = [one for one in found if one.stale]
    measured = {"stage": "freshness", "moment": moment.isoformat(), "against": request.against, "hours": hours}
    measured |= {"stale": [one.view for one in stale], "newest": {name: row.told() for name, row in newest.items()}}
    store.append(f"measurements/{request.feature_tables}", measured)
    return FreshnessResult(
        hours=hours,
        stale=tuple(one.view for one in stale),
        verdict="fail" if stale else "pass",
        reasons=tuple(one.reason for one in stale),
    )


def _recorded(store: ArtifactStore, feature_tables: str, moment: datetime) -> "dict[str, Newest]":
    """The newest rows as the newest record says; empty where it cannot say them.

    It cannot where it is of another stage or of a later moment, or where rows were to become known later.
    """
    from gatehouse.components.artifacts.records import read_record
    from gatehouse.components.features.freshness.age import Newest

    last = max(store.objects.list(f"measurements/{feature_tables}"), default="")
    told = (read_record(store.objects, last) if last else None) or {}
    found = {name: Newest.of(row) for name, row in told.get("newest", {}).items()}
    if not found or datetime.fromisoformat(told["moment"]) > moment or any(row.ahead for row in found.values()):
        return {}
    return found
