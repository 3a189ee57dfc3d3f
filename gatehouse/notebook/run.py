"""Runs of pipelines in a notebook: starts them as `gatehouse run` does, and shows what they made."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from gatehouse.cli.run import run_project
from gatehouse.cli.terminal import summary
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.local_run import LocalRun, recorded_run
from gatehouse.notebook.artifacts import Artifact, Evaluation, Model, artifact_of
from gatehouse.notebook.table import Comparison, Row, Tabular, html_table, moment
from gatehouse.operations.ending.outcome import Outcome, run_outcome
from gatehouse.project.place import project_folder, store_address
from gatehouse.store.canonical import canonical_json
from gatehouse.store.records import changes
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.run import end_of
from gatehouse.store.store import ArtifactStore


class Run(Tabular):
    """A run of a pipeline, on this machine or on a cluster. Its data frame has a row for each stage."""

    def __init__(self, store: ArtifactStore, run: str) -> None:
        """Take a run by its id. Raises ConfigurationError if the store has no record of it."""
        self.store, self.id, self.title = store, run, f"run {run}"
        if not self.recorded.events and not self.recorded.plan:
            raise ConfigurationError(f"{store.address} has no record of a run {run!r}. See `Store.runs`.")

    def __repr__(self) -> str:
        return f"Run({self.id!r}, {self.state})"

    @cached_property
    def recorded(self) -> LocalRun:
        """Its plan and events."""
        return recorded_run(self.store, self.id)

    @cached_property
    def outcome(self) -> Outcome:
        """How it ended: state, and stage, error and message of a failure."""
        return run_outcome(self.store, self.id)

    @property
    def state(self) -> str:
        """`succeeded`, `failed` or `stopped`; `not ended` if no end is on record."""
        end = end_of(self.store, self.id)
        return str(end["state"]) if end else "not ended"

    @property
    def facts(self) -> Row:
        """Id, project, pipeline, state, time of the start in UTC, duration, and what was decided about the model."""
        end = end_of(self.store, self.id) or {}
        about = {"run": self.id, "project": end.get("project", ""), "pipeline": end.get("pipeline", "")}
        times = {"began": moment(self.outcome.began), "seconds": round(self.outcome.seconds, 1)}
        return about | {"state": str(end.get("state", "not ended"))} | times | {"decision": self.decision}

    def result(self, stage: str) -> dict[str, Any]:
        """The result of a stage that succeeded; empty if it did not, or did not run."""
        return self.recorded.result(stage)

    @property
    def decision(self) -> str:
        """What was decided about the candidate: approved, refused or inconclusive; empty if nothing was."""
        return str(self.result("register").get("decision", ""))

    @property
    def metrics(self) -> dict[str, float]:
        """The candidate's metrics on the test part; empty if nothing was evaluated."""
        return dict(self.result("evaluate").get("metrics") or {})

    @property
    def artifacts(self) -> list[Artifact]:
        """What its stages made or took from the memo, in their order."""
        results = [self.result(task.stage) for task in self.recorded.plan]
        return [artifact_of(self.store, reference) for reference in dict.fromkeys(references_in(results))]

    @property
    def model(self) -> Model:
        """The model that it trained. Raises ConfigurationError if it trained none."""
        return Model(self.store, self._made("train", "model"))

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of its model. Raises ConfigurationError if it made none."""
        return Evaluation(self.store, self._made("evaluate", "evaluation"))

    def _made(self, stage: str, field: str) -> Reference:
        reference = self.result(stage).get(field)
        if not reference:
            cause = f": {self.outcome.message}" if self.outcome.message else ""
            raise ConfigurationError(f"Run {self.id} ({self.state}) has no {field}{cause}.")
        return Reference.parse(reference)

    def rows(self) -> Iterator[Row]:
        """A row for each stage: how it ended, how long it took, what it says."""
        for task in self.recorded.plan:
            event = self.recorded.latest(task.stage)
            result = self.result(task.stage)
            says = next((str(result[name]) for name in ("decision", "verdict", "summary") if result.get(name)), "")
            ended = {
                "event": event.event if event else "waiting",
                "seconds": event.body.get("seconds") if event else None,
            }
            yield {"stage": task.stage, "title": task.title} | ended | {"says": says}

    def compare(self, other: "Run") -> Comparison:
        """The metrics of both, and the results of stages that differ."""
        names = (self.id, other.id)
        metrics = [
            {"metric": name} | {run.id: run.metrics.get(name) for run in (self, other)}
            for name in dict.fromkeys([*self.metrics, *other.metrics])
        ]
        results = ({f"{stage}.{field}": value for stage, field, value in run._results()} for run in (self, other))
        different = [{"name": name} | dict(zip(names, values, strict=True)) for name, *values in changes(*results)]
        return Comparison(" and ".join(names), metrics, different)

    def _results(self) -> Iterator[tuple[str, str, str]]:
        for task in self.recorded.plan:
            for field, value in self.result(task.stage).items():
                yield task.stage, field, value if isinstance(value, str) else canonical_json(value)

    def _repr_html_(self) -> str:
        facts = [{"": name, "value": value} for name, value in (*self.facts.items(), *summary(self.recorded))]
        return html_table(facts, self.title) + html_table(list(self.rows()))


def run(
    project: str | Path = "",
    pipeline: str = "training",
    *,
    store: str = "",
    until: str = "",
    reason: str = "",
    **parameters: Any,
) -> Run:
    """Run a pipeline of a project on this machine, as `gatehouse run` does, and print its steps.

    Args:
        project: Folder of the project; default: the current one.
        pipeline: `training`, `promotion`, `monitoring`, `scoring`, or another of the project's.
        store: Where everything is written; default: the project's store.
        until: The last stage that runs; default: all.
        reason: Why you run it; kept with what it makes.
        parameters: Those of the pipeline, such as `window="2013-01-01/2013-03-01"` or `seed=7`.

    Returns:
        The run, also if it failed: `state` and `outcome` say so.

    Raises:
        ConfigurationError: if there is no project, or a parameter is wrong.
        KeyboardInterrupt: if it was interrupted. The next run goes on from what is finished.
    """
    folder = project_folder(Path(project) if project else None).resolve()
    opened = ArtifactStore.open(store_address(store, folder))
    outcome = run_project(folder, pipeline, opened, parameters, until, reason)
    if (outcome.exit_code or 0) > 128:
        raise KeyboardInterrupt
    return Run(opened, outcome.run)
