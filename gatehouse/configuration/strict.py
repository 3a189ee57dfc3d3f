"""The base of what a person configures: it refuses unknown keys, and truth values in place of numbers."""

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.fields import FieldInfo


class Strict(BaseModel):
    """A frozen model with no other keys than its fields."""

    # What a person wrote may be a password, and tracebacks get into logs.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_value_for_a_number(cls, given: Any) -> Any:
        """Have `true` refused where a number is wanted, as the text that it is written as: it would be 1."""
        if not isinstance(given, dict):
            return given
        return {
            name: str(value).lower() if isinstance(value, bool) and _is_number(cls.model_fields.get(name)) else value
            for name, value in given.items()
        }


def _is_number(field: FieldInfo | None) -> bool:
    """Whether a field takes numbers, and no truth values."""
    kinds = {field.annotation, *get_args(field.annotation)} if field else set()
    return bool not in kinds and not kinds.isdisjoint({int, float})
