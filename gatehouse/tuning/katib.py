"""Converts a Katib Experiment (kubeflow.org/v1beta1) to our format, and lists the rest with reasons."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from gatehouse.configuration.yaml_lines import read_documents, yaml_text
from gatehouse.errors import ConfigurationError
from gatehouse.metrics.catalogue import ALIASES, is_minimized, metrics
from gatehouse.store.parameters import checked
from gatehouse.training.spec import SETTINGS
from gatehouse.tuning.parameters import PLACEHOLDER
from gatehouse.tuning.spec import MEASURES, CommandSearchSpec, ExperimentSpec

_KIND, _VERSION = "Experiment", "kubeflow.org/v1beta1"
_SHORT = {
    "lr": "optimizer.learning_rate", "eta": "optimizer.learning_rate", "wd": "optimizer.weight_decay",
    "num_epochs": "stopping.epochs", "n_epochs": "stopping.epochs", "number_epochs": "stopping.epochs",
    "num_boost_round": "stopping.rounds", "n_estimators": "stopping.rounds", "depth": "model.max_depth",
    "subsample": "optimizer.row_share", "colsample_bytree": "optimizer.column_share", "gamma": "model.min_split_loss",
    "reg_alpha": "optimizer.l1", "alpha": "optimizer.l1", "reg_lambda": "optimizer.l2", "lambda": "optimizer.l2",
    "dropout_rate": "model.dropout", "embedding_dim": "model.embedding_size", "max_bin": "model.bins",
}  # fmt: skip
"""Names of settings in other training programs, besides the last part of our own name."""


@dataclass
class Imported:
    """The result of a conversion.

    Attributes:
        left: What was not converted: its position in Katib's file, and why.
        valid: Whether the section is valid as it is; otherwise `left` says what to change by hand.
    """

    tuning: dict[str, Any] = field(default_factory=dict)
    left: list[tuple[str, str]] = field(default_factory=list)
    valid: bool = True

    def text(self) -> str:
        """The section as YAML, with one line per parameter."""
        body = {"tuning": {name: value for name, value in self.tuning.items() if name != "parameters"}}
        lines = [yaml_text(body)]
        if parameters := self.tuning.get("parameters"):
            flow = [yaml_text(body, default_flow_style=True, width=10_000) for body in parameters]
            lines += ["  parameters:", *(f"    - {line.rstrip()}" for line in flow)]
        return "\n".join(lines) + "\n"


def imported(text: str, names: Mapping[str, str] | None = None) -> Imported:
    """Convert a Katib Experiment.

    Args:
        names: Our names of Katib's parameters and metrics, as `{"lr": "optimizer.learning_rate"}`.

    Raises ConfigurationError if it is no YAML, or does not hold exactly one Experiment.
    """
    documents = [document for document in read_documents(text, "the Experiment") if document is not None]
    matching = [document for document in documents if isinstance(document, dict) and document.get("kind") == _KIND]
    if len(matching) != 1 or matching[0].get("apiVersion") != _VERSION or not isinstance(matching[0].get("spec"), dict):
        raise ConfigurationError(
            f"expected one document with kind: {_KIND}, apiVersion: {_VERSION} and spec:, found {len(matching)} of "
            f"{len(documents)} documents"
        )
    name = str((matching[0].get("metadata") or {}).get("name", "the experiment"))
    result = Imported()
    reading = _Reading(matching[0]["spec"], dict(names or {}), result)
    for convert in (reading.objective, reading.algorithm, reading.counts, reading.parameters, reading.surroundings):
        convert()
    for unused in sorted(set(reading.names) - reading.used):
        result.left.append((f"--map {unused}", f"{name} has no parameter and no objective of this name"))
    try:
        ExperimentSpec.model_validate(result.tuning)
    except ValidationError as error:
        result.valid = False
        for problem in error.errors():
            where = ".".join(map(str, problem["loc"])) or "tuning"
            message = problem["msg"].removeprefix("Value error, ")
            result.left.append((f"here: {where}", f"{message}; change it by hand"))
    return result


class _Reading:
    """Converts a spec part by part."""

    def __init__(self, spec: Mapping[str, Any], names: dict[str, str], result: Imported) -> None:
        self._spec = spec
        self._tuning = result.tuning
        self._left = result.left
        self.names = names
        self.used: set[str] = set()
        self._resource = ""
        self._rungs: dict[str, int] = {}
        template = _mappings(_mapping(spec.get("trialTemplate")).get("trialParameters"))
        self.template = {str(entry.get("name", "")): str(entry.get("reference", "")) for entry in template}

    def _leave(self, where: str, why: str) -> None:
        self._left.append((where, why))

    def objective(self) -> None:
        """Metric, goal, direction."""
        body = _mapping(self._spec.get("objective"))
        metric_name = str(body.get("objectiveMetricName", ""))
        plain = re.sub(r"^(validation|valid|val|eval|test)_", "", _plain(metric_name))
        plain = ({"loss": "log_loss"} | ALIASES).get(plain, plain)
        metric = plain if plain in metrics() or plain in MEASURES else None
        if metric_name in self.names:
            self.used.add(metric_name)
            metric = self.names[metric_name]
        if metric is None:
            why = f"{metric_name!r} is no metric here; say which with --map {metric_name or 'NAME'}=METRIC"
            self._leave("objective.objectiveMetricName", f"{why}. Until then: the metric of training.stopping")
        elif metric not in MEASURES and (body.get("type") == "minimize") != is_minimized(metric):
            better = "minimized" if is_minimized(metric) else "maximized"
            self._leave("objective.type", f"{metric} is always {better}, and the file says {body.get('type')}")
        goal = _number(body.get("goal"))
        if goal is not None and metric is None:
            self._leave("objective.goal", "it is a value of the metric that is not known here")
        if metric:
            self._tuning["objective"] = metric if goal is None else {"metric": metric, "goal": goal}
        for name in ("additionalMetricNames", "metricStrategies"):
            if body.get(name):
                why = "training records all its metrics, and the value of a trial is the value of its best epoch"
                self._leave(f"objective.{name}", why)

    def algorithm(self) -> None:
        """Convert a suggestion service to Optuna's sampler, and early stopping."""
        body = _mapping(self._spec.get("algorithm"))
        name, settings = str(body.get("algorithmName", "")), _settings(body)
        read = _ALGORITHMS.get(name)
        if read is None:
            why = _REFUSED.get(name, "there is no such algorithm here") + ". In its place: tpe"
            self._leave(f"algorithm.algorithmName {name}", why)
            self._tuning["algorithm"] = "tpe"
            return
        template, converters = read
        chosen: dict[str, Any] = dict(template)
        for setting, value in settings.items():
            target = converters.get(setting, "Optuna's sampler has no such setting")
            where = f"algorithm.algorithmSettings {setting}: {value}"
            if setting == "random_state":
                self._leave(where, "the seed is no part of an experiment")
            elif callable(target):
                if problem := target(self, chosen, value):
                    self._leave(where, problem)
            else:
                self._leave(where, target)
        self._tuning["algorithm"] = chosen if len(chosen) > 1 else chosen["name"]
        stopping = _mapping(self._spec.get("earlyStopping"))
        if stopping and stopping.get("algorithmName") != "medianstop":
            self._leave(f"earlyStopping.algorithmName {stopping.get('algorithmName')}", "expected medianstop")
        elif stopping:
            begin = _settings(stopping)
            trials, steps = (_number(begin.get(name)) for name in ("min_trials_required", "start_step"))
            # The defaults are Katib's own.
            startup, warmup = int(3 if trials is None else trials), int(4 if steps is None else steps)
            self._tuning["early_stopping"] = {"name": "median", "startup_trials": startup, "warmup_steps": warmup}
            why = "Katib compares means of the first reports, Optuna the best value up to a step with the median there"
            self._leave("earlyStopping.algorithmName medianstop", why)
        if name == "hyperband":
            self._tuning["early_stopping"] = {"name": "hyperband", **self._rungs}
            why = "here `random` suggests, and early_stopping: hyperband stops trials at its rungs"
            self._leave("algorithm.algorithmName hyperband", why)

    def counts(self) -> None:
        """Convert the numbers of trials, and the behaviour after an interruption."""
        settings = {
            "max_trial_count": ("maxTrialCount", None),
            "parallel_trial_count": ("parallelTrialCount", 3),  # Katib's own default.
            "max_failed_trial_count": ("maxFailedTrialCount", None),
        }
        for name, (key, default) in settings.items():
            count = _number(self._spec.get(key, default))
            if count is not None:
                self._tuning[name] = int(count)
        if "max_trial_count" not in self._tuning:
            self._leave("maxTrialCount", "without it Katib has no end; here it is 8")
        policy = self._spec.get("resumePolicy")
        if policy in ("Never", "FromVolume"):
            self._tuning["resume_policy"] = _plain(policy)
        elif policy is not None:
            why = "an experiment continues from its journal in the store (from_volume), without a service"
            self._leave(f"resumePolicy {policy}", why)

    def parameters(self) -> None:
        """The search space."""
        parameters, taken = [], set()
        for body in _mappings(self._spec.get("parameters")):
            name = str(body.get("name", ""))
            if name == self._resource:
                lengths = self._tuning.get("trial_settings") or {"training.stopping": "as it stands there"}
                length = ", ".join(f"{name} is {value}" for name, value in lengths.items())
                why = f"it is the length of a trial, so it is not searched: its rungs are steps, and {length}"
                self._leave(f"parameters {name}", why)
                continue
            setting = self._setting([name, *(other for other, reference in self.template.items() if reference == name)])
            if setting is None:
                why = f"training has no setting of this name; say which with --map {name}=SETTING"
                self._leave(f"parameters {name}", why)
            elif inner := [key for key in SETTINGS if key.startswith(f"{setting}.")]:
                why = f"{setting} is a whole section of training; name one of {', '.join(inner)} with --map {name}="
                self._leave(f"parameters {name}", why)
            elif setting in taken:
                self._leave(f"parameters {name}", f"{setting} is searched already")
            elif parameter := self._parameter(name, setting, body):
                taken.add(setting)
                parameters.append(parameter)
        self._tuning["parameters"] = parameters

    def _setting(self, katib_names: Sequence[str]) -> str | None:
        """The setting of training for a parameter's names; None if no name matches."""
        if katib_names[0] in self.names:
            self.used.add(katib_names[0])
            return self.names[katib_names[0]]
        for name in katib_names:
            if name in SETTINGS:
                return name
            plain = _plain(name)
            ending = [setting for setting in SETTINGS if setting.endswith(f".{plain}")]
            if len(ending) == 1 or plain in _SHORT:
                return ending[0] if len(ending) == 1 else _SHORT[plain]
        return None

    def _parameter(self, katib_name: str, setting: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        kind, space = str(body.get("parameterType", "")), _mapping(body.get("feasibleSpace"))
        where = f"parameters {katib_name}"
        if kind in ("discrete", "categorical") or (kind in ("double", "int") and space.get("list")):
            listed = space["list"] if isinstance(space.get("list"), list) else []
            values = [_number(value) if kind != "categorical" else value for value in listed]
            if not values or None in values:
                self._leave(where, f"expected a list of {'values' if kind == 'categorical' else 'numbers'}")
                return None
            whole = [int(value) for value in values if isinstance(value, float) and value.is_integer()]
            return {"name": setting, "type": "categorical", "choices": whole if len(whole) == len(values) else values}
        low, high = (_number(space.get(end)) for end in ("min", "max"))
        if kind not in ("double", "int") or low is None or high is None:
            self._leave(where, f"expected double or int with min and max, discrete or categorical; found {kind!r}")
            return None
        number: Callable[[float], float] = int if kind == "int" else float
        parameter: dict[str, Any] = {"name": setting, "type": kind, "min": number(low), "max": number(high)}
        distribution, step = str(space.get("distribution") or "uniform"), _number(space.get("step"))
        if distribution in ("logUniform", "logNormal") and low > 0:
            parameter["log"] = True
        if distribution not in ("uniform", "logUniform") or (distribution == "logUniform" and low <= 0):
            why = "Optuna's samplers draw uniformly, or uniformly of the logarithm of numbers above 0"
            self._leave(f"{where} distribution: {distribution}", why)
        if step is not None and not parameter.get("log"):
            parameter["step"] = number(step)
        elif step is not None:
            self._leave(f"{where} step: {space['step']}", "values of a logarithm have no even steps")
        return parameter

    def surroundings(self) -> None:
        """Report the fields about pods, which training and its launcher define here."""
        reasons = {
            "trialTemplate": "a trial is a training run of the project, with its model, image, resources and launcher",
            "metricsCollectorSpec": "training reports its metrics itself",
            "nasConfig": "there is no search for architectures of operations",
        }
        for part, why in reasons.items():
            if self._spec.get(part):
                self._leave(part, why)

    def hyperband(self, setting: str, value: Any) -> str:
        """Convert a setting of Katib's hyperband; returns why it cannot be converted, or an empty text."""
        if setting == "eta":
            self._rungs["reduction_factor"] = int(_number(value) or 3)  # Katib's own default.
            return ""
        if setting == "resource_name":
            self._resource = str(value)
            length = self._setting([str(value)])
            return "" if length in ("stopping.epochs", "stopping.rounds") else "the resource is epochs, or rounds, here"
        length = self._setting([self._resource]) if self._resource else None
        most = _number(value)
        if most is None or most != int(most):
            return "expected a whole number"
        name = length if length in ("stopping.epochs", "stopping.rounds") else "stopping.epochs"
        self._tuning["trial_settings"] = {name: int(most)}
        return ""


class _CommandReading(_Reading):
    """Converts the spec of an experiment whose trials run a command, which has its own names."""

    def _leave(self, where: str, why: str) -> None:
        if re.match(r"(algorithm\.algorithmName|parameters) \S*$", where):  # Without it, it is another search.
            raise ConfigurationError(f"experiment.{where}: {why}.")
        super()._leave(where, why)

    def objective(self) -> None:
        """Metric, goal, direction."""
        body = _mapping(self._spec.get("objective"))
        strategies = {entry.get("name"): entry.get("value") for entry in _mappings(body.get("metricStrategies"))}
        if strategies.get(body.get("objectiveMetricName")) != "latest":  # Katib's own default is the best value.
            self._leave("objective.metricStrategies", "the last value that a trial prints counts, not the best one")
        if self._spec.get("metricsCollectorSpec") not in (None, {"collector": {"kind": "StdOut"}}):
            self._leave("metricsCollectorSpec", "metrics are read from printed lines, as name=value")
        goal = _number(body.get("goal"))
        aim = {"metric": body.get("objectiveMetricName"), "direction": body.get("type"), "goal": goal}
        self._tuning["objective"] = {name: value for name, value in aim.items() if value is not None}

    def _setting(self, katib_names: Sequence[str]) -> str | None:
        return katib_names[0]


_TEMPLATE = re.compile(r"\$\{trialParameters\.?([^}]*)\}")


def search_of(body: Mapping[str, Any], command: Sequence[Any]) -> tuple[CommandSearchSpec, list[Any], list[str]]:
    """The search of a command from a configuration, which may be a Katib Experiment.

    Returns it with the command, in which `{name}` replaces Katib's `${trialParameters.…}`, and with warnings of what is
    left out. Raises ConfigurationError, also for a name in the command that no parameter has.
    """
    result, template = Imported(), dict[str, str]()
    if body.get("kind") == _KIND:
        reading = _CommandReading(_mapping(body.get("spec")), {}, result)
        for convert in (reading.objective, reading.algorithm, reading.counts, reading.parameters):
            convert()
        body, template = result.tuning, reading.template
    spec = checked("experiment", CommandSearchSpec, body)
    searched, replaced = [parameter.name for parameter in spec.parameters], list(command)
    for at, text in enumerate(command):
        is_code = at > 1 and command[at - 1] == "-c" and "python" in command[0]  # An f-string has braces of its own.
        if isinstance(text, str) and not is_code:
            replaced[at] = _TEMPLATE.sub(lambda match: f"{{{template.get(match[1], match[1])}}}", text)
            used = [template.get(name, name) for name in _TEMPLATE.findall(text)] + PLACEHOLDER.findall(text)
            if wrong := [name for name in used if name not in searched]:
                raise ConfigurationError(
                    f"command: expected names of the parameters {', '.join(searched)}, found {wrong[0]!r} in {text!r}. "
                    "Text with braces of its own belongs in the script."
                )
    return spec, replaced, [f"experiment.{place} is left out: {why}" for place, why in result.left]


Take = Callable[[_Reading, dict[str, Any], Any], str]


def _takes(name: str, number: Callable[[Any], Any] = int) -> Take:
    def take(_: _Reading, chosen: dict[str, Any], value: Any) -> str:
        parsed = _number(value)
        if parsed is None:
            return "expected a number"
        chosen[name] = number(parsed)
        return ""

    return take


def _resource(setting: str) -> Take:
    return lambda reading, _, value: reading.hyperband(setting, value)


_TPE = {"n_startup_trials": _takes("startup_trials"), "n_ei_candidates": _takes("candidates")}
_SKOPT = "it is one of scikit-optimize; here Optuna's Gaussian process takes the best expected improvement"
_ALGORITHMS: dict[str, tuple[dict[str, Any], dict[str, Take | str]]] = {
    "random": ({"name": "random"}, {}),
    "grid": ({"name": "grid"}, {}),
    "sobol": ({"name": "sobol"}, {}),
    "tpe": ({"name": "tpe", "multivariate": False}, {**_TPE}),
    "multivariate-tpe": ({"name": "tpe", "multivariate": True}, {**_TPE}),
    "cmaes": (
        {"name": "cmaes"},
        {
            "sigma": "there it is a number of the parameters' own size, here a share of each range; write the share",
            "restart_strategy": "Optuna's sampler begins no second population",
        },
    ),
    "bayesianoptimization": (
        {"name": "gp"},
        {
            "n_initial_points": _takes("startup_trials"),
            **dict.fromkeys(("base_estimator", "acq_func", "acq_optimizer"), _SKOPT),
        },
    ),
    "pbt": (
        {"name": "population"},
        {
            "n_population": _takes("population_size"),
            "truncation_threshold": _takes("quantile", float),
            "resample_probability": _takes("resample", float),
            "suggestion_trial_dir": "checkpoints are kept in the scratch space of the store",
        },
    ),
    "hyperband": ({"name": "random"}, {name: _resource(name) for name in ("resource_name", "eta", "r_l")}),
}
"""By Katib's name: our algorithm, and for each setting a function that converts it, or why it cannot be converted."""
_REFUSED = {
    "darts": "differentiable architecture search trains one network that holds all others, and has no trials",
    "enas": "it searches for architectures of operations, which training here does not build",
}


def _settings(body: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name; Katib has a list of names and values. Hyperband's resource_name is first, as others need it."""
    settings = {str(entry.get("name")): entry.get("value") for entry in _mappings(body.get("algorithmSettings"))}
    return dict(sorted(settings.items(), key=lambda item: item[0] != "resource_name"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    """A number, which Katib often writes as text."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def _plain(name: str) -> str:
    """`batchSize`, `batch-size` and `--batch_size` as `batch_size`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").strip("_").lower()


def with_section(project: str, section: str) -> str:
    """The text of a project.yaml whose `tuning` section is replaced, or added at the end."""
    lines = project.splitlines(keepends=True)
    begins = next((at for at, line in enumerate(lines) if re.match(r"tuning\s*:", line)), None)
    if begins is None:
        return project.rstrip("\n") + "\n\n" + section
    ends = next((at for at in range(begins + 1, len(lines)) if re.match(r"[^\s#-]", lines[at])), len(lines))
    # Comments and blank lines directly above the next section belong to that section.
    while ends < len(lines) and ends > begins + 1 and re.match(r"\s*(#|$)", lines[ends - 1]):
        ends -= 1
    return "".join([*lines[:begins], section, *lines[ends:]])
