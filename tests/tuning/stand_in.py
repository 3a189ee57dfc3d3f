"""Stand-ins for training: objectives that are curves over epochs, told at once and without a thread."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gatehouse.launchers.launcher import TrainingFailedError, TrainingTimeoutError
from gatehouse.tuning.runner import Ended, Event, Reported
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.study import ExperimentStudy
from gatehouse.tuning.trial import Trial

STEPS = 4
RATE = {"name": "optimizer.learning_rate", "type": "double", "min": 1e-4, "max": 1e-1, "log": True}
DECAY = {"name": "optimizer.weight_decay", "type": "double", "min": 0.0, "max": 0.5}
DROPOUT = {"name": "model.dropout", "type": "double", "min": 0.0, "max": 0.5, "step": 0.1}
BATCH = {"name": "data.batch_size", "type": "categorical", "choices": [64, 128, 256]}
ARCHITECTURE = {"name": "model.architecture", "type": "categorical", "choices": ["tabular_mlp", "xgboost"]}
OF_TREES, OF_NETWORKS = ({"when": {"model.architecture": architecture}} for architecture in ("xgboost", "tabular_mlp"))
DEPTH = {"name": "model.max_depth", "type": "int", "min": 3, "max": 9, "step": 2} | OF_TREES
CONDITIONAL = [ARCHITECTURE, RATE | OF_NETWORKS, RATE | OF_TREES | {"min": 0.02, "max": 0.3}, DEPTH]
SPACES: dict[str, list[dict[str, Any]]] = {
    "RandomSampler": CONDITIONAL,
    "GridSampler": [BATCH, DROPOUT],
    "QMCSampler": [RATE, DECAY, BATCH],
    "TPESampler": CONDITIONAL,
    "GPSampler": [RATE, DECAY],
    "CmaEsSampler": [RATE, DECAY],
    "NSGAIISampler": CONDITIONAL,
}
"""A search space for each algorithm."""


def experiment(**settings: Any) -> ExperimentSpec:
    """An experiment of one parameter, or as it is settings."""
    return ExperimentSpec.model_validate(
        {"parameters": [RATE], "steps_per_trial": STEPS, "objective": "log_loss"} | settings
    )


def loss(parameters: dict[str, Any], step: int, steps: int = STEPS) -> float:
    """A learning curve: what the parameters lead to, and what the steps still lack."""
    rate = parameters.get("optimizer.learning_rate", 0.01)
    final = 0.1 * math.log10(rate / 0.01) ** 2 + 0.2 * parameters.get("model.dropout", 0.0)
    final += parameters.get("optimizer.weight_decay", 0.2) ** 2 - parameters.get("model.max_depth", 3) / 20
    return float(0.4 + final + 0.3 * (steps - step) / steps)


Script = Callable[[int, dict[str, Any]], Iterator[Event]]


def trained(number: int, parameters: dict[str, Any]) -> Iterator[Event]:
    """A trial that reports every epoch and succeeds."""
    for epoch in range(1, STEPS + 1):
        yield Reported(number, epoch, STEPS, {"log_loss": loss(parameters, epoch)})
    value = loss(parameters, STEPS)
    size = 100.0 * parameters.get("model.max_depth", 3)
    yield Ended(number, {"log_loss": value, "roc_auc": 1 - value}, {"size_bytes": size}, f"model-{number}", "job")


@dataclass
class Scripted:
    """A runner that tells all events of a trial at once; the controller ignores what comes after a stop.

    Attributes:
        script: The events of a trial.
        started: Numbers of the trials, in the order in which they were begun.
        stopped: Numbers of those that were told to stop.
    """

    script: Script = trained
    started: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)

    def start(self, number: int, parameters: dict[str, Any], notify: Callable[[Event], None]) -> "_Handle":
        """Tell what the script says."""
        self.started.append(number)
        for event in self.script(number, parameters):
            notify(event)
        return _Handle(number, self.stopped)


@dataclass
class _Handle:
    number: int
    stopped: list[int]

    def stop(self) -> None:
        """Note it."""
        self.stopped.append(self.number)


REFUSED = TrainingFailedError("Training failed: out of memory.", repeats=True)
LATE = TrainingTimeoutError("Training took too long.")
"""An error of the settings, and one that says nothing about them."""


def failing(*numbers: int, error: Exception = REFUSED) -> Script:
    """A script in which these trials fail."""

    def script(number: int, parameters: dict[str, Any]) -> Iterator[Event]:
        if number in numbers:
            yield Ended(number, error=error)
        else:
            yield from trained(number, parameters)

    return script


def replay(
    spec: ExperimentSpec,
    seed: int,
    steps: int,
    name: str,
    trials: Iterable[Trial],
    warm: tuple[dict[str, Any], ...] = (),
) -> Trial | None:
    """Suggest the recorded trials again, by what had ended and what was running when each of them was suggested.

    Returns:
        The first trial that is suggested with other parameters than it has; None where all are as they were.
    """
    study = ExperimentStudy(spec, seed, steps, name, warm=warm)
    recorded = list(trials)
    for trial in recorded:
        for earlier in recorded[: trial.number]:
            if earlier.number not in trial.beside and not study.trials[earlier.number].ended:
                for step, value in earlier.intermediate:
                    study.report(earlier.number, step, value)
                study.end(earlier)
        again = study.ask()
        if (again.parameters, again.parent) != (trial.parameters, trial.parent):
            return trial
    return None
