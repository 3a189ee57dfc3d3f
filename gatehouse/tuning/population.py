"""Population-based training (Jaderberg et al. 2017): settings change while members train, and the worst copy the best.

Trial n is member n % size of generation n // size. It continues from its parent's checkpoint to the end of its
generation. Its training, with all its ancestors' settings by epoch, is a training like any other. So no state is kept:
the next step of a member is a function of the seed, its number and the trials of the generation before.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from gatehouse.tuning.spec import CHANGING, ExperimentSpec, ParameterSpec, PopulationAlgorithm
from gatehouse.tuning.trial import Trial


@dataclass(frozen=True)
class Population:
    """The members of an experiment; `epochs` is a whole training."""

    algorithm: PopulationAlgorithm
    epochs: int

    @property
    def trials(self) -> int:
        """Number of trials until every member has reached the last epoch."""
        return self.algorithm.population_size * math.ceil(self.epochs / self.algorithm.interval)

    def first(self, number: int) -> int:
        """Number of the first trial in the generation of a trial."""
        return number // self.algorithm.population_size * self.algorithm.population_size

    def end(self, number: int) -> int:
        """Total epochs at the end of a trial, including those of its ancestors."""
        return min((number // self.algorithm.population_size + 1) * self.algorithm.interval, self.epochs)

    def begin(self, trial: Trial) -> int:
        """The epochs that its parent has trained."""
        return 0 if trial.parent is None else self.end(trial.parent)

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


class PopulationSampler(optuna.samplers.BaseSampler):
    """Suggests the next generation of a member, once all members have reached the end of the one before.

    Attributes:
        parent: Number of the trial that the suggested trial continues; None for a new start.
    """

    def __init__(self, spec: ExperimentSpec, algorithm: PopulationAlgorithm, seed: int, own_seed: int) -> None:
        """Create the sampler of one trial, of which `own_seed` is the seed."""
        self._spec, self._algorithm, self._seed = spec, algorithm, seed
        self._random = optuna.samplers.RandomSampler(seed=own_seed)
        self.parent: int | None = None

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """No parameters: each is drawn independently, unless the trial continues an earlier one."""
        return {}

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Find the parent of the trial, and the settings that it takes over."""
        generation, member = divmod(trial.number, size := self._algorithm.population_size)
        self._settings: dict[str, Any] = {}
        if not generation:
            return
        before = study.get_trials(deepcopy=False)[(generation - 1) * size : generation * size]
        ranked, share = sorted(before, key=self._loss), max(1, int(size * self._algorithm.quantile))
        own, best = before[member], [earlier for earlier in ranked[:share] if _is_feasible(earlier)]
        if _is_feasible(own) and own not in ranked[-share:]:
            self.parent, self._settings = own.number, own.params
        elif best:
            draw = random.Random(f"{self._seed}:{trial.number}")
            parent = draw.choice(best)
            # Settings that cannot change during training stay those of the parent.
            self.parent, self._settings = parent.number, dict(parent.params)
            for parameter in self._spec.parameters:
                if (name := parameter.name) in CHANGING:
                    resampled, factor = draw.random() < self._algorithm.resample, draw.choice(self._algorithm.perturb)
                    if resampled:
                        del self._settings[name]
                    else:
                        self._settings[name] = _perturbed(parameter, self._settings[name], factor)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Nothing."""
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The value of the parent, perturbed or not, or a random one."""
        if param_name in self._settings:
            return self._settings[param_name]
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _loss(self, trial: FrozenTrial) -> float:
        """The objective at the end of a trial, with smaller as better; infinite for an infeasible trial."""
        if not _is_feasible(trial):
            return math.inf
        value = trial.intermediate_values[trial.last_step] if trial.last_step is not None else trial.values[0]
        return value if self._spec.objective[0].minimize else -value


def _is_feasible(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.COMPLETE and all(value <= 0 for value in trial.constraints.values())


def _perturbed(parameter: ParameterSpec, value: Any, factor: float) -> Any:
    """A value as Optuna stores it, times a factor, within its bounds; for listed numbers the next one."""
    if parameter.finite is None:
        return min(max(value * factor, parameter.min or 0.0), parameter.max or 0.0)
    values: Sequence[Any] = range(len(parameter.choices)) if parameter.choices else parameter.finite
    if all(isinstance(choice, int | float) for choice in parameter.choices):
        values = sorted(values, key=parameter.choices.__getitem__) if parameter.choices else values
    return values[min(max(values.index(value) + (factor > 1) - (factor < 1), 0), len(values) - 1)]
