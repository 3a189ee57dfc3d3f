"""How old the newest row of every feature view is, against what its definition allows: an operational metric.

It depends on the moment of measuring, so it is kept beside the feature tables, as a measurement, and never in them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from gatehouse.components.artifacts.declaration import Effects, Resources
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.components.features.definitions.repository import View

_UNITS = {name: timedelta(**{f"{name}s": 1}) for name in ("day", "hour", "minute", "second")}


@dataclass(frozen=True)
class Freshness:
    """The freshness of a view at a moment, from the rows that are known then.

    Attributes:
        view: Its name.
        allowed: The age that its definition allows; None for any.
        age: Age of its newest event; None where no row is known.
        known: How long ago its newest row became known: a correction is new, and about an old event.
        ahead: Rows that become known only later, as the clock is behind or the tables are of a later time.
    """

    view: str
    allowed: timedelta | None
    age: timedelta | None
    known: timedelta | None
    ahead: int

    @property
    def stale(self) -> bool:
        """Whether it is older than allowed; a view that must be fresh and has no known row is stale."""
        return self.allowed is not None and (self.age is None or self.age > self.allowed)

    @property
    def reason(self) -> str:
        """What is wrong with a stale view, and what was expected."""
        found = "no row is known" if self.age is None else f"its newest event is {self._age} old"
        allowed = "any age" if self.allowed is None else f"{_told(self.allowed)} at most"
        later = f"; {self.ahead} rows become known only later" if self.ahead else ""
        return f"{self.view}: {found}, expected {allowed}{later}"

    @property
    def _age(self) -> str:
        """The age in as few units as tell it well, and tell it from what is allowed."""
        age, allowed = self.age or timedelta(0), self.allowed or timedelta(0)
        cut = (age // unit * unit for unit in _UNITS.values() if age >= 10 * unit)
        return next((_told(one) for one in cut if one > allowed), f"more than {_told(min(age, allowed))}")


def _told(time: timedelta) -> str:
    """A span of time in words: `3 days 20 hours`."""
    words, left = [], time
    for name, unit in _UNITS.items():
        count, left = divmod(left, unit)
        if count:
            words.append(f"{count} {name}{'s' * (count > 1)}")
    return " ".join(words) or f"{time.total_seconds():g} seconds"


class FreshnessRequest(StageModel):
    """Feature tables, and the `as_of` of their sources (ISO 8601), which they are held against instead of the clock.

    A source that fell silent takes `as_of` with it: from there its views look as fresh as ever.
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

    What was measured is recorded under `measurements/`, beside the feature tables.
    """
    from gatehouse.components.features.definitions.repository import check_out
    from gatehouse.components.features.stage import feature_files

    moment = datetime.now(UTC) if request.against == "clock" else datetime.fromisoformat(request.as_of)
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
    found = measure_freshness(repository.views.values(), feature_files(store, request.feature_tables), moment)
    hours = {one.view: None if one.age is None else round(one.age / timedelta(hours=1), 3) for one in found}
    stale = [one for one in found if one.stale]
    measured = {"stage": "freshness", "moment": moment.isoformat(), "against": request.against, "hours": hours}
    store.append(f"measurements/{request.feature_tables}", measured | {"stale": [one.view for one in stale]})
    return FreshnessResult(
        hours=hours,
        stale=tuple(one.view for one in stale),
        verdict="fail" if stale else "pass",
        reasons=tuple(one.reason for one in stale),
    )


def show(result: FreshnessResult, metrics: Any) -> None:
    """Fill KFP's typed output (Metrics): the number of stale views, and the age of every view in hours."""
    metrics.log_metric("stale views", len(result.stale))
    for view, hours in result.hours.items():
        if hours is not None:
            metrics.log_metric(f"{view}: hours old", hours)


def measure_freshness(views: Iterable[View], tables: Mapping[str, Path], moment: datetime) -> list[Freshness]:
    """The freshness of views at `moment`, in their order; those that are static have no age and are left out.

    A view whose query fills a time grid up to `as_of` is as new as that, whatever its sources had to say.

    Args:
        views: The views.
        tables: The Parquet file or folder of each view.
        moment: When; rows known from later on do not count.
    """
    from gatehouse.components.features.computing.compute import connect, rows_of

    found = []
    with connect() as connection:
        for view in views:
            if view.spec.static:
                continue
            known = f"\"{KNOWN_FROM}\" <= TIMESTAMPTZ '{moment.isoformat()}'"
            event, since, ahead = connection.execute(
                f'SELECT max("{EVENT_TIMESTAMP}") FILTER ({known}), max("{KNOWN_FROM}") FILTER ({known}), '
                f"count(*) FILTER (NOT {known}) FROM {rows_of([tables[view.name]])}"
            ).fetchall()[0]
            age, known_for = (None if newest is None else moment - newest for newest in (event, since))
            found.append(Freshness(view.name, view.spec.freshness, age, known_for, ahead))
    return found
