"""What rules between the keys of a model say while other keys of it are wrong, for which pydantic asks none of them.

A rule that reads a wrong key is judged several times, as if every test of that key came out false, then true, and as if
it were null where it may be: what the rule says each time holds whatever the key will be.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError, create_model, model_validator
from pydantic.fields import FieldInfo

_Place = tuple[Any, ...]
_Model = TypeVar("_Model", bound=BaseModel)
_Said = TypeVar("_Said")


_TESTS = ("false", "true", "null")
_ASSUMED: ContextVar[str] = ContextVar("how tests of wrong keys come out", default="")
_READS: ContextVar[int] = ContextVar("how often wrong keys were read", default=0)
_MOST_READS = 10_000
"""A loop may end for all that a key can be, and not for what stands for all of it."""
_NOT_KNOWN = "<a wrong key>"


class _Unknown:
    """What stands for the value of a wrong key with one of some types, and for all that is made of it."""

    def __init__(self, types: Sequence[Any]) -> None:
        self._types, self._assumed = types, _ASSUMED.get() == "true"

    def _self(self, *_: Any, **__: Any) -> "_Unknown":
        return self

    def __getattr__(self, name: str) -> Any:
        _count()
        models = [model for each in self._types for model in _models(each)]
        return _any_of([model.model_fields[name].annotation for model in models if name in model.model_fields])

    __call__ = __getitem__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _self  # type: ignore[assignment]
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __and__ = __rand__ = __or__ = __ror__ = _self
    __mod__ = __rmod__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __neg__ = _self

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        _count()
        return self._assumed

    def __contains__(self, _: object) -> bool:
        return self._assumed

    def __len__(self) -> int:
        return 10**6 * self._assumed

    def __iter__(self) -> Iterator["_Unknown"]:
        return iter([self] * self._assumed)

    def __repr__(self) -> str:
        return _NOT_KNOWN


def _count() -> None:
    _READS.set(_READS.get() + 1)
    if _READS.get() > _MOST_READS:
        raise LookupError


def _any_of(types: Sequence[Any]) -> _Unknown | None:
    nullable = any(type(None) in get_args(each) for each in types)
    return None if nullable and _ASSUMED.get() == "null" else _Unknown(types)


class _Unread:
    """A wrong model without its wrong keys: reading one is an AttributeError, unless a value of it is assumed."""

    right_fields: ClassVar[Mapping[str, FieldInfo]]

    def __getattr__(self, name: str) -> Any:
        if _ASSUMED.get() and name in self.right_fields:
            return _any_of([self.right_fields[name].annotation])
        return super().__getattr__(name)  # type: ignore[misc]  # Of the model that it stands before.

    def model_dump(self, **_: Any) -> Any:
        """Raise an error: a rule that dumps all keys would read wrong ones too."""
        raise AttributeError


def broken_rules(model: type[_Model], body: Any, place: _Place = ()) -> tuple[_Model | None, list[Any]]:
    """The model of `body` without its wrong keys, and pydantic's errors of all rules between valid keys.

    Args:
        model: The model that `body` does not fit.
        body: The parsed content.
        place: The key of `body`, with which errors begin.
    """
    wrong = {each["loc"][0] for each in _errors(model, body) if each["loc"]}
    parts, found = dict[str, Any](), list[Any]()
    for name in sorted(wrong & model.model_fields.keys() & (body.keys() if isinstance(body, dict) else set())):
        for key, member, part in _sections(model.model_fields[name].annotation, body[name]):
            right, more = broken_rules(member, part, (*place, name, *key))
            # A rule of the outer model may rely on the rules of the section.
            parts |= {} if key or more or right is None else {name: right}
            found += more
    rules = {
        key: each for key, each in model.__pydantic_decorators__.model_validators.items() if each.info.mode == "after"
    }
    before = type("_Unread", (_Unread,), {"right_fields": model.model_fields})
    silent: Any = {key: model_validator(mode="after")(lambda self: self) for key in rules}
    fields: Any = dict.fromkeys(wrong & model.model_fields.keys(), (Any, None))
    loose: Any = create_model(model.__name__, __base__=(before, model), __validators__=silent, **fields)
    try:
        read: Any = loose.model_validate({key: each for key, each in body.items() if key not in wrong})
    except (AttributeError, ValidationError):  # It is no mapping, or breaks a rule on all of it.
        return None, found
    for name in wrong:
        read.__dict__.pop(name, None)
    read.__dict__.update(parts)
    for rule in rules.values():
        for each in said_either_way(lambda rule=rule: _said(rule.func, read)):  # type: ignore[misc]
            found.append({"input": body, **each, "loc": (*place, *each["loc"])})
    return read, found


def said_either_way(look: Callable[[], Iterable[_Said]]) -> list[_Said]:
    """What is said whatever the wrong keys that `look` reads will be."""
    first, *others = (_assumed(look, assumed) for assumed in _TESTS)
    return [each for each in first if all(each in other for other in others) and _NOT_KNOWN not in str(each)]


def _assumed(look: Callable[[], Iterable[_Said]], assumed: str) -> list[_Said]:
    found, token = list[_Said](), _ASSUMED.set(assumed)
    _READS.set(0)
    try:
        for each in look():
            found.append(each)
    except (AttributeError, LookupError, TypeError, ValueError):
        pass  # It needs the value of a wrong key.
    finally:
        _ASSUMED.reset(token)
    return found


def _said(rule: Callable[[Any], Any], read: Any) -> list[Any]:
    try:
        rule(read)
    except ValidationError as error:
        return list(error.errors(include_url=False))
    except ValueError as error:
        return [{"type": "value_error", "loc": (), "msg": f"Value error, {error}"}]
    return []


def _sections(annotation: Any, body: Any) -> Iterator[tuple[_Place, type[BaseModel], Any]]:
    """The models in a field, each with its position and content; for a union, the best-fitting model."""
    several = get_origin(annotation) in (dict, tuple) and isinstance(body, dict | list)
    parts = (body.items() if isinstance(body, dict) else enumerate(body)) if several else [((), body)]
    if models := list(_models(annotation)):
        for key, part in parts:
            wrong = {model: _errors(model, part) for model in models}
            best = min(models, key=lambda model: len(wrong[model]))
            if wrong[best] or not several:
                yield ((key,) if several else ()), best, part


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _errors(model: type[BaseModel], body: Any) -> list[Any]:
    try:
        model.model_validate(body)
    except ValidationError as error:
        return error.errors()
    return []
