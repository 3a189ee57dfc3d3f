"""The base of what a person configures: it refuses unknown keys, and truth values in place of numbers."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator


class Strict(BaseModel):
    """A frozen model with no other keys than its fields."""

    # What a person wrote may be a password, and tracebacks get into logs.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_truth_values_for_numbers(cls, body: Any) -> Any:
        """Replace `true` by its text where a number is expected, so that it is refused instead of read as 1."""
        if not isinstance(body, dict):
            return body
        replaced = dict(body)
        for name, field in cls.model_fields.items():
            types = {field.annotation, *get_args(field.annotation)}
            if isinstance(body.get(name), bool) and bool not in types and not types.isdisjoint({int, float}):
                replaced[name] = str(body[name]).lower()
        return replaced


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation such as `tuple[A | B, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)
