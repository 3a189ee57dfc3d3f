"""Optuna's samplers as a function: the parameters of a trial."""

import hashlib
import warnings
from typing import Any

import optuna
from optuna._transform import _SearchSpaceTransform

from gatehouse.tuning.algorithms import CmaesAlgorithm
from gatehouse.tuning.parameters import ParameterSpec, plain
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.window import WindowedTpe

_SPACES = {"_search_space", "_intersection_search_space"}
"""Attribute in which Optuna's samplers keep the common search space of a study's trials."""

optuna.logging.set_verbosity(optuna.logging.ERROR)


def suggested(spec: ExperimentSpec, trial: optuna.Trial) -> dict[str, Any]:
    """The values of the parameters in use, by dotted name, as the study's sampler suggests them."""
    chosen: dict[str, Any] = {}
    for parameter in spec.ordered:
        if parameter.is_open(chosen):
            chosen[parameter.name] = plain(_value(trial, spec.label(parameter), parameter))
    return chosen


def _value(trial: optuna.Trial, label: str, parameter: ParameterSpec) -> Any:
    if parameter.type == "categorical":
        # Optuna stores only scalars: the index stands for the value.
        return parameter.choices[trial.suggest_categorical(label, list(range(len(parameter.choices))))]
    low, high, finite = parameter.min or 0.0, parameter.max or 0.0, parameter.finite
    if parameter.type == "int":
        last = finite[-1] if finite else high
        return trial.suggest_int(label, int(low), int(last), step=int(parameter.step or 1), log=parameter.log)
    return trial.suggest_float(label, low, finite[-1] if finite else high, step=parameter.step, log=parameter.log)


def internal(spec: ExperimentSpec, chosen: dict[str, Any]) -> dict[str, Any]:
    """The values of parameters in use as Optuna stores them, by label."""
    found: dict[str, Any] = {}
    for parameter in spec.ordered:
        value = parameter.internal(chosen[parameter.name]) if parameter.name in chosen else None
        if value is not None and parameter.is_open(chosen):
            found[spec.label(parameter)] = value
    return found


def outside(spec: ExperimentSpec, chosen: dict[str, Any]) -> list[str]:
    """The values of a configuration that are outside the space: setting, value, and the allowed values."""
    return [
        f"{parameter.name} is {chosen[parameter.name]}, expected {parameter.words}"
        for parameter in spec.ordered
        if parameter.name in chosen and parameter.is_open(chosen) and parameter.internal(chosen[parameter.name]) is None
    ]


def sampler_of(
    spec: ExperimentSpec, seed: int, number: int, before: optuna.samplers.BaseSampler | None = None
) -> optuna.samplers.BaseSampler:
    """Optuna's sampler for one trial, created anew each time, so that only the study holds state.

    The common search space of its ended trials follows from the study alone and is read trial by trial. It is passed
    on, because with 10,000 trials reading it takes most of the time of a suggestion.

    Grid and Sobol use the experiment's seed itself: they count the trials in attributes of the study, and their order
    must be the same for all trials.

    Args:
        spec: The experiment.
        seed: Seed of the experiment.
        number: Number of the trial.
        before: The sampler of an earlier trial of the same study.
    """
    sampler = _new_sampler(spec, seed, number)
    for name in _SPACES & vars(sampler).keys() if type(before) is type(sampler) else ():
        setattr(sampler, name, getattr(before, name))
    return sampler


def _new_sampler(spec: ExperimentSpec, seed: int, number: int) -> optuna.samplers.BaseSampler:
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
            return WindowedTpe(
                max(algorithm.window, algorithm.startup_trials),
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
            return _StatelessCmaEs(algorithm, own)
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
        spec.label(each): list(range(len(each.choices))) if each.type == "categorical" else list(each.finite or ())
        for each in spec.parameters
    }


def _seed(seed: int, number: int) -> int:
    """A 32-bit seed that differs between the trials of an experiment, and between experiments."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{number}".encode()).digest()[:4], "big")


class _Grid(optuna.samplers.GridSampler):
    """A grid whose end is decided by the experiment when all of it is tried."""

    def after_trial(self, study: optuna.Study, trial: Any, state: Any, values: Any) -> None:
        """Do nothing: Optuna's version stops the loop of `study.optimize`, which is not used here."""


class _StatelessCmaEs(optuna.samplers.CmaEsSampler):
    """CMA-ES that stores and reads no pickled optimizer: it is given all generations again.

    Optuna stores the optimizer as a pickle in an attribute of a trial. Its state follows from the finished trials
    alone, generation by generation, because it is seeded anew for every suggestion.
    """

    def __init__(self, algorithm: CmaesAlgorithm, seed: int) -> None:
        super().__init__(
            n_startup_trials=algorithm.startup_trials,
            sigma0=algorithm.sigma,
            popsize=algorithm.population_size,
            independent_sampler=optuna.samplers.RandomSampler(seed=seed),
            warn_independent_sampling=False,
            seed=seed,
        )

    def sample_relative(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
        search_space: dict[str, optuna.distributions.BaseDistribution],
    ) -> dict[str, Any]:
        """As in Optuna, with the optimizer of `_restore_optimizer`."""
        self._space, self._study = search_space, study
        return super().sample_relative(study, trial, search_space)

    def _restore_optimizer(self, completed_trials: list[optuna.trial.FrozenTrial]) -> Any:
        import cmaes  # Optuna's own import of it is in no closure; here it is, and so its version is in the key.

        transform = _SearchSpaceTransform(self._space, transform_step=True, transform_0_1=True)
        direction = self._study.direction
        sign = 1 if direction == optuna.study.StudyDirection.MINIMIZE else -1
        optimizer = self._init_optimizer(transform, direction)
        assert isinstance(optimizer, cmaes.CMA)
        while True:
            generation = self._get_solution_trials(completed_trials, optimizer.generation)
            if len(generation) < optimizer.population_size:
                return optimizer
            told = generation[: optimizer.population_size]
            optimizer.tell([(transform.transform(each.params), sign * (each.value or 0.0)) for each in told])

    def _split_optimizer_str(self, optimizer_str: str) -> dict[str, str]:
        """Store nothing."""
        return {}
