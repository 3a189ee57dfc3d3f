"""Writes docs/project.md: every key of a project's files, read from the pydantic models that check them."""

from typing import Any, get_args

import yaml
from _pages import main, table
from pydantic import BaseModel

from gatehouse.configuration.schedule import Schedule
from gatehouse.data.sources.catalog import SourceSpec
from gatehouse.data.splitting.spec import STRATEGIES
from gatehouse.data.validation.column_contract import Rule
from gatehouse.data.validation.contract import Contract
from gatehouse.data.validation.spec import StatisticsSpec
from gatehouse.evaluation.integration.spec import IntegrationSpec
from gatehouse.evaluation.probing.spec import ProbeSpec
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.features.definitions import Entity, FeatureService, FeatureView, LabelView, OnDemandView, Source, Stream
from gatehouse.features.spec import FeaturesSpec
from gatehouse.launchers.spec import Launch
from gatehouse.monitoring.spec import MonitoringSpec
from gatehouse.project.project_file import ProjectFile
from gatehouse.project.task_settings import StageSettings, TaskResources
from gatehouse.tracking.provenance import Prices
from gatehouse.training.calibration.spec import CalibrationSpec
from gatehouse.training.spec import NetworkTraining, TreesTraining, groups_of
from gatehouse.training.transformation.spec import TransformationSpec
from gatehouse.tuning.spec import ExperimentSpec

_HEAD = """# A project

<!-- Written by docs/make_reference.py from the models that check these files; do not edit. -->

A project is one folder of configuration. `gatehouse init NAME` writes a commented one; the example is
[pipelines/projects/flights](../pipelines/projects/flights/project.yaml). Everything is checked before anything runs:
`gatehouse run` lists every mistake of `project.yaml`, `contract.yaml` and `policy.yaml` at once, each with file, line
and key. A key that is not listed here is a mistake, not a comment.

| file | what it says |
| --- | --- |
| [`project.yaml`](#projectyaml) | source, features, label's split, model, training, tuning, evaluation, schedules |
| [`contract.yaml`](#contractyaml) | what the raw tables promise |
| [`policy.yaml`](#policyyaml) | what a candidate must show to become champion |
| [the feature repository](#the-feature-repository) | entity rows, feature views, the feature service |

A rule of the contract that is *graded* may carry its own severity and owner: `max: 3`, or
`max: {value: 3, severity: warn, owner: ops}`.

Durations are ISO 8601 without months (`P1D`, `PT6H`, `P1DT12H`), in Python `timedelta`. Times without a zone are UTC. A
key with neither a default nor **required** may be left out.

"""

_REPOSITORY = """## The feature repository

The folder that `features.repo` names. It is published to the store as it is, as one configuration reference: editing a
query makes the feature stages and what follows run again.

| file | what it is |
| --- | --- |
| `definitions.py` | sources, entities, feature views, the label view and feature services, below |
| `views/NAME.sql` | the query that computes the feature view NAME |
| `on_demand/NAME.sql` | the query that computes the on-demand view NAME from the table `rows` |
| `labels/NAME.sql` | the query of the label view: one row for each decision |
| `staging/NAME.sql` | a table that views read as `staging.NAME`; staging queries may read each other |
| `known/TABLE.sql` | a raw table as it stood at a moment, without later outcomes; the leakage check reads it |
| `macros.sql` | DuckDB macros that the queries share; may be missing |
| `feature_store.yaml` | Feast's own settings: offline and online store |
| `feast_objects.py` | the definitions as Feast objects, for Feast's own command line; may be missing |

Queries are DuckDB SQL. They read `raw.TABLE` (the snapshot) and `staging.NAME`. Parameters have names:
`getvariable('as_of')` is the newest moment that the snapshot knows; `from` and `until` bound the event times that are
wanted, and a query may use them to do less. `known/TABLE.sql` reads `source.TABLE` and two variables: `as_of`, the
moment to go back to, and `since`, from which on rows are needed.

The label's query gives its entity keys, the time of the decision, the outcome, and when that arrived. Rows whose label
has not arrived, or is younger than its horizon, are set aside and counted by reason.

A view's query gives exactly its entity keys, `event_timestamp`, the column that says since when a row is known (it may
be the same), and its features. The check for leakage recomputes features at moments of the past and compares.
[features.md](features.md) says how time works.

"""


SOURCES: tuple[type[BaseModel], ...] = get_args(get_args(SourceSpec)[0])
LAUNCHES: tuple[type[BaseModel], ...] = get_args(get_args(Launch)[0])

# For keys whose name says it all in the code.
_WORDS = {
    ("ProjectFile", "description"): "What the model predicts; at most 400 characters.",
    ("ProjectFile", "features"): "Where features are defined.",
    ("ProjectFile", "split"): "How rows are divided into train, validation and test.",
    ("ProjectFile", "transformation"): "How feature columns become what a model reads; fitted on the train part.",
    ("ProjectFile", "training"): "The model and its full budget; tuning overwrites what it searches.",
    ("ProjectFile", "tuning"): "What is searched, and with which budget.",
    ("ProjectFile", "evaluation"): "What is measured.",
    ("ProjectFile", "monitoring"): "What counts as drift.",
    ("ProjectFile", "launch"): "Where training runs; it is in no key.",
    ("ProjectFile", "prices"): "What an hour of each type of machine costs.",
    ("ProjectFile", "resources"): "What the pods of single tasks get.",
    ("ProjectFile", "schedules"): "When the pipelines recur.",
    **{(model.__name__, "kind"): "What the source is." for model in SOURCES},
    **{(model.__name__, "tables"): "The raw tables, by name." for model in SOURCES},
    ("Constraint", "at_most"): "Greatest value; or `at_least`.",
    ("Constraint", "at_least"): "Least value; or `at_most`.",
    ("ParameterSpec", "type"): "What its values are.",
    ("ParameterSpec", "min"): "Least value; not for categorical.",
    ("ParameterSpec", "max"): "Greatest value; not for categorical.",
    ("EvaluationSpec", "calibration_bins"): "Bins of the calibration curve and error.",
    ("EvaluationSpec", "seed"): "Of the resamples.",
    ("Contract", "description"): "What the tables are.",
    ("Contract", "tables"): "Promises by table.",
    ("TableContract", "min_rows"): "Least number of rows.",
    ("TableContract", "max_rows"): "Greatest number of rows.",
    ("TableContract", "columns"): "Promises by column.",
    ("TableContract", "freshness"): "How old the newest row may be.",
    ("TableContract", "expressions"): "Rules over the columns of one row.",
    ("TableContract", "foreign_keys"): "Values that must be found in another table.",
    ("ColumnContract", "type"): "As declared in `source`.",
    ("ColumnContract", "warn"): "Rules whose breach is reported and does not break the contract.",
    ("ColumnContract", "nullable"): "Whether any value may be null.",
    ("Freshness", "column"): "A timestamp column of the table.",
    ("Expression", "name"): "What the anomaly is called.",
    ("Expression", "sql"): "True for a row that keeps it; must not differ from run to run.",
    ("ForeignKey", "columns"): "Columns of this table.",
    ("ForeignKey", "table"): "The other table.",
    ("GatePolicy", "bars"): "Bounds by metric.",
    ("GatePolicy", "champion"): "How the candidate must compare with the champion.",
    ("Bar", "min"): "Least value.",
    ("Bar", "max"): "Greatest value.",
    ("ChampionRule", "metric"): "What is compared.",
    ("ChampionRule", "tolerance"): "How much worse it may be.",
}
_SEVERITY = {"severity": "Whether a breach fails the contract or is only reported."}


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models inside a type."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) and not issubclass(annotation, Rule) else []
    return [model for part in getattr(annotation, "__args__", ()) for model in _models(part)]


def _many(annotation: Any) -> bool:
    """Whether a type holds many of its kind: a dictionary or a tuple."""
    return getattr(annotation, "__origin__", None) in (dict, tuple)


def _type(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A JSON schema in words."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[1]]
        return _type(target, definitions) if "properties" not in target else "keys below"
    if "allOf" in schema:
        return _type(schema["allOf"][0], definitions)
    if set(schema.get("properties", ())) == {"value", "severity", "owner"}:
        return "graded"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(part, definitions) for part in schema["anyOf"]))
    if "oneOf" in schema:
        return "keys below"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema['items'], definitions)}" if "items" in schema else "list"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"{_type(inner, definitions)}, by name" if isinstance(inner, dict) else "keys below"
    plain = {"string": "text", "integer": "integer", "number": "number", "boolean": "`true` or `false`"}
    words = plain.get(str(kind), str(kind))
    return {"duration": "duration", "date-time": "time"}.get(schema.get("format", ""), words) + _bounds(schema)


def _bounds(schema: dict[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {_short(schema[key])}" for key, sign in signs.items() if key in schema]
    found += [f"`{schema['pattern']}`"] if "pattern" in schema else []
    return f" ({', '.join(found)})" if found else ""


def _short(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _default(schema: dict[str, Any], required: bool) -> str:
    if required:
        return "**required**"
    value = schema.get("default")
    if value is None or value in ("", [], {}) or isinstance(value, dict):
        return ""
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        value = [{name: each for name, each in one.items() if each is not None} for one in value]
        return f"`{yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()}`"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(f"`{each}`" if each else "the empty text" for each in value)
    return f"`{value}`".replace("'", "").replace("True", "true").replace("False", "false")


def _says(model: type[BaseModel], name: str, field: dict[str, Any]) -> str:
    """What a key is: in the model's words, or in ours where it has none."""
    return str(field.get("description") or _WORDS.get((model.__name__, name)) or _SEVERITY.get(name, ""))


def section(title: str, model: type[BaseModel], level: int, prefix: str = "", skip: tuple[str, ...] = ()) -> str:
    """The heading, docstring and keys of a model, followed by the models that it holds."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    # What may be written as a bare list has the form of a mapping beside it.
    schema = schema if "properties" in schema else next(one for one in schema["anyOf"] if "properties" in one)
    required = schema.get("required", [])
    rows = [
        [f"`{name}`", _type(field, definitions), _default(field, name in required), _says(model, name, field)]
        for name, field in schema["properties"].items()
    ]
    parts = [f"{'#' * level} {title}\n", _paragraphs(model), table(["key", "value", "default", "what it is"], rows)]
    for name, field in model.model_fields.items():
        for inner in dict.fromkeys(_models(field.annotation)):
            if name not in skip:
                many = f"{prefix}{name}" + (".*" if _many(field.annotation) else "")
                named = inner.model_fields.get("name")
                tag = named and isinstance(named.default, str) and named.default
                by = f" by `{tag}`" if tag else ""
                parts.append(section(f"`{many}`{by}", inner, min(level + 1, 4), f"{many}."))
    return "\n".join(parts)


def _alternatives(name: str, models: tuple[type[BaseModel], ...], key: str, said: str) -> str:
    """The sections of a key that holds one of several models; what these share is explained once."""
    parts = [f"### `{name}`\n\n{said}\n"]
    held: dict[type[BaseModel], list[tuple[str, str]]] = {}
    for model in models:
        tag = model.model_fields[key].annotation.__args__[0]  # type: ignore[union-attr]  # a Literal
        fields = [(inner, field) for field in model.model_fields for inner in _inner(model, field)]
        for inner, field in fields:
            held.setdefault(inner, []).append((tag, field))
        parts.append(section(f"`{name}` by `{tag}`", model, 4, skip=tuple(field for _, field in fields)))
    deeper = {deep: (inner, field) for inner in held for field in inner.model_fields for deep in _inner(inner, field)}
    once = {deep: place for deep, place in deeper.items() if len(models) > 1 and len(held) > 1}
    for inner, users in held.items():
        of = "" if len(users) == len(models) or len(held) == 1 else " of " + ", ".join(f"`{tag}`" for tag, _ in users)
        skip = tuple(field for _, field in once.values())
        parts.append(section(f"`{name}.{users[0][1]}`{of}", inner, 4, skip=skip))
    parts += [section(f"`{name}.{held[inner][0][1]}.*.{field}`", deep, 4) for deep, (inner, field) in once.items()]
    return "\n".join(parts)


def _inner(model: type[BaseModel], field: str) -> list[type[BaseModel]]:
    return _models(model.model_fields[field].annotation)


def _training() -> str:
    """The sections of `training`: a network and trees have groups of their own, and some groups have alternatives."""
    kinds: dict[str, type[BaseModel]] = {"a neural network": NetworkTraining, "`xgboost`": TreesTraining}
    said = "A neural network and trees have settings of their own; `model.architecture` says which there are."
    parts = [f"### `training`\n\n{_WORDS[('ProjectFile', 'training')]} {said}\n"]
    parts += [
        section(f"`training` of {kind}", model, 4, skip=tuple(model.model_fields)) for kind, model in kinds.items()
    ]
    shown: set[type[BaseModel]] = set()
    for field in NetworkTraining.model_fields:
        shared = NetworkTraining.model_fields[field].annotation == _annotation(TreesTraining, field)
        for kind, model in kinds.items():
            for tag, group in groups_of(_annotation(model, field)):
                if group not in shown:
                    shown.add(group)
                    of = f" by `{tag}`" if tag else "" if shared else f" of {kind}"
                    parts.append(section(f"`training.{field}`{of}", group, 4))
    return "\n".join(parts)


def _annotation(model: type[BaseModel], field: str) -> Any:
    return model.model_fields[field].annotation if field in model.model_fields else None


def _paragraphs(model: type[BaseModel]) -> str:
    lines = [line.strip() for line in (model.__doc__ or "").splitlines()]
    return "\n".join(lines).strip() + "\n"


def page() -> dict[str, str]:
    """docs/project.md."""
    parts = [_HEAD + section("project.yaml", ProjectFile, 2, skip=tuple(ProjectFile.model_fields))]
    strategies = f"{_WORDS[('ProjectFile', 'split')]} `strategy` says how; it may be left out for `time`."
    inner: dict[str, type[BaseModel] | tuple[tuple[type[BaseModel], ...], str, str]] = {
        "source": (SOURCES, "kind", "Where the raw tables come from. `kind` says what it is."),
        "features": FeaturesSpec,
        "split": (STRATEGIES, "strategy", strategies),
        "transformation": TransformationSpec,
        "training": NetworkTraining,
        "tuning": ExperimentSpec,
        "calibration": CalibrationSpec,
        "evaluation": EvaluationSpec,
        "probes": ProbeSpec,
        "integration": IntegrationSpec,
        "monitoring": MonitoringSpec,
        "statistics": StatisticsSpec,
        "launch": (
            LAUNCHES,
            "kind",
            "Where training runs; it is in no key. See [launchers](launchers.md).",
        ),
        "prices": Prices,
        "resources": TaskResources,
        "schedules": Schedule,
        "stages": StageSettings,
    }
    held = {name for name, field in ProjectFile.model_fields.items() if _models(field.annotation)}
    assert held == set(inner), f"project.yaml holds {sorted(held ^ set(inner))} that this page does not know"
    for name, model in inner.items():
        if isinstance(model, tuple):
            parts.append(_alternatives(name, *model))
        elif name == "training":
            parts.append(_training())
        else:
            told = ("columns",) if model is TransformationSpec else ()  # its columns have the models of its other keys
            parts.append(section(f"`{name}`", model, 3, f"{name}.", skip=told))
    parts.append(section("contract.yaml", Contract, 2))
    parts.append(section("policy.yaml", GatePolicy, 2))
    parts.append(_REPOSITORY)
    defined = (Source, Stream, Entity, FeatureView, OnDemandView, LabelView)
    parts += [section(f"`{model.__name__}`", model, 3) for model in defined]
    parts.append(section("`FeatureService`", FeatureService, 3))
    return {"docs/project.md": "\n".join(parts)}


if __name__ == "__main__":
    main(page, __doc__)
