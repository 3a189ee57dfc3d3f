"""The stage that measures and judges how old the newest row of every feature view is: an operational metric.

The age depends on the time of measuring, so it is stored beside the feature tables as a measurement.
"""

from datetime import UTC, datetime, timedelta
from typing import Literal

from gatehouse.store.stage import Effects, Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore


class FreshnessRequest(StageModel):
    """Feature tables, and what their age is measured from.

    If a source stops, its `as_of` stops too. Measured from `as_of`, the views then look as fresh as before.

    Attributes:
        feature_tables: Reference of the feature tables.
        definitions: Reference of the feature definitions.
        as_of: Time of the run, ISO 8601.
        against: What age is measured from: `as_of` or `clock`.
    """

    feature_tables: str
    definitions: str
    as_of: str
    against: Literal["as_of", "clock"] = "clock"


class FreshnessResult(StageModel):
    """By view the age of its newest event in hours (absent without a known row), and the verdict on the ages."""

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
    """Measure the freshness of every view that has a time, and judge it; a view without a limit is only measured.

    The result is recorded under `measurements/`, beside the feature tables.
    """
    from gatehouse.features.definitions.repository import check_out
    from gatehouse.features.freshness.age import freshness_of, newest_rows
    from gatehouse.features.table_files import feature_files

    moment = datetime.now(UTC) if request.against == "clock" else datetime.fromisoformat(request.as_of)
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
    views = [view for view in repository.views.values() if not view.spec.static]
    measured = freshness_of(views, newest_rows(views, feature_files(store, request.feature_tables), moment), moment)
    hours = {view.view: None if view.age is None else round(view.age / timedelta(hours=1), 3) for view in measured}
    stale = [view for view in measured if view.stale]
    result = FreshnessResult(
        hours=hours,
        stale=tuple(view.view for view in stale),
        verdict="fail" if stale else "pass",
        reasons=tuple(view.reason for view in stale),
    )
    record = {"stage": "freshness", "moment": moment.isoformat(), "against": request.against, "hours": hours}
    store.append(f"measurements/{request.feature_tables}", record | {"stale": list(result.stale)})
    return result
