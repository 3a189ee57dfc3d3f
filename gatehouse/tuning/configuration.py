"""Applies chosen parameters to the training settings of a trial, and finds values that no trial can be trained with."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.training.model_spec import architecture_of
from gatehouse.training.spec import SETTINGS, TrainSpec, changed, measured_metrics, own_metric, train_spec
from gatehouse.tuning.parameters import combinations, deciding
from gatehouse.tuning.spec import MEASURES, ExperimentSpec

_OF_THE_MODEL = ("model", "optimizer", "stopping")
"""Groups of settings whose meaning depends on the architecture."""


def configured(base: TrainSpec, chosen: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> TrainSpec:
    """The training settings with the chosen values.

    If the chosen architecture differs from that of `base`, the groups model, optimizer and stopping start with its
    defaults, and the other groups keep the settings that such a model has.

    Args:
        base: The training whose settings are searched.
        chosen: The values of the open parameters, by dotted name.
        settings: Settings of a trial that replace the base's; settings that the chosen model lacks are left out.

    Raises:
        ValidationError: naming every setting that the chosen model does not accept.
    """
    architecture = _architecture(base, chosen)
    taken = {name: value for name, value in (settings or {}).items() if _has(architecture, name)}
    if architecture == base.model.architecture:
        return changed(base, {**taken, **chosen})
    kept = {name: group for name, group in base.model_dump().items() if name not in _OF_THE_MODEL}
    body = {name: _kept(architecture, name, group) for name, group in kept.items() if _has(architecture, name)}
    return changed(train_spec(body | {"model": {"architecture": architecture}}), {**taken, **chosen})


def _architecture(base: TrainSpec, chosen: Mapping[str, Any]) -> str:
    if "model" in chosen:
        return architecture_of(chosen["model"])
    return str(chosen.get("model.architecture", base.model.architecture))


def _kept(architecture: str, name: str, group: Any) -> Any:
    if not isinstance(group, dict) or name == "loss":
        return group
    return {key: value for key, value in group.items() if _has(architecture, f"{name}.{key}")}


def _has(architecture: str, name: str) -> bool:
    """Whether a model of this architecture has the setting."""
    if name.startswith("loss"):
        return True
    owners = {"xgboost"} if architecture == "xgboost" else {"a neural network", architecture}
    return bool(owners.intersection(SETTINGS[name])) or (":" in architecture and "builder" in SETTINGS[name])


def steps_of(spec: ExperimentSpec, base: TrainSpec) -> int:
    """Steps of a whole trial: those of the experiment, else its epochs, else its rounds but at most 20.

    If networks and trees are searched, the largest number of epochs of the networks.
    """
    if spec.steps_per_trial:
        return spec.steps_per_trial
    stoppings = [start.stopping for start in starts(spec, base)]
    epochs = [stopping.epochs for stopping in stoppings if hasattr(stopping, "epochs")]
    return max(epochs) if epochs else min(20, *(getattr(stopping, "rounds", 20) for stopping in stoppings))


def starts(spec: ExperimentSpec, base: TrainSpec) -> list[TrainSpec]:
    """The training of a trial before its other parameters are chosen, for each model of the search."""
    return [configured(base, chosen, spec.trial_settings) for chosen in _models(spec)]


def _models(spec: ExperimentSpec) -> list[dict[str, Any]]:
    """The choices of the parameters that select the model, one per model."""
    named = [each for each in spec.parameters if each.name in ("model", "model.architecture")]
    parents = [parent for each in named for parent in deciding(each, spec.parameters)]
    wanted = {each.name for each in (*named, *parents)}
    return list(combinations([each for each in spec.ordered if each.name in wanted], {}))


Problem = tuple[tuple[str | int, ...], Any, str]
"""The position in the experiment (or in its base, under `training`), the value, and why it is not allowed."""


def infeasible(spec: ExperimentSpec, base: TrainSpec) -> list[Problem]:
    """Values that a trial cannot be trained with, under any condition, and objectives that training does not measure.

    Args:
        spec: The experiment.
        base: The training whose settings are searched.
    """
    spec = spec.aimed_at(own_metric(base))
    found: dict[tuple[str | int, ...], Problem] = {}
    for problem in (*_setting_problems(spec, base), *_parameter_problems(spec, base), *_untrainable(spec, base)):
        found.setdefault(problem[0], problem)
    for problem in () if found else (*_refits(spec, base), *_unmeasured(spec, base), *_rungless(spec, base)):
        found.setdefault(problem[0], problem)
    return list(found.values())


def _setting_problems(spec: ExperimentSpec, base: TrainSpec) -> Iterator[Problem]:
    architectures = [_architecture(base, chosen) for chosen in _models(spec)]
    for name, value in spec.trial_settings.items():
        having = [(each, model) for each, model in zip(architectures, _models(spec), strict=True) if _has(each, name)]
        try:
            if not having:
                changed(base, {name: value})
            for _, chosen in having:
                configured(base, chosen, {name: value})
        except ValidationError as error:
            if why := _reason(name, error):
                yield ("trial_settings", name), value, why


def _untrainable(spec: ExperimentSpec, base: TrainSpec) -> Iterator[Problem]:
    """Problems of a population: it changes settings during training, which only networks support."""
    for chosen in _models(spec) if spec.algorithm.name == "population" else ():
        architecture = _architecture(base, chosen)
        if not _has(architecture, "optimizer.changes"):
            yield ("algorithm",), "population", f"a population is of neural networks, and {architecture} is none"


def _parameter_problems(spec: ExperimentSpec, base: TrainSpec) -> Iterator[Problem]:
    for index, parameter in enumerate(spec.parameters):
        where = ("parameters", index, "name")
        contexts = combinations(deciding(parameter, spec.parameters), {})
        opened = [chosen for chosen in contexts if parameter.is_open(chosen)]
        if not opened:
            yield where, parameter.name, f"{parameter.name}: no choice of its parents opens it"
        for chosen in opened:
            try:
                start = configured(base, chosen)
            except ValidationError:
                continue  # Reported for the parent.
            for value in parameter.extremes:
                try:
                    configured(start, {**chosen, parameter.name: value}, spec.trial_settings)
                except ValidationError as error:
                    if why := _reason(parameter.name, error):
                        yield where, value, why
                        break


def _reason(name: str, error: ValidationError) -> str:
    """Why the setting cannot have its value; empty if the problem is another setting's, where it is reported."""
    details = error.errors()
    own = [each for each in details if f"{'.'.join(map(str, each['loc']))}.".startswith(f"{name}.")]
    return f"{name}: {(own or details)[0]['msg'].removeprefix('Value error, ')}"


def _refits(spec: ExperimentSpec, base: TrainSpec) -> Iterator[Problem]:
    """Settings with which a trial would train on the rows that it is measured on."""
    why = "a trial is measured on the validation rows, which a refit trains on; take final_rows: train_and_validation"
    own = (
        "stopping.refit would train each trial on the validation rows, which it is measured on; set it to 0, and "
        "`tuning.final_rows: train_and_validation` instead"
    )
    for start in starts(spec, base):
        if start.stopping.refit and "stopping.refit" in spec.trial_settings:
            yield ("trial_settings",), start.stopping.refit, f"stopping.refit: {why}"
        elif start.stopping.refit:
            yield ("training", "stopping", "refit"), start.stopping.refit, own
    for index, parameter in enumerate(spec.parameters):
        if parameter.name == "stopping.refit":
            yield ("parameters", index, "name"), parameter.name, f"{parameter.name}: {why}"


def none_held_out(base: TrainSpec, spec: ExperimentSpec | None) -> list[str]:
    """Why no rows are left to correct the final model with; empty if there are some."""
    refits = spec is not None and spec.refits
    if not (refits or base.stopping.refit):
        return []
    cause = "tuning.final_rows" if refits else "training.stopping.refit"
    why = f"expected rows that the model was not trained on, but {cause} trains on the validation rows too"
    return [f"{why}; remove one of the two"]


def _rungless(spec: ExperimentSpec, base: TrainSpec) -> Iterator[Problem]:
    """Problem of a first rung beyond the end of every trial."""
    rule, steps = spec.early_stopping, steps_of(spec, base)
    first = getattr(rule, "min_resource", 0)
    if rule is not None and first > steps:
        why = f"{rule.name}: expected at most the {steps} steps of a trial, as else it stops none; take a smaller one"
        yield ("early_stopping", "min_resource"), first, why


def _unmeasured(spec: ExperimentSpec, base: TrainSpec) -> Iterator[Problem]:
    named: list[tuple[tuple[str | int, ...], str]] = [
        (("objective",) if len(spec.objective) == 1 else ("objective", index), each.metric)
        for index, each in enumerate(spec.objective)
    ]
    named += [(("constraints", index, "measure"), each.measure) for index, each in enumerate(spec.constraints)]
    for start in starts(spec, base):
        measured = measured_metrics(start)
        for where, metric in named:
            if metric not in (known := (*measured, *MEASURES)):
                from gatehouse.metrics.catalogue.watchable import ALIASES  # Which imports NumPy.

                why = (
                    f"expected what training measures: {', '.join(measured)}, or what training.stopping.metric names, "
                    f"or {', '.join(MEASURES)}{nearest(metric, known, elsewhere=ALIASES)}"
                )
                yield where, metric, why
