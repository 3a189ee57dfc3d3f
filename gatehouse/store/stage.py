"""Makes a plain function a stage: adds a memo, verification of its outputs, a run record, provenance and pages."""

import contextlib
import contextvars
import functools
import importlib
import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast, get_origin, get_type_hints

from pydantic import ValidationError, model_validator

from gatehouse.errors import GatehouseError, HiddenValueError, InvalidReferenceError, StageResultError, StoppedError
from gatehouse.runtime import limits
from gatehouse.runtime.importing import stage_modules
from gatehouse.runtime.process import follow_owner
from gatehouse.store import memo
from gatehouse.store.canonical import digest_of
from gatehouse.store.code import Code, code_of
from gatehouse.store.failures import (
    end_on_sigterm,
    injected_faults,
    pause_before_another,
    presentable,
    record_failure,
    recording_signals,
    refuse_repetition,
)
from gatehouse.store.hidden_values import hiding
from gatehouse.store.identity import Spec, identity_of
from gatehouse.store.pages import draw
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.run import Attempt
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

TOLERATE = "GATEHOUSE_TOLERATE"
"""Environment variable: if the stage fails and is not tried again, its task succeeds with a warning."""
CONTENTS = "gatehouse.reports.contents:page"
"""A page for any artifact: its numbers as bars, its columns and files, and its lineage."""
_SENSITIVE = "gatehouse.data.validation.sensitivity:sensitive_columns"
"""Gives the columns whose values may not be shown. Named, not imported: it decides results, and this room decides none.
"""
_HEAVY = ("torch", "feast", "mlflow", "optuna", "sklearn", "duckdb", "pandas", "pyarrow")
_outer: contextvars.ContextVar[str] = contextvars.ContextVar("gatehouse_stage", default="")
_forced: contextvars.ContextVar[str] = contextvars.ContextVar("gatehouse_stage_forced", default="")


@dataclass(frozen=True)
class Effects:
    """The world that a stage reads and writes besides its parameters and its artifacts.

    `reads` are external sources that its parameters do not name. With `memo`, its result may come from the stage memo,
    and, where none can be provisional, from KFP's cache. Two runs have the same effect as one. `why` gives the reason,
    in one sentence.
    """

    reads: str = ""
    writes: str = ""
    memo: bool = False
    why: str = ""


PURE = Effects(memo=True, why="A pure function of its parameters.")


@dataclass(frozen=True)
class Declaration:
    """The declaration of a stage.

    Attributes:
        name: Name of the stage, of its KFP component, and of its rows in records and tables.
        title: Name for people, in the terminal and in the KFP UI.
        effects: What it reads and writes besides artifacts; a pure function by default.
        pages: For each kind of artifact the function `(store, reference) -> HTML` that draws its page, named as
            `package.module:name`; `CONTENTS` for a kind without its own function.
        inner: Whether only other stages call it, and no task does.
        section: The section, or key, of a project without which a pipeline has no task of it; empty if none is needed.
        tracked: The field of its result that names an artifact with an MLflow run of its own, which shows the stage;
            empty if the stage has no such artifact.
        advisory: Whether a project may let a run go on if it fails: no later stage needs what it gives.
    """

    name: str
    title: str
    effects: Effects = PURE
    pages: Mapping[str, str] = field(default_factory=dict)
    inner: bool = False
    section: str = ""
    tracked: str = ""
    advisory: bool = False


class StageModel(Spec):
    """Base of requests and results: frozen, strict about names, and holding identities, never addresses."""

    @property
    def provisional(self) -> bool:
        """Whether the next call may not take this result from the memo, because the work was ended early."""
        return False

    @model_validator(mode="before")
    @classmethod
    def _drop_addresses(cls, data: Any) -> Any:
        return without_addresses(data) if isinstance(data, dict) else data


def without_addresses(value: Any) -> Any:
    """A JSON value with the identity in place of each address, at any depth."""
    if isinstance(value, Mapping):
        return {name: without_addresses(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(without_addresses, value))
    if isinstance(value, str) and "/sha256-" in value and "\n" not in value and " " not in value:
        with contextlib.suppress(InvalidReferenceError):
            return str(Reference.parse(value))
    return value


Req = TypeVar("Req", bound=StageModel)
Res = TypeVar("Res", bound=StageModel)


class Stage(Generic[Req, Res]):
    """A stage: call it with a request and a store.

    A call looks up the memo, runs the function if there is no entry, verifies that its results exist, and writes memo,
    run record and provenance. The stage's declaration says whether the memo is used.
    """

    def __init__(
        self,
        declared: Declaration,
        function: Callable[[Req, ArtifactStore], Res],
        outside: Callable[[Req], str] | None = None,
        sensitive: Callable[[Req], Collection[str]] | None = None,
    ) -> None:
        self.declared = declared
        self.name = declared.name
        self.function = function
        self.outside = outside
        self.sensitive = sensitive
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.request: type[Req]
        self.result: type[Res]
        self.request, self.result = request_and_result(function)

    @property
    def cacheable(self) -> bool:
        """Whether KFP's cache may keep its results: it has a memo, and no result of it is provisional."""
        return self.declared.effects.memo and self.result.provisional is StageModel.provisional

    def sources(self) -> Code:
        """The code that decides this stage's result, as it is on disk."""
        return code_of(self.function.__module__)

    def key(self, request: Req) -> str:
        """The memo key of `request`. It includes user code that the request names."""
        outside = self.outside(request) if self.outside else ""
        return memo.memo_key(self.name, self.sources().digest + outside, identity_of(request))

    def __call__(self, request: Req, store: ArtifactStore, *, force: str = "") -> Res:
        """Return the stage's result for `request`.

        If `force`, a nonce, is not empty, the memo is not read, also in calls of the stage to itself. Raises
        StageResultError if the function returns a reference that is not complete in the store; RepeatedError if an
        earlier attempt in this run had a permanent error.
        """
        outer = _outer.get()
        label = f"{outer}:{self.name}" if outer else self.name
        if outer.rpartition(":")[2] == self.name:
            force = force or _forced.get()  # Forcing a stage that calls itself, such as a refit, applies to both calls.
        if not outer:
            follow_owner()
            end_on_sigterm()
        digest = digest_of([identity_of(request), force])
        with _inside(label, force), hiding(functools.partial(self._sensitive, request, store)):
            while True:
                attempt = Attempt(store, label, digest)
                try:
                    refuse_repetition(attempt)
                    with recording_signals(self.name, attempt), injected_faults(self.name, attempt), attempt.as_task():
                        result, hit = self._recall_or_run(request, store, attempt, force)
                    break
                except Exception as raised:
                    pause = self._fail(raised, attempt, outermost=not outer)
                if pause is None:
                    return _empty_result(self.result)
                time.sleep(pause)
        loaded = [name for name in _HEAVY if name in sys.modules]
        body = result.model_dump(mode="json")
        facts = {"memo": self.declared.effects.memo, "tracked": body.get(self.declared.tracked, "")}
        attempt.note("hit" if hit else "finished", result=body, imported=loaded, **facts)
        return result

    def _fail(self, raised: Exception, attempt: Attempt, *, outermost: bool) -> float | None:
        """Record a failure. Gives the seconds until another attempt, or None if the run goes on without the stage.

        Raises the error if neither is so; a stage inside another is neither tried again nor tolerated.
        """
        error = presentable(raised)
        pause = pause_before_another(error, attempt) if outermost else 0.0
        stopped = isinstance(error, StoppedError)
        tolerated = outermost and not (pause or stopped) and self.name in os.environ.get(TOLERATE, "").split(",")
        message = record_failure(attempt, "stopped" if stopped else "tolerated" if tolerated else "failed", error)
        if tolerated:
            attempt.warn(f"{self.name} failed, and the run goes on without it: {message}")
            return None
        if pause:
            logger.warning("%s failed, and is tried again in %g s: %s", self.name, pause, message)
            return pause
        if error is raised:
            raise raised
        raise error from (None if isinstance(error, HiddenValueError) else raised)

    def _recall_or_run(self, request: Req, store: ArtifactStore, attempt: Attempt, force: str) -> tuple[Res, bool]:
        """The result, and whether it comes from the memo."""
        inputs = references_in(request.model_dump(mode="json"))
        if deprecated := list(filter(None, map(store.require_readable, inputs))):
            attempt.note("warned", message=" ".join(deprecated))
        if self.declared.effects.memo:
            recalled = self._recall(request, store, attempt, force, inputs)
            if recalled is not None:
                return recalled, True
            limits.confine_arrow()
        result = self.function(request, store)
        outputs = references_in(result.model_dump(mode="json"))
        if self.declared.effects.memo:
            self._remember(result, outputs, store, attempt)
            made = outputs
        else:  # An artifact that it did not make itself has its provenance already.
            made = tuple(made for made in outputs if next(store.objects.list(f"provenance/{made}"), None) is None)
        attempt.provenance(map(str, made))
        self._draw_pages(store, outputs, attempt)
        return result, False

    def _recall(
        self, request: Req, store: ArtifactStore, attempt: Attempt, force: str, inputs: Collection[Reference]
    ) -> Res | None:
        """The result in the memo; without one, the code that will decide the result is recorded, to compare runs."""
        sources, outside = self.sources(), self.outside(request) if self.outside else ""
        key = memo.memo_key(self.name, sources.digest + outside, identity_of(request))
        attempt.facts = {"key": key, "code": sources.digest, "outside": outside, "request": identity_of(request)}
        recalled = None if force else memo.recall(store, self.name, key, attempt.warn, inputs)
        if recalled is not None:
            with contextlib.suppress(ValidationError):  # An older result may have another form.
                return self.result.model_validate(recalled)
        store.record(f"code/{sources.digest}.json", sources.to_json())
        return None

    def _remember(self, result: Res, outputs: Sequence[Reference], store: ArtifactStore, attempt: Attempt) -> None:
        """Keep a result in the memo. Raises StageResultError if one of its references is not in the store."""
        if missing := [str(output) for output in outputs if not store.exists(output)]:
            raise StageResultError(
                f"Stage {self.name} returned references that are not in the store: {', '.join(missing)}."
            )
        key = attempt.facts["key"]
        if not result.provisional and not memo.remember(store, self.name, key, result.model_dump(mode="json")):
            attempt.warn(f"NonDeterministicStage: {self.name} gave another result than before for the same key {key}.")

    def _sensitive(self, request: Req, store: ArtifactStore) -> Collection[str]:
        """The sensitive columns of a request and of what it names; where that cannot be read, any may be."""
        module, _, name = _SENSITIVE.partition(":")
        columns_of = getattr(importlib.import_module(module), name)
        columns = set(self.sensitive(request)) if self.sensitive else set()
        try:
            return columns.union(*(columns_of(store, data) for data in references_in(request.model_dump(mode="json"))))
        except GatehouseError:
            return ("unknown, as a manifest cannot be read",)

    def _draw_pages(self, store: ArtifactStore, outputs: Sequence[Reference], attempt: Attempt) -> None:
        """Draw the pages of new artifacts; an error becomes a warning, because no result depends on pages."""
        for reference in outputs:
            if page := self.declared.pages.get(reference.kind):
                try:
                    draw(store, reference, page)
                except Exception as error:
                    attempt.warn(f"The page of {reference} was not drawn: {type(error).__name__}: {error}")


def request_and_result(function: Callable[[Req, ArtifactStore], Res]) -> tuple[type[Req], type[Res]]:
    """The types that a function `(request, store) -> result` names."""
    request, _, result = get_type_hints(function).values()
    return request, result


def forced() -> str:
    """The nonce with which the stage around this call was forced; empty if it was not."""
    return _forced.get()


@contextlib.contextmanager
def _inside(label: str, force: str) -> Iterator[None]:
    """In this context, calls belong to the stage of this label."""
    token, forced = _outer.set(label), _forced.set(force)
    try:
        yield
    finally:
        _outer.reset(token)
        _forced.reset(forced)


STAGES: dict[str, Stage[Any, Any]] = {}
"""The stages whose modules are imported, by name; `declared_stages` imports all of them."""


def stage(
    name: str,
    *,
    title: str,
    effects: Effects = PURE,
    pages: Mapping[str, str] | None = None,
    inner: bool = False,
    section: str = "",
    tracked: str = "",
    advisory: bool = False,
    outside: Callable[[Any], str] | None = None,
    sensitive: Callable[[Any], Collection[str]] | None = None,
) -> Callable[[Callable[[Req, ArtifactStore], Res]], Stage[Req, Res]]:
    """Make a function `(request, store) -> result` a stage. Most parameters are the fields of `Declaration`.

    `outside` gives the digest of code outside `gatehouse` that a request names and its result depends on, or an empty
    text. `sensitive` gives the columns that a request itself declares sensitive, besides those of the references that
    it names.
    """

    def decorate(function: Callable[[Req, ArtifactStore], Res]) -> Stage[Req, Res]:
        declared = Declaration(name, title, effects, pages or {}, inner, section, tracked, advisory)
        STAGES[name] = Stage(declared, function, outside, sensitive)
        return STAGES[name]

    return decorate


@functools.cache
def declared_stages() -> dict[str, Stage[Any, Any]]:
    """All stages by name, from every `stage.py` and `*_stage.py` below `gatehouse`, in order of their paths."""
    for module in stage_modules():
        importlib.import_module(module)
    return STAGES


def forcible_stages() -> list[str]:
    """Names of the stages that keep what they made, in a memo or by themselves, in order."""
    stages = [stage for stage in declared_stages().values() if not stage.declared.inner]
    return sorted(
        stage.name for stage in stages if stage.declared.effects.memo or "force" in stage.request.model_fields
    )


def _empty_result(result: type[Res]) -> Res:
    """A result without content: empty text, only zeros, no entries. No deciding stage uses it."""
    empty: dict[str, Any] = {}
    for name, info in result.model_fields.items():
        kind: Any = get_origin(info.annotation) or info.annotation
        empty[name] = kind() if kind in (int, float, bool, tuple, list, dict) else ""
    return cast(Res, result.model_construct(None, **empty))
