"""The base of configuration: it refuses unknown keys and truth values in place of numbers, and reads `false` as null."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator


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
