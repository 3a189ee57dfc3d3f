"""Names of settings, dotted through the groups of a spec, and which model has which: what errors and searches say."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError


def owners_of(models: dict[str, type[BaseModel]]) -> dict[str, list[str]]:
    """Who has each setting, by its dotted name.

    Args:
        models: The alternatives by their tag. Where a group has alternatives too, the owner is the one of the group.

    Example:
        >>> owners_of({"a neural network": NetworkTraining, "xgboost": TreesTraining})["optimizer.l2"]  # doctest: +SKIP
        ['xgboost']
    """
    owners: dict[str, list[str]] = {}
    for tag, model in models.items():
        for name, owner in _settings(model, tag, ""):
            found = owners.setdefault(name, [])
            found.extend([owner] if owner not in found else [])
    return owners


def _settings(model: type[BaseModel], owner: str, prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}", owner
        if get_origin(field.annotation) is tuple:
            continue  # What stands in a list has no name of its own.
        for tag, group in groups_of(field.annotation):
            yield from _settings(group, tag or owner, f"{prefix}{name}.")


def groups_of(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """The models that a field of this type may hold, each with its tag; an empty tag where there is no choice."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation
    for part in get_args(annotation) if get_origin(annotation) is not Literal else ():
        tags = [each.tag for each in getattr(part, "__metadata__", ()) if isinstance(each, Tag)]
        yield from ((tags[0] if tags else tag, group) for tag, group in groups_of(part))


def in_words(owners: dict[str, list[str]], tags: Sequence[str]) -> Callable[[Any, Callable[[Any], Any]], Any]:
    """A validator around a union that names settings by their dotted name, and says whose an unknown one is.

    Args:
        owners: As `owners_of` gives them.
        tags: All tags of the union and of its groups; they are left out of the names.
    """

    def validate(given: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(given)
        except ValidationError as error:
            told = [_line(each) for each in error.errors()]
            raise ValidationError.from_exception_data(error.title, told, hide_input=True) from None

    def _line(error: Any) -> InitErrorDetails:
        path = [part for part in error["loc"] if part not in tags]
        message = error["msg"]
        if error["type"] == "extra_forbidden":
            whose = [part for part in error["loc"] if part in tags][-1]
            message = unknown(".".join(map(str, path)), whose, owners)
        kind = PydanticCustomError(error["type"], "{message}", {**error.get("ctx", {}), "message": message})
        return InitErrorDetails(type=kind, loc=tuple(path), input=error["input"])

    return validate


def unknown(name: str, whose: str, owners: dict[str, list[str]]) -> str:
    """Why `whose` cannot be given the setting `name`, and what to do."""
    if found := owners.get(name):
        return f"{whose} has no such setting, only {' and '.join(found)}; remove it"
    last = name.rpartition(".")[2]
    near = [each for each in owners if each.rpartition(".")[2] == last] or difflib.get_close_matches(name, owners, n=1)
    return "there is no such setting" + (f" (did you mean {' or '.join(near)}?)" if near else "")
