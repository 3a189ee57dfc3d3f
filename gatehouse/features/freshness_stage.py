"""The stage that measures and judges how old the newest row of every feature view is: an operational metric.

The age depends on the time of measuring, so it is stored beside the feature tables as a measurement.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.features.definitions.repository import View
    from gatehouse.features.table_files import Files


class FreshnessRequest(StageModel):
    """Feature tables, and what their age is measured from; `as_of` is the time of the run, ISO 8601.

    If a source stops, its `as_of` stops too. Measured from `as_of`, the views then look as fresh as before.
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
    advisory=True,
    title="Measure freshness",
    effects=Effects(
        reads="the clock, unless the project says as_of",
        writes="a measurement",
        why="Feature tables age without any parameter changing; a repeat measures again.",
    ),
)
def freshness(request: FreshnessRequest, store: ArtifactStore) -> FreshnessResult:
    """Measure the freshness of every view that has a time, and judge it; a view without a limit is only measured.

    The result is recorded under `measurements/`, beside the feature tables.
    """
    from gatehouse.features.definitions.repository import check_out
    from gatehouse.features.table_files import feature_files

    moment = datetime.now(UTC) if request.against == "clock" else datetime.fromisoformat(request.as_of)
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
    views = [view for view in repository.views.values() if not view.spec.static]
    measured = freshness_of(views, feature_files(store, request.feature_tables), moment)
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


@dataclass(frozen=True)
class Freshness:
    """The freshness of a view at a moment, from the rows that are known at that moment.

    Attributes:
        known_age: Time since its newest row became known. This row can be a correction of an old event.
        ahead: Number of rows that become known only later.
    """

    view: str
    allowed: timedelta | None
    age: timedelta | None
    known_age: timedelta | None
    ahead: int

    @property
    def stale(self) -> bool:
        """Whether the view is older than allowed; a view with a limit and no known row is stale."""
        return self.allowed is not None and (self.age is None or self.age > self.allowed)

    @property
    def reason(self) -> str:
        """Why the view is stale, and what was expected."""
        seconds = timedelta(seconds=1)
        newest = "no row is known" if self.age is None else f"its newest event is {self.age // seconds * seconds} old"
        later = f"; {self.ahead} rows become known only later" if self.ahead else ""
        return f"{self.view}: {newest}, expected {self.allowed} at most{later}"


def freshness_of(views: "Iterable[View]", tables: "Mapping[str, Files]", moment: datetime) -> list[Freshness]:
    """The freshness at `moment` of views that are not static, in their order, from the files of their tables.

    A view whose query fills a time grid up to `as_of` is always fresh, whatever its sources hold.
    """
    from gatehouse.features.database import connect, rows_of
    from gatehouse.store.database import quoted, time_literal

    event, known_from = quoted(EVENT_TIMESTAMP), quoted(KNOWN_FROM)
    is_known, measured = f"{known_from} <= {time_literal(moment)}", list[Freshness]()
    with connect() as connection:
        for view in views:
            newest_event, newest_known, ahead = connection.execute(
                f"SELECT max({event}) FILTER ({is_known}), max({known_from}) FILTER ({is_known}), "
                f"count(*) FILTER (NOT {is_known}) FROM {rows_of([*tables[view.name].values()])}"
            ).fetchall()[0]
            age, known_age = (None if time is None else moment - time for time in (newest_event, newest_known))
            measured.append(Freshness(view.name, view.spec.freshness, age, known_age, ahead))
    return measured


def show(result: FreshnessResult, metrics: Any) -> None:
    """Fill KFP's typed output (Metrics): the number of stale views, and the age of every view in hours."""
    metrics.log_metric("stale views", len(result.stale))
    for view, hours in result.hours.items():
        if hours is not None:
            metrics.log_metric(f"{view}: hours old", hours)
