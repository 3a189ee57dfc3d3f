"""Runs of pipelines in a notebook: starts them as `gatehouse run` does, and shows what they made."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from gatehouse.cli.run import run_project
from gatehouse.cli.terminal import summary
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.local_run import LocalRun, recorded_run
from gatehouse.notebook.artifacts import Artifact, Evaluation, Model, artifact_of
from gatehouse.notebook.table import Listing, Row, Tabular
from gatehouse.operations.ending_stage import Outcome, run_outcome
from gatehouse.project.place import project_folder, store_address
from gatehouse.store.reference import references_in
from gatehouse.store.run import REASON, end_of
from gatehouse.store.store import ArtifactStore


class Run(Tabular):
    """A run of a pipeline, on this machine or a cluster. Its data frame has a row for each stage."""

    def __init__(self, store: ArtifactStore, run: str) -> None:
        self.store, self.id = store, run

    def __repr__(self) -> str:
        return f"Run({self.id}, {self.facts['state']})"

    @cached_property
    def recorded(self) -> LocalRun:
        """Its plan and its events."""
        return recorded_run(self.store, self.id)

    @property
    def outcome(self) -> Outcome:
        """How it ended, with the stage, the error and the message of a failure."""
        return run_outcome(self.store, self.id)

    @property
    def facts(self) -> dict[str, Any]:
        """Project, pipeline, state, start, seconds, decision about the model.

        Nothing records the end of a pipeline of your own. Its state is `failed` after a failure of a stage, `not ended`
        while a stage runs, and else `unknown`.
        """
        end, outcome = end_of(self.store, self.id) or {}, self.outcome
        runs = self.recorded.plan or outcome.error == "KilledError"
        state = "not ended" if runs else "unknown" if outcome.state == "succeeded" else outcome.state
        began = datetime.fromtimestamp(outcome.began, UTC) if outcome.began else None
        return {
            **{"run": self.id, "project": end.get("project"), "pipeline": end.get("pipeline")},
            **{"state": end.get("state", state), "began": began, "seconds": round(outcome.seconds, 1)},
            "decision": self.recorded.result("register").get("decision"),
        }

    @property
    def metrics(self) -> dict[str, float]:
        """The candidate's metrics on the test part; empty if nothing was evaluated."""
        return dict(self.recorded.result("evaluate").get("metrics") or {})

    @property
    def artifacts(self) -> list[Artifact]:
        """What its stages made or took from the memo, in their order."""
        results = [self.recorded.result(task.stage) for task in self.recorded.plan]
        return [artifact_of(self.store, reference) for reference in dict.fromkeys(references_in(results))]

    @property
    def model(self) -> Model:
        """The model that it trained. Raises ConfigurationError if it trained none."""
        return Model(self.store, self._made("train", "model"))

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of its model. Raises ConfigurationError if it made none."""
        return Evaluation(self.store, self._made("evaluate", "evaluation"))

    def _made(self, stage: str, field: str) -> str:
        if reference := self.recorded.result(stage).get(field):
            return str(reference)
        raise ConfigurationError(f"Run {self.id} has no {field}: {stage} gave none. {self.outcome.message}".rstrip())

    def rows(self) -> Iterable[Row]:
        """How each stage ended, how long it took, and what it says."""
        for task in self.recorded.plan:
            event, result = self.recorded.latest(task.stage), self.recorded.result(task.stage)
            says = next((str(result[name]) for name in ("decision", "verdict", "summary") if result.get(name)), "")
            ended = {"event": event.event, "seconds": event.body.get("seconds")} if event else {"event": "waiting"}
            yield {"stage": task.stage, "title": task.title, **ended, "says": says}

    def compare(self, other: "Run") -> Listing[Row]:
        """Compare the models of both runs, and how they were made."""
        return self.evaluation.compare(other.evaluation)

    def _repr_html_(self) -> str:
        facts = (*self.facts.items(), *summary(self.recorded))
        rows = ({"": name, "value": str(value).replace("\n", "  ")} for name, value in facts)
        return Listing(rows, dict)._repr_html_() + super()._repr_html_()


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

    `project` is its folder, by default the current one; `store` is where everything is written, by default that of the
    project; `until` is the last stage that runs; `reason` is kept with what it makes; `parameters` are those of the
    pipeline, such as `seed=7`. A run that failed is returned too: its `outcome` says so. Raises ConfigurationError if
    there is no project, KeyboardInterrupt if the run was interrupted; the next one goes on from what is finished.
    """
    folder = project_folder(Path(project) if project else None).resolve()
    opened = ArtifactStore.open(store_address(store, folder))
    before = os.environ.get(REASON)
    try:
        outcome = run_project(folder, pipeline, opened, parameters, until, reason)
    finally:
        if reason:  # It is that of this run alone.
            os.environ.pop(REASON)
            os.environ.update({REASON: before} if before else {})
    if (outcome.exit_code or 0) > 128:
        raise KeyboardInterrupt
    return Run(opened, outcome.run)
