"""Optuna's samplers and pruners of an experiment, and the values that they suggest."""

import functools
import hashlib
import inspect
import operator
import warnings
from collections.abc import Mapping
from typing import Any

import optuna
from optuna._transform import _SearchSpaceTransform
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from pydantic import ValidationError, create_model

from gatehouse.configuration.strict import Strict
from gatehouse.tuning.population import PopulationSampler
from gatehouse.tuning.spec import ExperimentSpec, ParameterSpec, PopulationAlgorithm, plain

optuna.logging.set_verbosity(optuna.logging.ERROR)


def distribution_of(parameter: ParameterSpec) -> BaseDistribution:
    """Optuna's distribution of a parameter; a choice is its index, because Optuna stores only scalars."""
    low, finite = parameter.min or 0.0, parameter.finite
    if parameter.type == "categorical":
        return CategoricalDistribution(list(range(len(parameter.choices))))
    high: float = finite[-1] if finite else parameter.max or 0.0
    if parameter.type == "int":
        return IntDistribution(int(low), int(high), log=parameter.log, step=int(parameter.step or 1))
    return FloatDistribution(low, high, log=parameter.log, step=parameter.step)


def suggested(spec: ExperimentSpec, trial: optuna.Trial) -> dict[str, Any]:
    """The values of the parameters in use, by dotted name, as the study's sampler suggests them."""
    chosen: dict[str, Any] = {}
    for parameter in spec.parameters:
        if not parameter.is_open(chosen):
            continue
        label, of = spec.label(parameter), distribution_of(parameter)
        if isinstance(of, IntDistribution):
            chosen[parameter.name] = trial.suggest_int(label, of.low, of.high, step=of.step, log=of.log)
        elif isinstance(of, FloatDistribution):
            chosen[parameter.name] = trial.suggest_float(label, of.low, of.high, step=of.step, log=of.log)
        else:
            place = trial.suggest_categorical(label, list(range(len(parameter.choices))))
            chosen[parameter.name] = plain(parameter.choices[place])
    return chosen


def internal(spec: ExperimentSpec, chosen: dict[str, Any]) -> dict[str, Any]:
    """The values of parameters in use as Optuna stores them, by label."""
    values: dict[str, Any] = {}
    for parameter in spec.parameters:
        value = parameter.internal(chosen[parameter.name]) if parameter.name in chosen else None
        if value is not None and parameter.is_open(chosen):
            values[spec.label(parameter)] = value
    return values


def sampler_of(spec: ExperimentSpec, seed: int, number: int) -> optuna.samplers.BaseSampler:
    """The sampler for one trial, created anew each time, so that only the study holds state.

    Grid and quasi-Monte Carlo count the trials in the study: their order must be the same for all trials, so they use
    the experiment's seed itself.
    """
    own = _seed(seed, number)
    if isinstance(spec.algorithm, PopulationAlgorithm):
        return PopulationSampler(spec, spec.algorithm, seed, own)
    name, options = spec.algorithm.name, dict(spec.algorithm.options)
    if name == "GridSampler":
        return _Grid(grid_of(spec), seed=_seed(seed, 0))
    others: dict[str, Any] = {"seed": own}
    if name == "QMCSampler":
        others = {"seed": _seed(seed, 0), "independent_sampler": optuna.samplers.RandomSampler(seed=own)}
    if name == "TPESampler" and len(spec.objective) == 1 and options.get("multivariate") is None:
        # Optuna's default with one objective; parameters with a condition are modelled together too.
        options |= {"multivariate": True, "group": options.get("group", True)}
    sampler: optuna.samplers.BaseSampler = _made(name, options, **others)
    return sampler


def pruner_of(spec: ExperimentSpec, steps: int) -> optuna.pruners.BasePruner:
    """Optuna's pruner; steps are counted from 1, so that a step is also the budget used."""
    if spec.early_stopping is None:
        return optuna.pruners.NopPruner()
    name, options = spec.early_stopping.name, spec.early_stopping.options
    if name == "HyperbandPruner":
        options = (
            {"max_resource": steps} | options | {"min_resource": min(int(options.get("min_resource") or 1), steps)}
        )
    pruner: optuna.pruners.BasePruner = _made(name, options)
    return pruner


def checked_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of one of Optuna's classes, in its types; raises ValueError for those that it does not take.

    A file can hold numbers, texts and truth values; the seed is that of the experiment.
    """
    kinds = {"int": int, "float": float, "bool": bool, "str": str, "None": type(None)}
    fields: dict[str, Any] = {}
    for option, parameter in inspect.signature(_class_of(name)).parameters.items():
        types = str(getattr(parameter.annotation, "__name__", parameter.annotation)).split(" | ")
        if option != "seed" and kinds.keys() >= {*types}:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[option] = (functools.reduce(operator.or_, (kinds[kind] for kind in types)), default)
    if unknown := options.keys() - fields.keys():
        expected = ", ".join(fields) or "(none)"
        raise ValueError(f"{name} has the options {expected}, found {', '.join(sorted(unknown))}")
    try:
        model = create_model(name, __base__=Strict, **fields).model_validate(options)
        checked = {option: getattr(model, option) for option in options}
        _made(name, checked)
    except ValidationError as error:
        problems = [f"{problem['loc'][0]}: {problem['msg']}" for problem in error.errors()]
        raise ValueError("; ".join(problems)) from None
    except AssertionError as error:
        raise ValueError(str(error) or f"{name} does not take the options {dict(options)}") from None
    return checked


def _made(name: str, options: Mapping[str, Any], **others: Any) -> Any:
    if name == "PatientPruner":
        others["wrapped_pruner"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna warns of what it may still change.
        return _class_of(name)(**others, **options)


def _class_of(name: str) -> Any:
    if name == "CmaEsSampler":
        return CmaEsSampler
    return getattr(optuna.samplers, name, None) or getattr(optuna.pruners, name)


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


class CmaEsSampler(optuna.samplers.BaseSampler):
    """CMA-ES whose state follows from the successful trials alone: it is told all of them for each suggestion.

    Optuna's own sampler stores the optimizer as a pickle in the study, and must not be used: whoever can write to the
    study could run code here.
    """

    def __init__(self, *, n_startup_trials: int = 1, popsize: int | None = None, seed: int | None = None) -> None:
        """Create a sampler with these options of Optuna's."""
        self._startup, self._size, self._seed = n_startup_trials, popsize, seed
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
        if not search_space or len(trials) < self._startup:
            return {}
        dimensions, sign = len(search_space), 1 if study.direction == optuna.study.StudyDirection.MINIMIZE else -1
        unit_cube = _SearchSpaceTransform(search_space, transform_0_1=True)
        optimizer = cmaes.CMA(
            mean=np.full(dimensions, 0.5),
            sigma=1 / 6,
            bounds=unit_cube.bounds,
            n_max_resampling=10 * dimensions,
            seed=self._seed,
            population_size=self._size,
        )
        solutions = [
            (unit_cube.transform({name: earlier.params[name] for name in search_space}), sign * earlier.values[0])
            for earlier in trials[self._startup :]
        ]
        size = optimizer.population_size
        for start in range(0, len(solutions) - size + 1, size):
            optimizer.tell(solutions[start : start + size])
        return unit_cube.untransform(optimizer.ask())

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A random value."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)


def step_of(done: int, total: int, steps: int) -> int:
    """The step that a trial has reached after `done` of `total` epochs or rounds; 0 before the first of `steps`.

    Example:
        >>> [step_of(done, 60, 4) for done in (14, 15, 29, 60)]
        [0, 1, 1, 4]
    """
    return min(done, total) * steps // total
