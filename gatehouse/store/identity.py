"""The identity of a request or configuration: only the values that can change a result.

Two rules keep a digest unchanged when nothing relevant changed. Operational fields (a timeout, a place, a price) are
left out. Fields that have their default are left out too, so a new field with a default changes no digest.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, Field
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from gatehouse.configuration.strict import Strict
from gatehouse.store.canonical import digest_of

_OPERATIONAL = "operational"


class Spec(Strict):
    """Base of every request and configuration."""


def operational(default: Any = ..., **arguments: Any) -> Any:
    """A field that affects how, where or how long something runs, and never the result; otherwise `pydantic.Field`.

    Example:
        >>> class Train(Spec):
        ...     epochs: int = 10
        ...     timeout_minutes: int = operational(60, ge=1)
        >>> identity_of(Train(epochs=5, timeout_minutes=90))
        {'epochs': 5}
    """
    return Field(default, json_schema_extra={_OPERATIONAL: True}, **arguments)


Unordered = Annotated[tuple[str, ...], AfterValidator(lambda texts: tuple(sorted(set(texts))))]
"""Texts whose order has no meaning: sorted, each once."""


def identity_of(model: BaseModel) -> dict[str, Any]:
    """The values of a model that identify it, as a JSON object: without operational fields and without defaults.

    A tag, which is a field with only one possible value, is kept: it distinguishes the members of a union.
    """
    dumped = model.model_dump(mode="json")
    identity: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        if is_operational(field):
            continue
        value = _plain(getattr(model, name), dumped.get(name))
        default = field.get_default(call_default_factory=True)
        is_tag = get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
        if is_tag or field.is_required() or value != _plain(default, _json(default)):
            identity[name] = value
    return identity


def identity_digest(model: BaseModel) -> str:
    """SHA-256 of `identity_of` a model, as 64 hexadecimal digits."""
    return digest_of(identity_of(model))


def is_operational(field: FieldInfo) -> bool:
    """Whether a field was declared with `operational`."""
    return isinstance(field.json_schema_extra, dict) and bool(field.json_schema_extra.get(_OPERATIONAL))


def _plain(value: Any, dumped: Any) -> Any:
    """`value` as JSON, with the models in it reduced to their identity; `dumped` is its JSON as pydantic writes it."""
    if isinstance(value, BaseModel):
        return identity_of(value)
    if isinstance(value, Mapping) and isinstance(dumped, Mapping):
        return {key: _plain(item, part) for (key, part), item in zip(dumped.items(), value.values(), strict=True)}
    if isinstance(value, list | tuple) and isinstance(dumped, list):
        return [_plain(item, part) for item, part in zip(value, dumped, strict=True)]
    if isinstance(value, set | frozenset):
        return sorted(dumped)
    return dumped


def _json(value: Any) -> Any:
    """A default in the JSON that pydantic writes."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json(item) for item in value]
    if isinstance(value, dt.date | dt.timedelta):
        return to_jsonable_python(value)
    return value
