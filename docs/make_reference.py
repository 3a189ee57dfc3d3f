"""Writes docs/project.md and docs/platforms.md from the models that check these files."""

import inspect
from typing import Any, get_args

import yaml
from _pages import EXAMPLE, ROOT, main, table
from pydantic import BaseModel

from gatehouse.data.sources.catalog import SourceSpec
from gatehouse.data.splitting.spec import STRATEGIES
from gatehouse.data.validation.contract import Contract, Rule
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.features.definitions import Entity, FeatureService, FeatureView, LabelView, OnDemandView, Source
from gatehouse.launchers.spec import Launch
from gatehouse.project.platforms import Platform
from gatehouse.project.project_file import ProjectFile
from gatehouse.training.spec import NetworkTraining, TreesTraining

SOURCES: tuple[type[BaseModel], ...] = get_args(get_args(SourceSpec)[0])
LAUNCHES: tuple[type[BaseModel], ...] = get_args(get_args(Launch)[0])


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models inside a type."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) and not issubclass(annotation, Rule) else []
    return [model for part in getattr(annotation, "__args__", ()) for model in _models(part)]


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
    bounds = [f"{sign} {schema[key]:.15g}" for key, sign in signs.items() if key in schema]
    bounds += [f"`{schema['pattern']}`"] if "pattern" in schema else []
    return f" ({', '.join(bounds)})" if bounds else ""


def _default(schema: dict[str, Any], required: bool) -> str:
    if required:
        return "**required**"
    value = schema.get("default")
    if value is None or value in ("", [], {}) or isinstance(value, dict):
        return ""
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        value = [{name: item for name, item in entry.items() if item is not None} for entry in value]
        return f"`{yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()}`"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(f"`{item}`" if item else "the empty text" for item in value)
    return f"`{value}`".replace("'", "").replace("True", "true").replace("False", "false")


def section(title: str, model: type[BaseModel], level: int, prefix: str = "", skip: tuple[str, ...] = ()) -> str:
    """The heading, docstring and keys of a model, followed by the models that it holds."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    # What may be written as a bare list has the form of a mapping beside it.
    schema = schema if "properties" in schema else next(form for form in schema["anyOf"] if "properties" in form)
    required = schema.get("required", [])
    rows = [
        [f"`{name}`", _type(field, definitions), _default(field, name in required), field.get("description", "")]
        for name, field in schema["properties"].items()
    ]
    parts = [
        f"{'#' * level} {title}\n",
        f"{inspect.getdoc(model) or ''}\n",
        table(["key", "value", "default", "what it is"], rows),
    ]
    for name, field in model.model_fields.items():
        for inner in dict.fromkeys(_models(field.annotation)):
            if name not in skip:
                many = f"{prefix}{name}" + (
                    ".*" if getattr(field.annotation, "__origin__", None) in (dict, tuple) else ""
                )
                named = inner.model_fields.get("name")
                tag = named and isinstance(named.default, str) and named.default
                by = f" by `{tag}`" if tag else ""
                parts.append(section(f"`{many}`{by}", inner, min(level + 1, 4), f"{many}."))
    return "\n".join(parts)


def _alternatives(name: str, models: tuple[type[BaseModel], ...], key: str, text: str) -> str:
    """The sections of a key that holds one of several models; what these share is explained once."""
    parts = [f"### `{name}`\n\n{text}\n"]
    users_of: dict[type[BaseModel], list[tuple[str, str]]] = {}
    for model in models:
        tag = model.model_fields[key].annotation.__args__[0]  # type: ignore[union-attr]  # a Literal
        fields = [(inner, field) for field in model.model_fields for inner in _inner(model, field)]
        for inner, field in fields:
            users_of.setdefault(inner, []).append((tag, field))
        parts.append(section(f"`{name}` by `{tag}`", model, 4, skip=tuple(field for _, field in fields)))
    deeper = {
        deep: (inner, field) for inner in users_of for field in inner.model_fields for deep in _inner(inner, field)
    }
    once = {deep: place for deep, place in deeper.items() if len(models) > 1 and len(users_of) > 1}
    for inner, users in users_of.items():
        shared = len(users) == len(models) or len(users_of) == 1
        of = "" if shared else " of " + ", ".join(f"`{tag}`" for tag, _ in users)
        skip = tuple(field for _, field in once.values())
        parts.append(section(f"`{name}.{users[0][1]}`{of}", inner, 4, skip=skip))
    parts += [section(f"`{name}.{users_of[inner][0][1]}.*.{field}`", deep, 4) for deep, (inner, field) in once.items()]
    return "\n".join(parts)


def _inner(model: type[BaseModel], field: str) -> list[type[BaseModel]]:
    return _models(model.model_fields[field].annotation)


def _training() -> str:
    """The sections of `training`: a network and trees have groups of their own, and some groups have alternatives."""
    kinds: dict[str, type[BaseModel]] = {"a neural network": NetworkTraining, "`xgboost`": TreesTraining}
    text = "A neural network and trees have settings of their own; `model.architecture` says which there are."
    parts = [f"### `training`\n\n{ProjectFile.model_fields['training'].description} {text}\n"]
    parts += [
        section(f"`training` of {kind}", model, 4, skip=tuple(model.model_fields)) for kind, model in kinds.items()
    ]
    shown: set[type[BaseModel]] = set()
    for field in NetworkTraining.model_fields:
        shared = NetworkTraining.model_fields[field].annotation == _annotation(TreesTraining, field)
        for kind, model in kinds.items():
            for group in _models(_annotation(model, field)):
                keys = [group.model_fields[key] for key in ("architecture", "kind") if key in group.model_fields]
                tag = "builder" if keys and keys[0].is_required() else str(keys[0].default) if keys else ""
                if group not in shown:
                    shown.add(group)
                    of = f" by `{tag}`" if tag else "" if shared else f" of {kind}"
                    parts.append(section(f"`training.{field}`{of}", group, 4))
    return "\n".join(parts)


def _annotation(model: type[BaseModel], field: str) -> Any:
    return model.model_fields[field].annotation if field in model.model_fields else None


def _project() -> str:
    parts = [section("project.yaml", ProjectFile, 2, skip=tuple(ProjectFile.model_fields))]
    strategies = f"{ProjectFile.model_fields['split'].description} `strategy` says how; it may be left out for `time`."
    alternatives: dict[str, tuple[tuple[type[BaseModel], ...], str, str]] = {
        "source": (SOURCES, "kind", "Where the raw tables come from. `kind` says what it is."),
        "split": (STRATEGIES, "strategy", strategies),
        "launch": (LAUNCHES, "kind", "Where training runs; it is in no key. See [launchers](launchers.md)."),
    }
    for name, field in ProjectFile.model_fields.items():
        if name in alternatives:
            parts.append(_alternatives(name, *alternatives[name]))
        elif name == "training":
            parts.append(_training())
        elif models := _models(field.annotation):
            # The columns of a transformation have the models of its other keys.
            parts.append(section(f"`{name}`", models[0], 3, f"{name}.", skip=("columns",) * (name == "transformation")))
    parts.append(section("contract.yaml", Contract, 2))
    parts.append(section("policy.yaml", GatePolicy, 2))
    defined = (Source, Entity, FeatureView, OnDemandView, LabelView, FeatureService)
    definitions = [section(f"`{model.__name__}`", model, 3) for model in defined]
    return _filled("project.md", keys="\n".join(parts), definitions="\n".join(definitions))


def _filled(page: str, **texts: str) -> str:
    """The text of `docs/<page>.in` with its placeholders replaced."""
    template = (ROOT / "docs" / f"{page}.in").read_text(encoding="utf-8")
    for name, text in texts.items():
        template = template.replace(f"{{{name}}}", text)
    return template


def pages() -> dict[str, str]:
    """The pages."""
    example = (EXAMPLE / "platforms" / "cluster.yaml").read_text(encoding="utf-8")
    return {
        "docs/project.md": _project(),
        "docs/platforms.md": _filled("platforms.md", example=example, keys=section("Keys", Platform, 2)),
    }


if __name__ == "__main__":
    main(pages, __doc__)
