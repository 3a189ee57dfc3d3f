"""The parameters of a run and of its tasks: their forms in KFP's UI, and requests and results as KFP parameters.

KFP's UI shows names and defaults, but no descriptions. So the default of a run's parameter is a form: it says what
happens without a value, and gives an example.
"""

import atexit
import json
import os
import re
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_origin

from pydantic import BaseModel

from gatehouse.configuration.yaml_lines import load_model, read_yaml
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.plural import counted
from gatehouse.store.run import LAST_STAGE, RUN_ID, run_id
from gatehouse.store.stage import Req, Res, Stage, StageModel
from gatehouse.store.store import ArtifactStore

WINDOW = "all, or START/END as 2013-01-01/2013-07-01"
SOURCE = "the project's, or a path as s3://bucket/folder"
RERUN = "none, or stages as train,evaluate"
BACKFILL = "none, or why rows of the earlier snapshot change"
SINCE = "all, or from a time as 2013-11-01T00:00:00Z"
UNTIL = "all, or before a time as 2013-12-01T00:00:00Z"
KEYS = "none, or a file of keys and times as s3://bucket/keys.csv"
PREDICTIONS = "none, or latest, a reference, or Parquet files"
_FORMS = (WINDOW, SOURCE, RERUN, BACKFILL, SINCE, UNTIL, KEYS, PREDICTIONS)
_UNFILLED = frozenset({"", *_FORMS, *(form.partition(",")[0] for form in _FORMS)})
_FILLED_IN = frozenset({"source", "location", "window", "backfill", "since", "until", "keys", "log"})
"""Fields of requests that get a parameter of a run as a person filled it in; elsewhere `none` and `all` are names."""

_Model = TypeVar("_Model", bound=BaseModel)
_MARK = "(gatehouse "
"""Begins a text that stands for something else. Nobody writes it by hand, as they do `(none)`."""
_NUMBER = re.compile(r"\(gatehouse number (.+)\)")
_MOST_EXACT = 2**53
"""Every whole number up to this one is a fraction of 64 bits too."""
_NULL = f"{_MARK}null)"
"""Stands for null in an object, which KFP's SDK cannot compile."""
_ESCAPED = re.compile(r'"(?=.*\\u)(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-f]{4})*"')
"""A text as JSON writes it, with a character by its number: a spec is ASCII, and a name in it may not be."""


def filled_in(text: str) -> str:
    """The text that a person filled in; empty where the field still shows its form, or the word before its comma."""
    return "" if text in _UNFILLED else text


def nonces_of(rerun: str) -> dict[str, str]:
    """The nonce of each stage that runs whatever the memo holds, from `stage[,stage…]` with an optional `@nonce`.

    With `train,evaluate@2`, two runs with the same nonce run the stages once.
    """
    names, _, nonce = filled_in(rerun).partition("@")
    return {name.strip(): nonce or "forced" for name in names.split(",") if name.strip()}


def require_known(rerun: str, stages: Collection[str]) -> None:
    """Check that `rerun` names only `stages`, which have a memo. Raises ConfigurationError if it names others."""
    if unknown := [name for name in nonces_of(rerun) if name not in stages]:
        raise ConfigurationError(
            f"rerun: expected stages among {', '.join(sorted(stages))}, found {', '.join(map(repr, unknown))}."
        )


def request_of(stage: Stage[Req, Any], /, **parameters: Any) -> Req:
    """Build a request from parameters, by the name of their field; raises pydantic's ValidationError."""
    texts = {name: filled_in(text) for name in _FILLED_IN if isinstance(text := parameters.get(name), str)}
    return spec_of(stage.request, parameters | texts)


def parameter_of(spec: BaseModel) -> dict[str, Any]:
    """A configuration as a KFP parameter: an object, which the UI shows line by line.

    Only what differs from the defaults is in it: Argo keeps the parameters of a task six times in its table of nodes,
    which may not grow beyond a megabyte. KFP's SDK accepts no null, and KFP turns every number into a
    float. So null, and numbers that this would change, are written as marked text.
    """

    def marked(value: Any) -> Any:
        if value is None:
            return _NULL
        if isinstance(value, str):
            return _ascii(value)
        whole = isinstance(value, float) and value.is_integer()
        large = isinstance(value, int) and abs(value) > _MOST_EXACT
        return f"{_MARK}number {value!r})" if whole or large else value

    written: dict[str, Any] = _replaced(_differing(spec, spec.model_dump(mode="json")), marked, _ascii)
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


def spec_of(model: type[_Model], parameter: Mapping[str, Any]) -> _Model:
    """A configuration from a KFP parameter; raises pydantic's ValidationError."""
    return model.model_validate_json(json.dumps(as_written(parameter)))


def as_written(parameter: Any) -> Any:
    """The inverse of `parameter_of`: null in place of its mark, and 5 where KFP made 5.0 of it, at any depth.

    Keys are sorted: KFP keeps no order.
    """

    def unmarked(value: Any) -> Any:
        if isinstance(value, str):
            number = _NUMBER.fullmatch(value)
            return None if value == _NULL else json.loads(number[1]) if number else _unicode(value)
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return _replaced(parameter, unmarked, _unicode)


def _ascii(text: str) -> str:
    """The text, escaped where it is not ASCII, or would be read as something else."""
    plain = text.isascii() and not text.startswith(_MARK) and not _ESCAPED.fullmatch(text)
    return text if plain else json.dumps(text).replace("(", r"\u0028")


def _unicode(text: str) -> str:
    return str(json.loads(text)) if _ESCAPED.fullmatch(text) else text


def _replaced(value: Any, replace: Callable[[Any], Any], name: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {name(key): _replaced(value[key], replace, name) for key in sorted(value, key=name)}
    if isinstance(value, list | tuple):
        return [_replaced(item, replace, name) for item in value]
    return replace(value)


def open_store(address: str) -> ArtifactStore:
    """Open the store of a KFP task, whose run has an id from now on.

    Without an address the store is temporary: it ends with the process, and only files that KFP keeps remain.
    """
    os.environ[RUN_ID] = run_id()
    if not address:
        folder = tempfile.TemporaryDirectory(prefix="gatehouse-store-")
        atexit.register(folder.cleanup)
        address = folder.name
    return ArtifactStore.open(address)


def given(name: str, inline: Mapping[str, Any], artifact: Any = None, default: Any = None) -> dict[str, Any]:
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
    spec = load_model(name, text, model, problems)
    if spec is None:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise ConfigurationError(f"{counted(len(problems), 'problem')} in {name}:{listed}")
    return spec


def runner(store: ArtifactStore, rerun: str = "") -> Callable[[Stage[Req, Res], Req], Res]:
    """A function that runs a stage of a KFP task with a request; `rerun` is the run's parameter of this name."""
    nonces = nonces_of(rerun)

    def run(stage: Stage[Req, Res], request: Req) -> Res:
        force = nonces.get(stage.name, "")
        if "force" in type(request).model_fields:  # `snapshot` and `skew` use it themselves.
            request = request.model_copy(update={"force": force})
        result = stage(request, store, force=force)
        if os.environ.get(LAST_STAGE) == stage.name:
            raise SystemExit(0)
        return result

    return run


def values_of(result: StageModel) -> tuple[Any, ...]:
    """The parameters of a result, in the order of its fields."""
    return tuple(result.model_dump(mode="json").values())
