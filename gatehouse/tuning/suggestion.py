"""Optuna's samplers and pruners: the parameters of a trial, and whether it is stopped early."""

import hashlib
import math
import warnings
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from gatehouse.tuning.spec import CmaesAlgorithm, ExperimentSpec, plain

optuna.logging.set_verbosity(optuna.logging.ERROR)


def suggested(spec: ExperimentSpec, trial: optuna.Trial) -> dict[str, Any]:
    """The values of the parameters in use, by dotted name, as the study's sampler suggests them."""
    chosen: dict[str, Any] = {}
    for parameter in spec.ordered:
        if not parameter.is_open(chosen):
            continue
        label, low, finite = spec.label(parameter), parameter.min or 0.0, parameter.finite
        high: float = finite[-1] if finite and parameter.type != "categorical" else parameter.max or 0.0
        if parameter.type == "categorical":
            # Optuna stores only scalars: the index stands for the value.
            value = parameter.choices[trial.suggest_categorical(label, list(range(len(parameter.choices))))]
        elif parameter.type == "int":
            step = int(parameter.step or 1)
            value = trial.suggest_int(label, int(low), int(high), step=step, log=parameter.log)
        else:
            value = trial.suggest_float(label, low, high, step=parameter.step, log=parameter.log)
        chosen[parameter.name] = plain(value)
    return chosen


def internal(spec: ExperimentSpec, chosen: dict[str, Any]) -> dict[str, Any]:
    """The values of parameters in use as Optuna stores them, by label."""
    values: dict[str, Any] = {}
    for parameter in spec.ordered:
        value = parameter.internal(chosen[parameter.name]) if parameter.name in chosen else None
        if value is not None and parameter.is_open(chosen):
            values[spec.label(parameter)] = value
    return values


def outside(spec: ExperimentSpec, chosen: dict[str, Any]) -> list[str]:
    """The values of a configuration that are outside the space: setting, value, and the allowed values."""
    return [
        f"{parameter.name} is {chosen[parameter.name]}, expected {parameter.words}"
        for parameter in spec.ordered
        if parameter.name in chosen and parameter.is_open(chosen) and parameter.internal(chosen[parameter.name]) is None
    ]


def sampler_of(spec: ExperimentSpec, seed: int, number: int) -> optuna.samplers.BaseSampler:
    """Optuna's sampler for one trial, created anew each time, so that only the study holds state.

    Grid and Sobol use the experiment's seed itself: they count the trials in attributes of the study, and their order
    must be the same for all trials.
    """
    algorithm, own = spec.algorithm, _seed(seed, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if algorithm.name == "grid":
            return _Grid(grid_of(spec), seed=_seed(seed, 0))
        if algorithm.name == "sobol":
            return optuna.samplers.QMCSampler(
                scramble=algorithm.scramble,
                seed=_seed(seed, 0),
                independent_sampler=optuna.samplers.RandomSampler(seed=own),
                warn_independent_sampling=False,
            )
        if algorithm.name == "tpe":
            together = algorithm.multivariate
            together = len(spec.objective) == 1 if together is None else together  # As in Optuna.
            return optuna.samplers.TPESampler(
                n_startup_trials=algorithm.startup_trials,
                n_ei_candidates=algorithm.candidates,
                multivariate=together,
                group=together,
                seed=own,
            )
        if algorithm.name == "gp":
            return optuna.samplers.GPSampler(
                n_startup_trials=algorithm.startup_trials, seed=own, warn_independent_sampling=False
            )
        if algorithm.name == "cmaes":
            return _CmaEs(algorithm, own)
        if algorithm.name == "nsga2":
            return optuna.samplers.NSGAIISampler(
                population_size=algorithm.population_size,
                mutation_prob=algorithm.mutation,
                crossover_prob=algorithm.crossover,
                seed=own,
            )
        return optuna.samplers.RandomSampler(seed=own)


def grid_of(spec: ExperimentSpec) -> dict[str, list[Any]]:
    """The values of every parameter in the form of Optuna's grid, by label."""
    return {
        spec.label(parameter): list(range(len(parameter.choices)))
        if parameter.type == "categorical"
        else list(parameter.finite or ())
        for parameter in spec.parameters
    }


def _seed(seed: int, number: int) -> int:
    """A 32-bit seed that differs between the trials of an experiment, and between experiments."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{number}".encode()).digest()[:4], "big")


class _Grid(optuna.samplers.GridSampler):
    """A grid whose end the experiment decides."""

    def after_trial(self, study: optuna.Study, trial: Any, state: Any, values: Any) -> None:
        """Do nothing: Optuna's version stops the loop of `study.optimize`, which is not used here."""


class _CmaEs(optuna.samplers.BaseSampler):
    """CMA-ES whose state follows from the successful trials alone: it is told all of them for each suggestion.

    Optuna's own sampler stores the optimizer as a pickle in the study, and must not be used: whoever can write to the
    study could run code here.
    """

    def __init__(self, algorithm: CmaesAlgorithm, seed: int) -> None:
        self._algorithm, self._seed = algorithm, seed
        self._random = optuna.samplers.RandomSampler(seed=seed)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that all successful trials have, apart from those with a single value."""
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        space = optuna.search_space.intersection_search_space(trials)
        return {name: distribution for name, distribution in space.items() if not distribution.single()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A point of the distribution that the successful trials, in generations by number, lead to."""
        import cmaes
        import numpy as np

        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not search_space or len(trials) < self._algorithm.startup_trials:
            return {}
        dimensions, sign = len(search_space), 1 if study.direction == optuna.study.StudyDirection.MINIMIZE else -1
        optimizer = cmaes.CMA(
            mean=np.full(dimensions, 0.5),
            sigma=self._algorithm.sigma or 1 / 6,
            bounds=np.array([[0.0, 1.0]] * dimensions),
            n_max_resampling=10 * dimensions,
            seed=self._seed,
            population_size=self._algorithm.population_size,
        )
        scales = {name: _Scale(distribution) for name, distribution in search_space.items()}
        solutions = [
            (
                np.array([scale.share(earlier.params[name]) for name, scale in scales.items()]),
                sign * (earlier.value or 0.0),
            )
            for earlier in trials[self._algorithm.startup_trials :]
        ]
        size = optimizer.population_size
        for start in range(0, len(solutions) - size + 1, size):
            optimizer.tell(solutions[start : start + size])
        point = zip(scales.items(), optimizer.ask(), strict=True)
        return {name: scale.value(float(share)) for (name, scale), share in point}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A random value."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)


class _Scale:
    """The range of a parameter as shares from 0 to 1, logarithmic if it is; each grid value has an equal share."""

    def __init__(self, distribution: BaseDistribution) -> None:
        assert isinstance(distribution, FloatDistribution | IntDistribution)
        self._of, half = distribution, (distribution.step or 0) / 2
        low, high = distribution.low - half, distribution.high + half
        self._low, self._high = (math.log(low), math.log(high)) if distribution.log else (low, high)

    def share(self, value: float) -> float:
        return ((math.log(value) if self._of.log else value) - self._low) / (self._high - self._low)

    def value(self, share: float) -> float | int:
        value = self._low + share * (self._high - self._low)
        value = math.exp(value) if self._of.log else value
        if self._of.step:
            value = self._of.low + round((value - self._of.low) / self._of.step) * self._of.step
        value = min(max(value, self._of.low), self._of.high)
        return int(value) if isinstance(self._of, IntDistribution) else value


def pruner_of(spec: ExperimentSpec, steps: int) -> optuna.pruners.BasePruner:
    """Optuna's pruner; steps are counted from 1, so that a step is also the budget used."""
    rule = spec.early_stopping
    if rule is None:
        return optuna.pruners.NopPruner()
    if rule.name == "hyperband":
        return optuna.pruners.HyperbandPruner(
            min_resource=min(rule.min_resource, steps), max_resource=steps, reduction_factor=rule.reduction_factor
        )
    if rule.name == "successive_halving":
        return optuna.pruners.SuccessiveHalvingPruner(
            min_resource=rule.min_resource, reduction_factor=rule.reduction_factor
        )
    if rule.name == "patience":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.pruners.PatientPruner(None, patience=rule.patience, min_delta=rule.tolerance)
    # Optuna counts from 0: it stops no trial at a step below the given one.
    begin = {"n_startup_trials": rule.startup_trials, "n_warmup_steps": rule.warmup_steps + 1}
    if rule.name == "median":
        return optuna.pruners.MedianPruner(**begin)
    return optuna.pruners.PercentilePruner(rule.percentile, **begin)


def step_of(done: int, total: int, steps: int) -> int:
    """The step that a trial has reached after `done` of `total` epochs or rounds; 0 before the first of `steps`.

    Example:
        >>> [step_of(done, 60, 4) for done in (14, 15, 29, 60)]
        [0, 1, 1, 4]
    """
    return min(done, total) * steps // total
