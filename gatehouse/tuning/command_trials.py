"""Trials as runs of a command of the user's own, which prints its metrics."""

import math
import re
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

from gatehouse.launchers.launch_stage import STEPS, CommandRequest, finished_command
from gatehouse.launchers.launcher import TrainingFailedError
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.runner import Ended, RunningTrial, TrialThreads
from gatehouse.tuning.spec import PLACEHOLDER, CommandSearchSpec


class CommandTrials(TrialThreads):
    """Runs a command for each trial, with the trial's parameters in its arguments and in `$GATEHOUSE_PARAMETERS`.

    The last value that it prints of a metric is that of the trial. An interrupted trial goes on from its checkpoints.
    """

    def __init__(self, store: ArtifactStore, key: str, request: CommandRequest, spec: CommandSearchSpec) -> None:
        """Prepare trials of the study `key`."""
        super().__init__()
        self._store, self._key, self._request, self._spec = store, key, request, spec
        self._first = 1  # The number of the first step: 0 from when a trial prints it.

    def ended(self, trial: RunningTrial) -> Ended:
        """Run the command of a trial."""
        trial.job, objective = self._job(trial.number), self._spec.objective[0].metric

        def on_metrics(metrics: dict[str, float]) -> None:
            if objective in metrics and (steps := self._spec.steps_per_trial):
                numbers = (int(metrics[name]) for name in STEPS if math.isfinite(metrics.get(name, math.nan)))
                number = next(numbers, trial.done + self._first)
                self._first = min(self._first, max(number, 0))
                if (done := number + 1 - self._first) > trial.done:
                    trial.report(done, steps, metrics)

        parameters, names = dict(trial.parameters), [parameter.name for parameter in self._spec.parameters]
        command = self._request.command
        # As in an OptimizationJob of Kubeflow; a name may have characters that no variable has.
        texts = {re.sub(r"\W", "_", name).upper(): text for name, text in texts_of(parameters).items()}
        own = {f"KUBEFLOW_TRAINER_OPT_{name}": text for name, text in texts.items()}
        changes = {"command": filled(command.command, parameters, names), "environment": command.environment | own}
        command = command.model_copy(update=changes)
        request = self._request.model_copy(update={"command": command})
        with finished_command(self._store, trial.job, request, on_metrics, parameters=parameters) as (_, latest):
            pass
        if absent := [aim.metric for aim in self._spec.objective if aim.metric not in latest]:
            raise TrainingFailedError(
                f"The command ended well and printed no line with {absent[0]}=VALUE.", repeats=True
            )
        return Ended(trial.number, latest, latest, job=trial.job)

    def forget(self, number: int) -> None:
        """Remove what is left of a trial that is not run again."""
        shutil.rmtree(self._store.scratch(self._job(number)), ignore_errors=True)

    def _job(self, number: int) -> str:
        return f"search-{self._key[:16]}-{number}"


def unread(store: ArtifactStore, experiment: str, metric: str) -> list[str]:
    """A warning where trials with three parameters or more all gave one value, as no program may read them."""
    trials = [trial for trial in store.read_json(experiment, "trials.json") if metric in (trial["metrics"] or {})]
    values = {trial["metrics"][metric] for trial in trials}
    if len(values) != 1 or len({canonical_json(trial["parameters"]) for trial in trials}) < 3:
        return []
    return [
        f"All {len(trials)} trials gave {metric}={values.pop():g}. Does the command read its parameters? They replace "
        "{name} in it, and are in the file $GATEHOUSE_PARAMETERS."
    ]


def texts_of(parameters: Mapping[str, Any]) -> dict[str, str]:
    """The values of parameters as texts, by name."""
    return {name: value if isinstance(value, str) else canonical_json(value) for name, value in parameters.items()}


def filled(command: Iterable[str], parameters: Mapping[str, Any], names: Iterable[str]) -> tuple[str, ...]:
    """The command with the parameters of a trial in place of `{name}`.

    `names` are those of all parameters. An argument whose parameter the trial does not have is left out.

    Example:
        >>> filled(("train.py", "--rate={rate}", "--depth={depth}"), {"rate": 0.1}, ["rate", "depth"])
        ('train.py', '--rate=0.1')
    """
    texts = texts_of(parameters)
    absent = {*names} - texts.keys()
    return tuple(
        PLACEHOLDER.sub(lambda at: texts.get(at[1], at[0]), argument)
        for argument in command
        if absent.isdisjoint(PLACEHOLDER.findall(argument))
    )
