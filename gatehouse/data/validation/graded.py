"""A rule with its severity and owner, written as its bare value or, where one of them differs, as a mapping."""

from collections.abc import Iterable
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator
from pydantic.annotated_handlers import GetJsonSchemaHandler
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from gatehouse.configuration.strict import Strict

Severity = Literal["fail", "warn"]
Location = tuple[int | str, ...]
Problem = tuple[Location, str, Any]
T = TypeVar("T")


class Part(Strict):
    """Base of everything in a contract.

    It is no `Spec`: a request names a contract by the reference of what it says without defaults, so what a default
    means is told by the code digest, and not by the request.
    """


class Graded(Part):
    """What several keys together promise, with its own severity and owner."""

    severity: Severity = Field("fail", description="Whether a breach fails the contract or is only reported.")
    owner: str = Field("", description="Whom to ask if it is broken; empty for the table's owner.")


class Rule(Part, Generic[T]):
    """One promise: `max: 3`, or graded, `max: {value: 3, severity: warn, owner: ops}`."""

    value: T
    severity: Severity | None = Field(None, description="Default: warn under `warn`, else fail.")
    owner: str = Field("", description="Whom to ask if it is broken; empty for the column's or table's owner.")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, body: Any) -> Any:
        return body if isinstance(body, (dict, Rule)) else {"value": body}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        mapping = handler.resolve_ref_schema(handler(core_schema))
        return {"anyOf": [mapping["properties"]["value"], mapping]}


class Listed(Graded):
    """What may be written as a bare list of columns, or graded as a mapping that has the list under `of_list`."""

    of_list: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, body: Any) -> Any:
        if isinstance(body, str):
            raise ValueError(f"expected a list of columns, found {body!r}; write [{body}]")
        return {cls.of_list: body} if isinstance(body, (list, tuple)) else body

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        mapping = handler.resolve_ref_schema(handler(core_schema))
        return {"anyOf": [mapping["properties"][cls.of_list], mapping]}


def refuse(title: str, problems: Iterable[Problem]) -> None:
    """Refuse a model for what is wrong with it, all at once.

    Args:
        title: What is refused.
        problems: Place, message and value of each; none where all is well.

    Raises:
        pydantic.ValidationError: with every problem at its place.
    """
    details = [_detail("impossible", message, place, found) for place, message, found in problems]
    if details:
        raise ValidationError.from_exception_data(title, details)


def merged(title: str, refused: ValidationError, problems: Iterable[Problem]) -> ValidationError:
    """One error with what pydantic refused and `problems`."""
    refusals = refused.errors()
    details = [_detail(one["type"], one["msg"], one["loc"], one["input"], one.get("ctx")) for one in refusals]
    details += [_detail("impossible", message, place, found) for place, message, found in problems]
    return ValidationError.from_exception_data(title, details)


def _detail(kind: Any, message: str, place: Location, found: Any, context: Any = None) -> InitErrorDetails:
    error = PydanticCustomError(kind, "{message}", {**(context or {}), "message": message})
    return InitErrorDetails(type=error, loc=place, input=found)
