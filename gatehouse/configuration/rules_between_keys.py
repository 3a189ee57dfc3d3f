"""What rules between the keys of a model say while other keys of it are wrong, for which pydantic asks none of them."""

import difflib
from collections.abc import Collection, Iterator
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError, create_model, model_validator

_Place = tuple[Any, ...]
_Model = TypeVar("_Model", bound=BaseModel)


class _Unread:
    """A wrong model without its wrong keys: a rule that reads one ends in an AttributeError, and says nothing."""

    def model_dump(self, **_: Any) -> Any:
        """Raise an error: a rule that dumps all keys would read wrong ones too."""
        raise AttributeError


def chooser(error: Any) -> _Place:
    """The key that chooses a member of a union, from where an error stands, if its value chooses none; else empty."""
    if error["type"] == "union_tag_invalid":
        return (error["ctx"]["discriminator"].strip("'"),)
    # A union of our own names the key as the type of the error.
    ours = error["msg"].startswith("expected one of ") and error["type"] not in ("impossible", "value_error")
    return tuple(error["type"].split(".")) if ours else ()


def misspelled(error: Any, absent: Collection[str]) -> list[str]:
    """Which of the keys that are absent beside an unknown key is meant by it: one at most."""
    unknown = error["type"] == "extra_forbidden"
    return difflib.get_close_matches(str(error["loc"][-1]), absent, n=1, cutoff=0.7) if unknown else []


def broken_rules(model: type[_Model], body: Any, place: _Place = ()) -> tuple[_Model | None, list[Any]]:
    """The model of `body` without its wrong keys, and pydantic's errors of all rules between valid keys.

    Args:
        model: The model that `body` does not fit.
        body: The parsed content.
        place: The key of `body`, with which errors begin.
    """
    errors, written = errors_of(model, body), set(body if isinstance(body, dict) else ())
    wrong, unchosen = (
        {each["loc"][0] for each in errors if each["loc"]},
        {each["loc"] for each in errors if chooser(each)},
    )
    # A key that is misspelled has no default value.
    own = (each for each in errors if len(each["loc"]) == 1)
    wrong |= {meant for each in own for meant in misspelled(each, model.model_fields.keys() - written)}
    parts, found = dict[str, Any](), list[Any]()
    for name in sorted(wrong & model.model_fields.keys() & written):
        for key, member, part in _sections(model.model_fields[name].annotation, body[name]):
            if (name, *key) in unchosen:
                continue  # Nobody knows which rules hold.
            right, more = broken_rules(member, part, (*place, name, *key))
            # A rule of the outer model may rely on the rules of the section.
            parts |= {} if key or more or right is None else {name: right}
            found += more
    rules = {
        key: each for key, each in model.__pydantic_decorators__.model_validators.items() if each.info.mode == "after"
    }
    silent: Any = {key: model_validator(mode="after")(lambda self: self) for key in rules}
    fields: Any = dict.fromkeys(wrong & model.model_fields.keys(), (Any, None))
    loose: Any = create_model(model.__name__, __base__=(_Unread, model), __validators__=silent, **fields)
    try:
        read: Any = loose.model_validate({key: each for key, each in body.items() if key not in wrong})
    except (AttributeError, ValidationError):  # It is no mapping, or breaks a rule on all of it.
        return None, found
    for name in wrong:
        read.__dict__.pop(name, None)
    read.__dict__.update(parts)
    for rule in rules.values():
        try:
            rule.func(read)
        except (AttributeError, LookupError, TypeError):
            continue  # It reads what is wrong.
        except ValidationError as error:
            found += ({**each, "loc": (*place, *each["loc"])} for each in error.errors())
        except ValueError as error:
            found.append({"type": "value_error", "loc": place, "msg": f"Value error, {error}", "input": body})
    return read, found


def _sections(annotation: Any, body: Any) -> Iterator[tuple[_Place, type[BaseModel], Any]]:
    """The models in a field, each with its position and content; for a union, the best-fitting model."""
    several = get_origin(annotation) in (dict, tuple) and isinstance(body, dict | list)
    parts = (body.items() if isinstance(body, dict) else enumerate(body)) if several else [((), body)]
    if models := list(models_in(annotation)):
        for key, part in parts:
            wrong = {model: errors_of(model, part) for model in models}
            best = min(models, key=lambda model: len(wrong[model]))
            if list(wrong.values()).count([]) > 1:
                continue  # Nobody knows which one is meant, as without the key that says it.
            if wrong[best] or not several:
                yield ((key,) if several else ()), best, part


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation such as `tuple[A | B, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def errors_of(model: type[BaseModel], body: Any) -> list[Any]:
    """What pydantic says of a value that does not fit a model."""
    try:
        model.model_validate(body)
    except ValidationError as error:
        return error.errors()
    return []
