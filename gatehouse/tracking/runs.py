"""Reads runs from MLflow: whole pages with their latest metrics, and metric histories only when needed."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from gatehouse.errors import ConfigurationError
from gatehouse.tracking.mlflow_client import PAGE, PARENT, every, quiet_client

if TYPE_CHECKING:
    from mlflow.entities import Run

SYSTEM = "system/"
_INFINITE = 1.797e308


@dataclass(frozen=True)
class TrackedRun:
    """One run in MLflow, with the last value of each metric; times in seconds since 1970, `ended` None while it runs.

    `status` is RUNNING, FINISHED, FAILED, KILLED or SCHEDULED; parameters are MLflow's text.
    """

    id: str
    name: str
    experiment: str
    status: str
    user: str
    started: float
    ended: float | None
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def parent(self) -> str:
        """Id of the parent run, or empty."""
        return self.tags.get(PARENT, "")

    @property
    def duration(self) -> float | None:
        """Seconds from start to end; None while it runs."""
        return None if self.ended is None else round(self.ended - self.started, 3)

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON; numbers that JSON lacks (NaN, infinity) become null."""
        metrics = {name: _jsonable(value) for name, value in self.metrics.items()}
        return asdict(self) | {"duration": self.duration, "parent": self.parent, "metrics": metrics}


@dataclass(frozen=True)
class Observed:
    """One value of a metric, and when it was logged, in seconds since 1970."""

    step: int
    value: float
    at: float

    def to_json(self) -> dict[str, Any]:
        """As JSON; numbers that JSON lacks become null."""
        return asdict(self) | {"value": _jsonable(self.value)}


class RunReader:
    """Reads runs of one MLflow, from a database or a server."""

    def __init__(self, uri: str, experiment: str = "") -> None:
        """Use the experiment with this name, or all not deleted. Raises ConfigurationError if there is no such one."""
        self._client = quiet_client(uri)
        names = {str(entry.experiment_id): str(entry.name) for entry in every(self._client.search_experiments)}
        self._experiments = {key: name for key, name in names.items() if not experiment or name == experiment}
        if experiment and not self._experiments:
            listed = ", ".join(sorted(names.values())) or "(none)"
            raise ConfigurationError(f"--experiment: expected one of {listed}, found {experiment!r}.")

    def runs(self, condition: str = "", limit: int | None = None) -> Iterator[TrackedRun]:
        """Runs that match an MLflow filter, newest first; one call per thousand runs."""
        token: str | None = None
        left = math.inf if limit is None else limit
        while self._experiments and left > 0:
            page = self._client.search_runs(
                list(self._experiments),
                condition,
                max_results=int(min(PAGE, left)),
                order_by=["attributes.start_time DESC"],
                page_token=token,
            )
            yield from map(self._read, page)
            left -= len(page)
            token = page.token
            if not token:
                return

    def find(self, text: str) -> TrackedRun:
        """The run with this id, beginning of an id, or name. Raises ConfigurationError if there is none, or several."""
        runs: list[TrackedRun] = []
        if re.fullmatch(r"[0-9a-fA-F]{4,}", text):
            runs = list(self.runs(f"attributes.run_id LIKE '{text.lower()}%'", limit=6))
        if not runs and "'" not in text:
            runs = list(self.runs(f"attributes.run_name = '{text}'", limit=6))
        if len(runs) == 1:
            return runs[0]
        if not runs:
            raise ConfigurationError(
                f"{text}: expected the id of a run, its beginning (4 characters and more) or its name, found no such "
                "run. See `gatehouse runs list`."
            )
        several = ", ".join(f"{run.id[:12]} ({run.name})" for run in runs[:5])
        raise ConfigurationError(f"{text} names several runs: {several}{', …' * (len(runs) > 5)}. Give an id.")

    def children(self, run: TrackedRun) -> list[TrackedRun]:
        """The runs directly below a run, the oldest first."""
        return list(self.runs(f"tags.`{PARENT}` = '{run.id}'"))[::-1]

    def history(self, run: TrackedRun, names: Sequence[str]) -> dict[str, list[Observed]]:
        """All values of these metrics by step and time; one call per metric."""
        histories: dict[str, list[Observed]] = {}
        for name in names:
            metrics = self._client.get_metric_history(run.id, name)
            points = sorted((int(point.step), float(point.timestamp) / 1000, _logged(point.value)) for point in metrics)
            histories[name] = [Observed(step, value, at) for step, at, value in points]
        return histories

    def _read(self, run: "Run") -> TrackedRun:
        info = run.info
        ended = None if info.end_time is None else info.end_time / 1000
        return TrackedRun(
            id=str(info.run_id),
            name=str(info.run_name or ""),
            experiment=self._experiments[str(info.experiment_id)],
            status=str(info.status),
            user=str(info.user_id or ""),
            started=info.start_time / 1000,
            ended=ended,
            params=dict(run.data.params),
            metrics={name: _logged(value) for name, value in run.data.metrics.items()},
            tags=dict(run.data.tags),
        )


def _logged(value: float) -> float:
    """The value that was logged: MLflow's databases store infinity as their largest number."""
    return math.copysign(math.inf, value) if abs(value) >= _INFINITE else float(value)


def _jsonable(value: float) -> float | None:
    return value if math.isfinite(value) else None
