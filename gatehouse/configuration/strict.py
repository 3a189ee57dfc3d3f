"""The base of configuration, which reads `false` as null, and durations in ISO 8601."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator


class Strict(BaseModel):
    """A frozen model with no other keys than its fields."""

    # What a person wrote may be a password, and tracebacks get into logs.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _read_truth_values(cls, body: Any) -> Any:
        """Read `false` as null where null is allowed, and refuse a truth value where a number is expected.

        KFP carries no null, and `performance: false` says that a check is off.
        """
        if not isinstance(body, dict):
            return body
        replaced = dict(body)
        for name, field in cls.model_fields.items():
            types = {field.annotation, *get_args(field.annotation)}
            if not isinstance(body.get(name), bool) or bool in types:
                continue
            if body[name] is False and type(None) in types:
                replaced[name] = None
            elif not types.isdisjoint({int, float}):
                replaced[name] = str(body[name]).lower()
        return replaced


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation such as `tuple[A | B, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


_UNITS = (("P{}D", timedelta(days=1)), ("PT{}H", timedelta(hours=1)), ("PT{}M", timedelta(minutes=1)))


def iso(span: timedelta) -> str:
    """An ISO 8601 duration in its largest whole unit, as a person writes it: P810D."""
    for form, unit in _UNITS:
        if not span % unit:
            return form.format(span // unit)
    seconds, rest = divmod(span, timedelta(seconds=1))
    return f"PT{seconds}{f'.{rest.microseconds:06}'.rstrip('0').rstrip('.')}S"


def _require_iso(value: Any) -> Any:
    if isinstance(value, timedelta) or (
        isinstance(value, str) and value.startswith("P") and "M" not in value.split("T")[0]
    ):
        return value
    raise ValueError(f"expected a length of time such as P1D or PT12H, or timedelta(days=1) in Python, found {value!r}")


Duration = Annotated[timedelta, BeforeValidator(_require_iso)]
"""A duration in ISO 8601 or a `timedelta`; months have no length and are refused."""
