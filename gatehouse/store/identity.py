"""The identity of a request or configuration: only the values that can change a result.

Two rules keep a digest unchanged when nothing relevant changed. Operational fields (a timeout, a place, a price) are
left out. Fields that have their default are left out too, so a new field with a default changes no digest. If a default
changes, an old configuration would get another meaning. The model then raises `format_version` and keeps the former
default in `earlier`, so that older data is still read as it was meant.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo, model_validator
from pydantic.fields import FieldInfo

from gatehouse.configuration.strict import Strict
from gatehouse.store.canonical import digest_of

FORMAT_VERSION = "format_version"
"""The key of a model's version, if it is not the first."""
_OPERATIONAL = "operational"
_WRITTEN = "written by identity_of"
_Read = TypeVar("_Read", bound="Spec")


class Spec(Strict):
    """Base of every request and configuration.

    Attributes:
        format_version: Raised by one when a default changes, so that digests change with the meaning.
        earlier: By earlier version, the defaults that were different then.
    """

    format_version: ClassVar[int] = 1
    earlier: ClassVar[Mapping[int, Mapping[str, Any]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _of_this_version(cls, given: Any, info: ValidationInfo) -> Any:
        """Accept the output of `identity_of`, with its version if that is not the first."""
        if not isinstance(given, dict):
            return given
        kept = info.context == _WRITTEN
        version = given.get(FORMAT_VERSION, 1 if kept else cls.format_version)
        values = {name: value for name, value in given.items() if name != FORMAT_VERSION}
        if version == cls.format_version:
            return values
        if kept and version in cls.earlier:
            return {**cls.earlier[version], **values}
        raise ValueError(
            f"expected version {cls.format_version} of its format, found version {version}, which had other default "
            "values"
        )


def operational(default: Any = ..., **arguments: Any) -> Any:
    """A field that affects how, where or how long something runs, and never the result.

    Args:
        default: The field's default; without one the field is required.
        **arguments: Those of `pydantic.Field`.

    Example:
        >>> class Train(Spec):
        ...     epochs: int = 10
        ...     timeout_minutes: int = operational(60, ge=1)
        >>> identity_of(Train(epochs=5, timeout_minutes=90))
        {'epochs': 5}
    """
    return Field(default, json_schema_extra={_OPERATIONAL: True}, **arguments)


def _sorted(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(texts)))


Unordered = Annotated[tuple[str, ...], AfterValidator(_sorted)]
"""Texts whose order has no meaning: sorted, each once."""


def identity_of(model: BaseModel) -> dict[str, Any]:
    """The values of a model that identify it, as a JSON object: without operational fields and without defaults.

    A tag, which is a field with only one possible value, is kept: it distinguishes the members of a union.
    """
    dumped = model.model_dump(mode="json")
    found: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        if is_operational(field):
            continue
        value = _plain(getattr(model, name), dumped.get(name))
        if _is_tag(field) or field.is_required() or value != _default(field):
            found[name] = value
    version = getattr(type(model), "format_version", 1)
    return found if version == 1 else found | {FORMAT_VERSION: version}


def of_identity(model: type[_Read], written: Any) -> _Read:
    """Rebuild a model from the output of `identity_of`; missing fields get the defaults of the version that wrote it.

    Raises:
        ValidationError: if it is not of this model, or of a version whose defaults are not kept in `earlier`.
    """
    return model.model_validate(written, context=_WRITTEN)


def identity_digest(model: BaseModel) -> str:
    """SHA-256 of `identity_of` a model, as 64 hexadecimal digits."""
    return digest_of(identity_of(model))


def is_operational(field: FieldInfo) -> bool:
    """Whether a field was declared with `operational`."""
    return isinstance(field.json_schema_extra, dict) and bool(field.json_schema_extra.get(_OPERATIONAL))


def _is_tag(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1


def _default(field: FieldInfo) -> Any:
    value = field.get_default(call_default_factory=True)
    return _plain(value, _json(value))


def _plain(value: Any, dumped: Any) -> Any:
    """`value` as JSON, with the models in it reduced to their identity; `dumped` is its JSON as pydantic writes it."""
    if isinstance(value, BaseModel):
        return identity_of(value)
    if isinstance(value, Mapping) and isinstance(dumped, Mapping):
        return {key: _plain(each, part) for (key, part), each in zip(dumped.items(), value.values(), strict=True)}
    if isinstance(value, list | tuple) and isinstance(dumped, list):
        return [_plain(each, part) for each, part in zip(value, dumped, strict=True)]
    if isinstance(value, set | frozenset):
        return sorted(dumped)
    return dumped


def _json(value: Any) -> Any:
    """A default in the JSON that pydantic writes."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): _json(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json(each) for each in value]
    if isinstance(value, dt.date | dt.timedelta):
        return _Moment(value=value).model_dump(mode="json")["value"]
    return value


class _Moment(BaseModel):
    """Writes a time as pydantic does."""

    value: dt.datetime | dt.date | dt.timedelta
