"""Population-based training (Jaderberg et al. 2017): settings change while members train, and the worst copy the best.

Trial n is member n % size of generation n // size. It continues from its parent's checkpoint to the end of its
generation. Its training, with all its ancestors' settings by epoch, is a training like any other. So no state is kept:
the next step of a member is a function of the seed, its number and the trials of the generation before.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import optuna

from gatehouse.tuning.spec import CHANGING, ExperimentSpec, ParameterSpec, PopulationAlgorithm, plain
from gatehouse.tuning.suggestion import internal, sampler_of, suggested
from gatehouse.tuning.trial import Trial


@dataclass(frozen=True)
class Population:
    """The members of an experiment; `epochs` is a whole training, and `warm` configures the first members."""

    algorithm: PopulationAlgorithm
    spec: ExperimentSpec
    seed: int
    epochs: int
    warm: tuple[dict[str, Any], ...] = field(default=())

    @property
    def trials(self) -> int:
        """Number of trials until every member has reached the last epoch."""
        return self.algorithm.population_size * math.ceil(self.epochs / self.algorithm.interval)

    def end(self, number: int) -> int:
        """Total epochs at the end of a trial, including those of its ancestors."""
        return min((number // self.algorithm.population_size + 1) * self.algorithm.interval, self.epochs)

    def begin(self, trial: Trial) -> int:
        """The epochs that its parent has trained."""
        return 0 if trial.parent is None else self.end(trial.parent)

    def suggested(self, number: int, trials: Sequence[Trial]) -> tuple[int | None, dict[str, Any]]:
        """The parent of the next trial (None for a new start), and its parameters, from the earlier trials."""
        generation, member = divmod(number, size := self.algorithm.population_size)
        if not generation:
            return None, self._drawn(number, self.warm[member] if member < len(self.warm) else {})
        before = trials[(generation - 1) * size : generation * size]
        (objective,) = self.spec.objective

        def loss(trial: Trial) -> float:
            """The objective at the end of a trial, with smaller as better; infinite for an infeasible trial."""
            if not trial.feasible:
                return math.inf
            value = trial.intermediate[-1][1] if trial.intermediate else trial.values[objective.metric]
            return value if objective.minimize else -value

        ranked, share = sorted(before, key=loss), max(1, int(size * self.algorithm.quantile))
        own, best = before[member], [trial for trial in ranked[:share] if trial.feasible]
        if own.feasible and own not in ranked[-share:]:
            return own.number, own.parameters
        if not best:
            return None, self._drawn(number, {})
        draw = random.Random(f"{self.seed}:{number}")
        parent = draw.choice(best)
        # Settings that cannot change during training stay those of the parent.
        fresh, explored = self._drawn(number, {}), dict(parent.parameters)
        for parameter in self.spec.ordered:
            if (name := parameter.name) in CHANGING:
                resampled, factor = draw.random() < self.algorithm.resample, draw.choice(self.algorithm.perturb)
                explored[name] = fresh[name] if resampled else _perturbed(parameter, explored[name], factor)
        return parent.number, explored

    def training(self, trial: Trial, trials: Sequence[Trial]) -> dict[str, Any]:
        """Settings, by dotted name, of the training that a trial and its ancestors form together, without its length.

        The learning rate is constant between changes: they are the schedule, and a longer training starts identically.
        """
        line = [trial]
        while (parent := line[0].parent) is not None:
            line.insert(0, trials[parent])
        changes = []
        for earlier, later in pairwise(line):
            changed = {name: value for name, value in later.parameters.items() if value != earlier.parameters[name]}
            if changed:
                named = {name.removeprefix("optimizer."): value for name, value in changed.items()}
                changes.append({"epoch": self.end(earlier.number), **named})
        constant = {"optimizer.schedule": "constant", "optimizer.warmup": 0.0, "optimizer.changes": changes}
        return line[0].parameters | constant

    def _drawn(self, number: int, warm: dict[str, Any]) -> dict[str, Any]:
        """A random configuration, apart from the given values."""
        study = optuna.create_study(sampler=sampler_of(self.spec, self.seed, number))
        study.enqueue_trial(internal(self.spec, warm))
        return suggested(self.spec, study.ask())


def _perturbed(parameter: ParameterSpec, value: Any, factor: float) -> Any:
    """A value times a factor, within its bounds; for listed numbers the next smaller or greater one."""
    if parameter.finite is None:
        return min(max(value * factor, parameter.min or 0.0), parameter.max or 0.0)
    values = [plain(choice) for choice in parameter.finite]
    if all(isinstance(choice, int | float) for choice in values):
        values.sort()
    return values[min(max(values.index(plain(value)) + (factor > 1) - (factor < 1), 0), len(values) - 1)]
