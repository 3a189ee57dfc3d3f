"""Configuration as parameters of KFP, which carries JSON without null, numbers as fractions, and no order of keys."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from gatehouse.configuration.yaml_lines import load_model, read_yaml
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.plural import counted

_Model = TypeVar("_Model", bound=BaseModel)
_MOST_EXACT = 2**53
"""Every whole number up to this one is a fraction of 64 bits too."""
_ESCAPED = re.compile(r'"(?=.*\\u)(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-f]{4})*"')
"""A text as JSON writes it, with a character by its number: a spec is ASCII, and a name in it may not be."""


def nonces_of(rerun: str) -> dict[str, str]:
    """The nonce of each stage that runs whatever the memo holds, from `stage[,stage…]` with an optional `@nonce`.

    With `train,evaluate@2`, two runs with the same nonce run the stages once.
    """
    names, _, nonce = rerun.partition("@")
    return {name.strip(): nonce or "forced" for name in names.split(",") if name.strip()}


def require_known(rerun: str, stages: Collection[str]) -> None:
    """Check that `rerun` names only `stages`, which have a memo. Raises ConfigurationError if it names others."""
    if unknown := [name for name in nonces_of(rerun) if name not in stages]:
        raise ConfigurationError(
            f"rerun: expected stages among {', '.join(sorted(stages))}, found {', '.join(map(repr, unknown))}."
        )


def parameter_of(spec: BaseModel) -> dict[str, Any]:
    """A configuration as a KFP parameter: an object, which the UI shows line by line.

    Only what differs from the defaults is in it: Argo keeps the parameters of a task six times in its table of nodes,
    which may not grow beyond a megabyte.
    """
    return as_parameter(_differing(spec, spec.model_dump(mode="json")))


def section_of(spec: BaseModel | None) -> dict[str, Any]:
    """A section of a configuration that may be absent: empty then, and never empty for one that has only defaults."""
    return {} if spec is None else parameter_of(spec) or as_parameter(spec.model_dump(mode="json"))


def as_parameter(body: Mapping[str, Any]) -> dict[str, Any]:
    """An object in the form that KFP carries: ASCII, with `false` for null, which configuration reads as null.

    Raises ConfigurationError for a whole number that KFP, which carries fractions of 64 bits, would change.
    """

    def carried(value: Any) -> Any:
        if isinstance(value, int) and abs(value) > _MOST_EXACT:
            raise ConfigurationError(f"Expected whole numbers up to 2**53, which KFP carries exactly, found {value}.")
        return False if value is None else _ascii(value) if isinstance(value, str) else value

    written: dict[str, Any] = _replaced(body, carried, _ascii)
    return written


def _differing(value: Any, dumped: Any) -> Any:
    """What of a value's JSON differs from the defaults of its models, with the tags of unions."""
    if isinstance(value, BaseModel):
        return {
            name: _differing(getattr(value, name), dumped[name])
            for name, field in type(value).model_fields.items()
            if name in dumped
            and (
                get_origin(field.annotation) is Literal
                or field.is_required()
                or getattr(value, name) != field.get_default(call_default_factory=True)
            )
        }
    if isinstance(value, Mapping):
        return {name: _differing(item, dumped[name]) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_differing(item, dumped[place]) for place, item in enumerate(value)]
    return dumped


def as_written(parameter: Any) -> Any:
    """The inverse of `as_parameter`: 5 where KFP made 5.0 of it, at any depth.

    Keys are sorted: KFP keeps no order.
    """

    def read(value: Any) -> Any:
        if isinstance(value, str):
            return _unicode(value)
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return _replaced(parameter, read, _unicode)


def _ascii(text: Any) -> str:
    """The text, escaped where it is not ASCII, or would be read as an escaped one."""
    if not isinstance(text, str):
        raise ConfigurationError(f"Expected a text as a key, found {text!r}. Put it in quotes.")
    return text if text.isascii() and not _ESCAPED.fullmatch(text) else json.dumps(text)


def _unicode(text: str) -> str:
    return str(json.loads(text)) if _ESCAPED.fullmatch(text) else text


def _replaced(value: Any, replace: Callable[[Any], Any], name: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {name(key): _replaced(value[key], replace, name) for key in sorted(value, key=name)}
    if isinstance(value, list | tuple):
        return [_replaced(item, replace, name) for item in value]
    return replace(value)


def configuration_of(name: str, inline: Mapping[str, Any], artifact: Any = None, default: Any = None) -> dict[str, Any]:
    """The configuration that a task gets as the object `name`, or as a file of YAML or JSON in the artifact.

    Raises ConfigurationError if it gets both, or neither and there is no default, or if the file holds no object.
    """
    if default is not None and not inline and artifact is None:
        return dict(default)
    if bool(inline) == (artifact is not None):
        raise ConfigurationError(f"{name}: expected an object or a file, found {'both' if inline else 'neither'}.")
    body = as_written(inline) if inline else read_yaml(Path(artifact.path).read_text(encoding="utf-8"), name)
    if not isinstance(body, dict):
        raise ConfigurationError(f"{name}: expected a file with keys and values, found {type(body).__name__}.")
    return body


def checked(name: str, model: type[_Model], body: Mapping[str, Any] | str) -> _Model:
    """A configuration, or its text in YAML, as a model; raises ConfigurationError with every problem and its key."""
    problems: list[str] = []
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    if not isinstance(body, str):
        with suppress(ValidationError):  # Its problems are told by the keys of a person.
            return model.model_validate_json(text)
    spec = load_model(name, text, model, problems)
    if spec is None:
        lineless = "" if isinstance(body, str) else f"{name}:1: "
        listed = "".join(f"\n  - {problem.removeprefix(lineless)}" for problem in problems)
        raise ConfigurationError(f"{counted(len(problems), 'problem')} in {name}:{listed}")
    return spec
