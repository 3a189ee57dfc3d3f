"""Applies chosen parameters to the training settings of a trial, and finds values that no trial can be trained with."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.metrics.catalogue import ALIASES
from gatehouse.training.model_spec import architecture_of
from gatehouse.training.spec import TrainSpec, changed, has_setting, measured_metrics, own_metric, train_spec
from gatehouse.tuning.spec import MEASURES, ExperimentSpec, samples

_OF_THE_MODEL = ("model", "optimizer", "stopping")
"""Groups of settings whose meaning depends on the architecture."""

Problem = tuple[tuple[str | int, ...], Any, str]
"""The position in the experiment (or in its base, under `training`), the value, and why it is not allowed."""


def configured(base: TrainSpec, chosen: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> TrainSpec:
    """The training settings with the chosen values.

    If the chosen architecture differs from that of `base`, the groups model, optimizer and stopping start with its
    defaults, and the other groups keep the settings that such a model has.

    `settings` of a trial replace those of the base; settings that the chosen model lacks are left out.

    Raises:
        ValidationError: naming every setting that the chosen model does not accept.
    """
    architecture = _architecture(base, chosen)
    values = {name: value for name, value in (settings or {}).items() if has_setting(architecture, name)} | dict(chosen)
    if architecture == base.model.architecture:
        return changed(base, values)
    body: dict[str, Any] = {"model": {"architecture": architecture}}
    for name, group in base.model_dump().items():
        if name in _OF_THE_MODEL or not has_setting(architecture, name):
            continue
        if isinstance(group, dict) and name != "loss":
            group = {key: value for key, value in group.items() if has_setting(architecture, f"{name}.{key}")}
        body[name] = group
    return changed(train_spec(body), values)


def _architecture(base: TrainSpec, chosen: Mapping[str, Any]) -> str:
    if "model" in chosen:
        return architecture_of(chosen["model"])
    return str(chosen.get("model.architecture", base.model.architecture))


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
    return [configured(base, chosen, spec.trial_settings) for chosen in _models(samples(spec.parameters))]


_MODEL = ("model", "model.architecture")


def _models(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The choices of the model in these configurations."""
    models: list[dict[str, Any]] = []
    for chosen in drawn:
        model = {name: chosen[name] for name in _MODEL if name in chosen}
        if model not in models:
            models.append(model)
    return models


def none_held_out(base: TrainSpec, spec: ExperimentSpec | None) -> list[str]:
    """Why no rows are left to correct the final model with; empty if there are some."""
    refits = spec is not None and spec.refits
    if not (refits or base.stopping.refit):
        return []
    cause = "tuning.final_rows" if refits else "training.stopping.refit"
    return [f"expected rows that the model was not trained on, but {cause} trains on the validation rows too"]


def infeasible(spec: ExperimentSpec, base: TrainSpec) -> list[Problem]:
    """Values with which no trial can be trained, and objectives that training does not measure."""
    spec = spec.aimed_at(own_metric(base))
    problems: dict[tuple[str | int, ...], Problem] = {}
    for problem in (*_setting_problems(spec, base), *_parameter_problems(spec, base)):
        problems.setdefault(problem[0], problem)
    for problem in () if problems else _measurement_problems(spec, base):
        problems.setdefault(problem[0], problem)
    return list(problems.values())


def _setting_problems(spec: ExperimentSpec, base: TrainSpec) -> Iterator[Problem]:
    models = [(_architecture(base, chosen), chosen) for chosen in _models(samples(spec.parameters))]
    for name, value in spec.trial_settings.items():
        owners = [chosen for architecture, chosen in models if has_setting(architecture, name)]
        try:
            if not owners:
                changed(base, {name: value})
            for chosen in owners:
                configured(base, chosen, {name: value})
        except ValidationError as error:
            yield ("trial_settings", name), value, _reason(name, error)
    for architecture, _ in models if spec.algorithm.name == "population" else ():
        if not has_setting(architecture, "optimizer.changes"):
            yield ("algorithm",), "population", f"a population is of neural networks, and {architecture} is none"


def _parameter_problems(spec: ExperimentSpec, base: TrainSpec) -> Iterator[Problem]:
    drawn = samples(spec.parameters)
    for index, parameter in enumerate(spec.parameters):
        where = ("parameters", index, "name")
        used = [chosen for chosen in drawn if parameter.is_open(chosen)]
        if not used:
            yield where, parameter.name, f"{parameter.name}: no choice of its parents opens it"
        for model in _models([{name: chosen[name] for name in chosen if name != parameter.name} for chosen in used]):
            try:
                start = configured(base, model)
            except ValidationError:
                continue  # Reported for the parameter that selects the model.
            for value in parameter.extremes:
                try:
                    configured(start, {**model, parameter.name: value}, spec.trial_settings)
                except ValidationError as error:
                    yield where, value, _reason(parameter.name, error)
                    break


def _reason(name: str, error: ValidationError) -> str:
    """Why the setting cannot have its value."""
    details = error.errors()
    own = [detail for detail in details if f"{'.'.join(map(str, detail['loc']))}.".startswith(f"{name}.")]
    return f"{name}: {(own or details)[0]['msg'].removeprefix('Value error, ')}"


def _measurement_problems(spec: ExperimentSpec, base: TrainSpec) -> Iterator[Problem]:
    """Trials that train on the rows they are measured on, and metrics that training does not measure."""
    refit = "a refit trains on the validation rows, which measure a trial; use final_rows: train_and_validation"
    measured_names: list[tuple[tuple[str | int, ...], str]] = [
        (("objective",) if len(spec.objective) == 1 else ("objective", index), objective.metric)
        for index, objective in enumerate(spec.objective)
    ]
    measured_names += [
        (("constraints", index, "measure"), constraint.measure) for index, constraint in enumerate(spec.constraints)
    ]
    for start in starts(spec, base):
        if start.stopping.refit:
            setting = "stopping.refit" in spec.trial_settings
            where = ("trial_settings",) if setting else ("training", "stopping", "refit")
            yield where, start.stopping.refit, f"stopping.refit: {refit}"
        available = (*measured_metrics(start), *MEASURES)
        for place, metric in measured_names:
            if metric not in available:
                meant = nearest(metric, available, synonyms=ALIASES)
                yield place, metric, f"expected {', '.join(available)}, or what training.stopping.metric names{meant}"
    for index, parameter in enumerate(spec.parameters):
        if parameter.name == "stopping.refit":
            yield ("parameters", index, "name"), parameter.name, f"{parameter.name}: {refit}"
