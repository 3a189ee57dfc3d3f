"""Converts a stage's request and result to KFP parameters: a model is an object, which the UI shows line by line."""

import json
import os
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel

from gatehouse.store.forcing import nonces_of
from gatehouse.store.forms import FILLED_IN, given
from gatehouse.store.identity import is_operational
from gatehouse.store.run import LAST_STAGE
from gatehouse.store.stage import Req, Res, Stage, StageModel
from gatehouse.store.store import ArtifactStore

_Model = TypeVar("_Model", bound=BaseModel)
_NUMBER = re.compile(r"\(number (.+)\)")
_MOST_EXACT = 2**53
"""Every whole number up to this one is a fraction of 64 bits too."""
_NULL = "(none)"
"""Stands for null in an object, which KFP's SDK cannot compile."""
_ESCAPED = re.compile(r'"(?=.*\\u)(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-f]{4})*"')
"""A text as JSON writes it, with a character by its number: a spec is ASCII, and a name in it may not be."""

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
    return {name: _plain(stage.request, name) or "dict" for name in fields if not is_operational(fields[name])}


def outputs_of(stage: Stage[Any, Any]) -> dict[str, str]:
    """The type of every parameter of a stage's result, by name."""
    return {name: _plain(stage.result, name) or "dict" for name in stage.result.model_fields}


def defaults_of(stage: Stage[Any, Any]) -> dict[str, Any]:
    """The optional parameters, with their defaults."""
    fields = stage.request.model_fields
    optional = {name: fields[name] for name in inputs_of(stage) if not fields[name].is_required()}
    values = {name: field.get_default(call_default_factory=True) for name, field in optional.items()}
    dumped: dict[str, Any] = stage.request.model_construct(**values).model_dump(mode="json", include=set(values))
    return dumped


def request_of(stage: Stage[Req, Any], /, **parameters: Any) -> Req:
    """Build a request from parameters.

    Args:
        stage: The stage.
        **parameters: By the name of their field.

    Raises:
        ValidationError: if they are not valid for the stage.
    """
    texts = {name: given(text) for name in FILLED_IN if isinstance(text := parameters.get(name), str)}
    return spec_of(stage.request, parameters | texts)


def parameter_of(spec: BaseModel) -> dict[str, Any]:
    """A configuration as a KFP parameter: an object, which the UI shows line by line.

    Only what differs from the defaults is in it: Argo keeps the parameters of a task six times in its table of nodes,
    which may not grow beyond a megabyte. Null is marked, as KFP's SDK takes none, and so are numbers that KFP would
    change: it makes a fraction of each, so that 1.0 and 1 are one number to it.
    """
    written: dict[str, Any] = _replaced(_differing(spec, spec.model_dump(mode="json")), _written, _ascii)
    return written


def _differing(value: Any, dumped: Any) -> Any:
    """What of a value's JSON differs from the defaults of its models, with the words that tell kinds apart."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        pairs = [(name, getattr(value, name), field) for name, field in fields if name in dumped]
        return {
            name: _differing(own, dumped[name])
            for name, own, field in pairs
            if get_origin(field.annotation) is Literal
            or field.is_required()
            or own != field.get_default(call_default_factory=True)
        }
    if isinstance(value, Mapping):
        return {name: _differing(one, dumped[name]) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_differing(one, dumped[place]) for place, one in enumerate(value)]
    return dumped


def spec_of(model: type[_Model], parameter: Mapping[str, Any]) -> _Model:
    """A configuration from a KFP parameter.

    Raises:
        ValidationError: if it does not fit the model.
    """
    return model.model_validate_json(json.dumps(as_written(parameter)))


def as_written(parameter: Any) -> Any:
    """What `parameter_of` was given: null in place of its mark, and 5 where KFP made 5.0 of it, at any depth.

    Keys are sorted: KFP keeps no order.
    """
    return _replaced(parameter, _read, _unicode)


def _written(value: Any) -> Any:
    if value is None:
        return _NULL
    if isinstance(value, str):
        return _ascii(value)
    whole = isinstance(value, float) and value.is_integer()
    large = isinstance(value, int) and abs(value) > _MOST_EXACT
    return f"(number {value!r})" if whole or large else value


def _read(value: Any) -> Any:
    if isinstance(value, str):
        number = _NUMBER.fullmatch(value)
        return None if value == _NULL else json.loads(number[1]) if number else _unicode(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _ascii(text: str) -> str:
    """The text, escaped where it is not ASCII, or would be read as something else."""
    plain = text.isascii() and not text.startswith("(") and not _ESCAPED.fullmatch(text)
    return text if plain else json.dumps(text).replace("(", r"\u0028")


def _unicode(text: str) -> str:
    return str(json.loads(text)) if _ESCAPED.fullmatch(text) else text


def _replaced(value: Any, replace: Callable[[Any], Any], name: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {name(key): _replaced(value[key], replace, name) for key in sorted(value, key=name)}
    if isinstance(value, list | tuple):
        return [_replaced(one, replace, name) for one in value]
    return replace(value)


def runner(
    store: ArtifactStore, code: Mapping[str, str] = MappingProxyType({}), rerun: str = ""
) -> Callable[[Stage[Req, Res], Req], Res]:
    """A function that runs a stage of a KFP task with a request.

    Args:
        store: The artifact store.
        code: By stage the code digest of the compiled spec; the code on disk is taken where there is none.
        rerun: The run's parameter of this name.
    """
    nonces = nonces_of(rerun)

    def run(stage: Stage[Req, Res], request: Req) -> Res:
        settings = {"code": code.get(stage.name, ""), "force": nonces.get(stage.name, "")}
        # Some stages keep more than their result; their request has these fields too.
        fields = {name: value for name, value in settings.items() if name in type(request).model_fields}
        result = stage(request.model_copy(update=fields), store, **settings)
        if os.environ.get(LAST_STAGE) == stage.name:
            raise SystemExit(0)
        return result

    return run


def values_of(result: StageModel) -> tuple[Any, ...]:
    """The parameters of a result, in the order of its fields."""
    return tuple(result.model_dump(mode="json").values())


def _plain(model: type[BaseModel], name: str) -> str:
    """The type of a field that KFP passes unchanged; empty for all others."""
    annotation = model.model_fields[name].annotation
    kind = type(get_args(annotation)[0]) if get_origin(annotation) is Literal else get_origin(annotation) or annotation
    return _PLAIN.get(kind, "")
