"""The stage that searches the parameters of a command of the user's own."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from gatehouse.launchers.spec import CommandSpec
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of, operational
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.spec import CommandSearchSpec

logger = logging.getLogger(__name__)


class SearchRequest(StageModel):
    """The search space, and the command of a trial."""

    name: str
    spec: CommandSearchSpec
    trial: CommandSpec
    inputs: dict[str, str] = Field({}, description="SHA-256 of each input by its name; the user's program is `code`.")
    files: dict[str, str] = operational({}, description="Their paths on this machine.")
    seed: int = 0


class SearchResult(StageModel):
    """The experiment; the best parameters as JSON; the value of the best trial, and a summary."""

    experiment: str
    best: str
    value: float
    summary: str
    ended: str
    provisional_trials: int = 0

    @property
    def provisional(self) -> bool:
        """Whether the experiment continues when it is requested again."""
        return self.ended == "stopped" or self.provisional_trials > 0


def search_spec(body: Mapping[str, Any]) -> CommandSearchSpec:
    """The search of a configuration, which may be a Katib Experiment. Raises pydantic's ValidationError."""
    if body.get("kind") == "Experiment":
        from gatehouse.tuning.katib import command_search

        body, left = command_search(body)
        for place, why in left:
            logger.warning("experiment.%s is left out: %s", place, why)
    return CommandSearchSpec.model_validate(body)


@stage(
    "search",
    title="Search parameters",
    effects=Effects(memo=True, why="Goes on with the trials that its journal in the store holds."),
    pages={"experiments": "gatehouse.tuning.reports.page:page"},
    tracked="experiment",
)
def search(request: SearchRequest, store: ArtifactStore) -> SearchResult:
    """Run the experiment; its artifact is that of `tune`, and it goes on in the same cases.

    Raises:
        ExperimentFailedError: if too many trials failed, or none is usable.
        SecondControllerError: if another process runs the same experiment.
    """
    from gatehouse.tuning.command_trials import CommandTrials
    from gatehouse.tuning.experiment import run_experiment

    spec = request.spec
    key = search.key(request.model_copy(update={"spec": spec.endless}))
    files = {name: Path(path) for name, path in request.files.items()}
    trials = CommandTrials(store, key, request.trial, files, spec)
    conducted = run_experiment(
        store,
        search,
        request,
        key,
        trials,
        name=request.name,
        steps=spec.steps_per_trial or 1,
        origin={},
        configuration={"trial": identity_of(request.trial), "inputs": request.inputs},
    )
    result = conducted.result
    searched = SearchResult(
        experiment=conducted.experiment,
        best=canonical_json(result.settings),
        value=result.best.values[spec.objective[0].metric],
        summary=conducted.summary,
        ended=result.ended,
        provisional_trials=len(result.provisional),
    )
    for trial in () if searched.provisional else result.trials:
        trials.forget(trial.number)
    return searched
