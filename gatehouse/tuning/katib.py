"""Reads the search of a command, also from a Katib Experiment (kubeflow.org/v1beta1)."""

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
_TPE = {"n_startup_trials": "startup_trials", "n_ei_candidates": "candidates"}
_ALGORITHMS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "random": ({"name": "random"}, {}),
    "grid": ({"name": "grid"}, {}),
    "sobol": ({"name": "sobol"}, {}),
    "tpe": ({"name": "tpe", "multivariate": False}, _TPE),
    "multivariate-tpe": ({"name": "tpe", "multivariate": True}, _TPE),
    "cmaes": ({"name": "cmaes"}, {}),
    "bayesianoptimization": ({"name": "gp"}, {"n_initial_points": "startup_trials"}),
}
"""By Katib's name: our algorithm, and our names of its settings."""

_COUNTS = ("maxTrialCount", "parallelTrialCount", "maxFailedTrialCount")
_OTHERS = ("resumePolicy", "earlyStopping", "metricsCollectorSpec", "trialTemplate")
_SKOPT = "it is one of scikit-optimize; here Optuna's Gaussian process takes the best expected improvement"
_LEFT_OUT = {
    "random_state": "the seed is no part of an experiment",
    "sigma": "there it is a number of the parameters' own size, here a share of each range",
    "restart_strategy": "Optuna's sampler begins no second population",
    **dict.fromkeys(("base_estimator", "acq_func", "acq_optimizer"), _SKOPT),
}
"""Settings of algorithms without a counterpart, and why."""


def search_of(body: Mapping[str, Any], command: Sequence[Any]) -> tuple[CommandSearchSpec, list[Any], list[str]]:
    """The search of a command from a configuration, which may be a Katib Experiment.

    Returns it with the command, in which `{name}` replaces Katib's `${trialParameters.…}`, and with warnings of what is
    left out. Raises ConfigurationError, also for a name in the command that no parameter has.
    """
    left_out, references = dict[str, str](), dict[str, str]()
    if body.get("kind") == "Experiment":
        experiment = _mapping(body, "spec")
        body = _converted(experiment, left_out)
        template = _mappings(_mapping(experiment, "trialTemplate"), "trialParameters")
        references = {str(entry.get("name", "")): str(entry.get("reference", "")) for entry in template}
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


def _converted(experiment: Mapping[str, Any], left_out: dict[str, str]) -> dict[str, Any]:
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
            "write the experiment in Gatehouse's form with early_stopping: median."
        )
    if stopping:
        left_out[f"earlyStopping.algorithmName {stopping}"] = "expected medianstop"
    if policy not in (None, "Never", "FromVolume"):
        left_out[f"resumePolicy {policy}"] = "a search goes on from its journal in the store, without a service"
    if experiment.get("maxTrialCount") is None:
        left_out["maxTrialCount"] = "without it Katib has no end; here it is 8"
    converted = {
        "objective": {"metric": metric, "direction": objective.get("type"), "goal": objective.get("goal")},
        "algorithm": _algorithm(_mapping(experiment, "algorithm"), left_out),
        "max_trial_count": experiment.get("maxTrialCount"),
        "parallel_trial_count": experiment.get("parallelTrialCount", 3),  # Katib's own default.
        "max_failed_trial_count": experiment.get("maxFailedTrialCount"),
        "resume_policy": "never" if policy == "Never" else None,
        "parameters": [_parameter(body, left_out) for body in _mappings(experiment, "parameters")],
    }
    return {name: value for name, value in converted.items() if value is not None}


def _algorithm(body: Mapping[str, Any], left_out: dict[str, str]) -> dict[str, Any]:
    name = str(body.get("algorithmName", ""))
    if name not in _ALGORITHMS:
        raise ConfigurationError(
            f"experiment.algorithm.algorithmName: expected one of {', '.join(_ALGORITHMS)}, found {name!r}."
        )
    algorithm, settings = _ALGORITHMS[name]
    chosen = dict(algorithm)
    for entry in _mappings(body, "algorithmSettings"):
        setting, value = str(entry.get("name")), entry.get("value")
        if setting in settings:
            chosen[settings[setting]] = value
        else:
            why = _LEFT_OUT.get(setting, "Optuna's sampler has no such setting")
            left_out[f"algorithm.algorithmSettings {setting}: {value}"] = why
    return chosen


def _parameter(body: Mapping[str, Any], left_out: dict[str, str]) -> dict[str, Any]:
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
