"""Reads the search of a command, also from an OptimizationJob of Kubeflow or an Experiment of Katib, its predecessor.

An OptimizationJob (trainer.kubeflow.org/v1alpha1) and an Experiment (kubeflow.org/v1beta1) become our form. Each part
without a counterpart is refused, or left out with a warning that names its place and says why.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.store.parameters import checked
from gatehouse.tuning.spec import PLACEHOLDER, CommandSearchSpec

_KATIB_PLACEHOLDER = re.compile(r"\$\{trialParameters\.?([^}]*)\}")
_NUMBERS = TypeAdapter(list[float])
_ALGORITHMS: dict[str, dict[str, Any]] = {
    "random": {"name": "RandomSampler"},
    "grid": {"name": "GridSampler"},
    "sobol": {"name": "QMCSampler"},
    "tpe": {"name": "TPESampler", "multivariate": False},
    "multivariate-tpe": {"name": "TPESampler", "multivariate": True},
    "cmaes": {"name": "CmaEsSampler"},
    "bayesianoptimization": {"name": "GPSampler"},
}
"""Optuna's sampler by Katib's name."""
_SETTINGS = {
    "TPESampler": {"n_startup_trials": "n_startup_trials", "n_ei_candidates": "n_ei_candidates"},
    "CmaEsSampler": {"n_startup_trials": "n_startup_trials"},
    "GPSampler": {"n_initial_points": "n_startup_trials"},
}
"""Optuna's name of a setting by Katib's, for each sampler."""

_COUNTS = ("maxTrialCount", "parallelTrialCount", "maxFailedTrialCount")
_OTHERS = ("resumePolicy", "earlyStopping", "metricsCollectorSpec", "trialTemplate")


def search_of(body: Mapping[str, Any], command: Sequence[Any]) -> tuple[CommandSearchSpec, list[Any], list[str]]:
    """The search of a command from a configuration, which may be an OptimizationJob or a Katib Experiment.

    Returns it with the command, in which `{name}` replaces Katib's `${trialParameters.…}`, and with warnings of what is
    left out. Raises ConfigurationError, also for a name in the command that no parameter has.
    """
    left_out, references = dict[str, str](), dict[str, str]()
    foreign = _mapping(body, "spec")
    if body.get("kind") == "Experiment":
        body = _of_experiment(foreign, left_out)
        template = _mappings(_mapping(foreign, "trialTemplate"), "trialParameters")
        references = {str(entry.get("name", "")): str(entry.get("reference", "")) for entry in template}
    elif body.get("kind") == "OptimizationJob":
        body = _of_optimization_job(foreign, left_out)
    spec = checked("experiment", CommandSearchSpec, body)
    searched, replaced = [parameter.name for parameter in spec.parameters], list(command)
    for at, text in enumerate(command):
        is_code = at > 1 and command[at - 1] == "-c" and "python" in command[0]  # An f-string has braces of its own.
        if isinstance(text, str) and not is_code:
            replaced[at] = _KATIB_PLACEHOLDER.sub(lambda match: f"{{{references.get(match[1], match[1])}}}", text)
            used = [references.get(name, name) for name in _KATIB_PLACEHOLDER.findall(text)] + PLACEHOLDER.findall(text)
            if wrong := [name for name in used if name not in searched]:
                raise ConfigurationError(
                    f"command: expected names of the parameters {', '.join(searched)}, found {wrong[0]!r} in {text!r}. "
                    "Text with braces of its own belongs in the script."
                )
    return spec, replaced, [f"experiment.{place} is left out: {why}" for place, why in left_out.items()]


def _of_optimization_job(job: Mapping[str, Any], left_out: dict[str, str]) -> dict[str, Any]:
    """The spec of an OptimizationJob in our form; reasons of what is left out, by place, go into `left_out`."""
    fields = ("objectives", "searchAlgorithm", "parameters", "numTrials", "parallelTrials")
    _leave_out(left_out, "", job, *fields, "trainJobTemplate")
    if "trainJobTemplate" in job:
        left_out["trainJobTemplate"] = "a trial is the command of this component, and runs where its settings say"
    for objective in _mappings(job, "objectives"):
        _leave_out(left_out, "objectives.", objective, "metric", "direction")
    algorithm = _mapping(job, "searchAlgorithm") or {"random": {}}
    samplers = {"random": "RandomSampler", "grid": "GridSampler"}
    if len(algorithm) != 1 or not samplers.keys() >= algorithm.keys():
        raise ConfigurationError(
            f"experiment.searchAlgorithm: expected one of random and grid, found {', '.join(algorithm)}."
        )
    if "seed" in _mapping(algorithm, "random"):
        left_out["searchAlgorithm.random.seed"] = "the seed is an input of the component"
    return {
        "objective": [
            {"metric": objective.get("metric"), "direction": str(objective.get("direction", "Minimize")).lower()}
            for objective in _mappings(job, "objectives")
        ],
        "algorithm": samplers[next(iter(algorithm))],
        "max_trial_count": job.get("numTrials") or 1,
        "parallel_trial_count": job.get("parallelTrials") or 1,
        "parameters": [_of_search_space(body, left_out) for body in _mappings(job, "parameters")],
    }


def _of_search_space(body: Mapping[str, Any], left_out: dict[str, str]) -> dict[str, Any]:
    """A parameter of an OptimizationJob in our form."""
    name, space = body.get("name"), _mapping(body, "searchSpace")
    _leave_out(left_out, f"parameters {name}.", body, "name", "searchSpace")
    if len(space) != 1 or not {"uniform", "logUniform", "categorical"} >= space.keys():
        raise ConfigurationError(
            f"experiment.parameters {name}: expected a searchSpace with one of uniform, logUniform and categorical, "
            f"found {', '.join(space) or 'none'}."
        )
    distribution = next(iter(space))
    values, place = _mapping(space, distribution), f"parameters {name}.{distribution}."
    if distribution == "categorical":
        _leave_out(left_out, place, values, "choices")
        return {"name": name, "type": "categorical", "choices": values.get("choices")}
    _leave_out(left_out, place, values, "min", "max", "type")
    if (kind := values.get("type", "Float")) not in ("Float", "Int"):
        raise ConfigurationError(f"experiment.{place}type: expected Float or Int, found {kind!r}.")
    bounds = {"min": values.get("min"), "max": values.get("max"), "log": distribution == "logUniform"}
    return {"name": name, "type": "int" if kind == "Int" else "double", **bounds}


def _of_experiment(experiment: Mapping[str, Any], left_out: dict[str, str]) -> dict[str, Any]:
    """The spec of a Katib Experiment in our form; reasons of what is left out, by place, go into `left_out`."""
    _leave_out(left_out, "", experiment, "objective", "algorithm", "parameters", *_COUNTS, *_OTHERS)
    objective, stopping = _mapping(experiment, "objective"), _mapping(experiment, "earlyStopping").get("algorithmName")
    names = ("objectiveMetricName", "additionalMetricNames", "metricStrategies")
    _leave_out(left_out, "objective.", objective, "type", "goal", *names)
    metric, policy = objective.get("objectiveMetricName"), experiment.get("resumePolicy")
    strategies = {entry.get("name"): entry.get("value") for entry in _mappings(objective, "metricStrategies")}
    if strategies.get(metric) != "latest":
        default = f"objectiveMetricName {metric}: Katib's default, the best value,"
        place = f"metricStrategies {metric}: {strategies[metric]}" if metric in strategies else default
        left_out[f"objective.{place}"] = "the last value that a trial prints counts"
    if experiment.get("metricsCollectorSpec") not in (None, {"collector": {"kind": "StdOut"}}):
        left_out["metricsCollectorSpec"] = "metrics are read from printed lines, as name=value"
    if stopping == "medianstop":
        raise ConfigurationError(
            "experiment.earlyStopping: medianstop needs steps_per_trial here, which Katib does not have. Remove it, or "
            "write the experiment in Gatehouse's form with early_stopping: MedianPruner."
        )
    if stopping:
        left_out[f"earlyStopping.algorithmName {stopping}"] = "expected medianstop"
    if policy not in (None, "FromVolume"):
        left_out[f"resumePolicy {policy}"] = "a search always goes on from its journal in the store"
    if experiment.get("maxTrialCount") is None:
        left_out["maxTrialCount"] = "without it Katib has no end; here it is 8"
    converted = {
        "objective": {"metric": metric, "direction": objective.get("type"), "goal": objective.get("goal")},
        "algorithm": _algorithm(_mapping(experiment, "algorithm"), left_out),
        "max_trial_count": experiment.get("maxTrialCount"),
        "parallel_trial_count": experiment.get("parallelTrialCount", 3),  # Katib's own default.
        "max_failed_trial_count": experiment.get("maxFailedTrialCount"),
        "parameters": [_of_feasible_space(body, left_out) for body in _mappings(experiment, "parameters")],
    }
    return {name: value for name, value in converted.items() if value is not None}


def _algorithm(body: Mapping[str, Any], left_out: dict[str, str]) -> dict[str, Any]:
    name = str(body.get("algorithmName", ""))
    if name not in _ALGORITHMS:
        raise ConfigurationError(
            f"experiment.algorithm.algorithmName: expected one of {', '.join(_ALGORITHMS)}, found {name!r}."
        )
    chosen = dict(_ALGORITHMS[name])
    for entry in _mappings(body, "algorithmSettings"):
        setting, value = str(entry.get("name")), entry.get("value")
        if renamed := _SETTINGS.get(chosen["name"], {}).get(setting):
            chosen[renamed] = value
        else:
            why = "the seed is an input of the component" if setting == "random_state" else "Optuna has no such option"
            left_out[f"algorithm.algorithmSettings {setting}: {value}"] = why
    return chosen


def _of_feasible_space(body: Mapping[str, Any], left_out: dict[str, str]) -> dict[str, Any]:
    """A parameter of a Katib Experiment in our form."""
    name, kind, space = body.get("name"), body.get("parameterType"), _mapping(body, "feasibleSpace")
    place, step, distribution = f"parameters {name}", space.get("step"), space.get("distribution") or "uniform"
    _leave_out(left_out, f"{place}.", body, "name", "parameterType", "feasibleSpace")
    _leave_out(left_out, f"{place}.feasibleSpace.", space, "min", "max", "list", "step", "distribution")
    if kind not in ("double", "int", "discrete", "categorical"):
        raise ConfigurationError(f"experiment.{place}: expected double, int, discrete or categorical, found {kind!r}.")
    if kind == "categorical":
        return {"name": name, "type": "categorical", "choices": space.get("list")}
    if kind == "discrete" or space.get("list"):
        try:
            numbers = _NUMBERS.validate_python(space.get("list"))
        except ValidationError as error:
            raise ConfigurationError(f"experiment.{place}: expected a list of numbers.") from error
        whole = [int(number) for number in numbers if number.is_integer()]
        return {"name": name, "type": "categorical", "choices": whole if len(whole) == len(numbers) else numbers}
    if distribution not in ("uniform", "logUniform"):
        why = "Optuna's samplers draw uniformly, or uniformly of the logarithm"
        left_out[f"{place} distribution: {distribution}"] = why
    log = distribution in ("logUniform", "logNormal")
    if log and step is not None:
        left_out[f"{place} step: {step}"] = "values of a logarithm have no even steps"
        step = None
    return {"name": name, "type": kind, "min": space.get("min"), "max": space.get("max"), "log": log, "step": step}


def _leave_out(left_out: dict[str, str], place: str, body: Mapping[str, Any], *keys: str) -> None:
    left_out |= {f"{place}{key}": f"there is no such key{nearest(key, keys)}" for key in body if key not in keys}


def _mapping(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = body.get(key)
    return value if isinstance(value, Mapping) else {}


def _mappings(body: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = body.get(key)
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
