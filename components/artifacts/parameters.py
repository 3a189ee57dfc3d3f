"""Converts a stage's request and result to KFP parameters: plain values unchanged, all others as JSON text."""

import json
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from gatehouse.components.artifacts.identity import is_operational
from gatehouse.components.artifacts.stage import Stage, StageModel

_PLAIN: dict[Any, str] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    list: "list",
    tuple: "list",
    dict: "dict",
}


def inputs_of(stage: Stage[Any, Any]) -> dict[str, str]:
    """The type of every parameter of a stage's request, by name; operational fields are left out."""
    fields = stage.request.model_fields
    return {name: _plain(stage.request, name) or "str" for name in fields if not is_operational(fields[name])}


def outputs_of(stage: Stage[Any, Any]) -> dict[str, str]:
    """The type of every parameter of a stage's result, by name."""
    return {name: _plain(stage.result, name) or "str" for name in stage.result.model_fields}


def defaults_of(stage: Stage[Any, Any]) -> dict[str, Any]:
    """The optional parameters, with their defaults."""
    fields = stage.request.model_fields
    given = {name: fields[name] for name in inputs_of(stage) if not fields[name].is_required()}
    values = {name: field.get_default(call_default_factory=True) for name, field in given.items()}
    dumped = stage.request.model_construct(**values).model_dump(mode="json", include=set(values))
    return {name: _carried(stage.request, name, dumped[name]) for name in values}


def request_of(stage: Stage[Any, Any], /, **given: Any) -> StageModel:
    """Build a request from parameters.

    Args:
        stage: The stage.
        **given: Parameters by the name of their field; JSON text for a field that holds a model.

    Raises:
        ValidationError: if they are not valid for the stage.
    """
    model: type[StageModel] = stage.request
    values = {name: value if _plain(model, name) else json.loads(value) for name, value in given.items()}
    return model.model_validate_json(json.dumps(values))


def values_of(result: StageModel) -> tuple[Any, ...]:
    """The parameters of a result, in the order of its fields."""
    return tuple(_carried(type(result), name, value) for name, value in result.model_dump(mode="json").items())


def _carried(model: type[BaseModel], name: str, value: Any) -> Any:
    return value if _plain(model, name) else json.dumps(value)


def _plain(model: type[BaseModel], name: str) -> str:
    """The type of a field that KFP passes unchanged; empty for all others."""
    annotation = model.model_fields[name].annotation
    kind = type(get_args(annotation)[0]) if get_origin(annotation) is Literal else get_origin(annotation) or annotation
    return _PLAIN.get(kind, "")
