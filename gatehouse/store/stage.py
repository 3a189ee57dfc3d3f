"""Makes a plain function a stage: adds a memo, verification of its outputs, a run record, provenance and pages."""

import contextlib
import contextvars
import functools
import importlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar, cast, get_origin, get_type_hints

from pydantic import ValidationError, model_validator

import gatehouse
from gatehouse.errors import (
    GatehouseError,
    HiddenValueError,
    InvalidReferenceError,
    LauncherError,
    OutOfMemoryError,
    RepeatedError,
    StageResultError,
    StoppedError,
    StoreError,
    is_interruption,
)
from gatehouse.runtime import limits
from gatehouse.runtime.process import follow_owner, in_pod
from gatehouse.runtime.redaction import redacted
from gatehouse.runtime.variables import ATTEMPTS
from gatehouse.store import memo
from gatehouse.store.atomic_file import disk_full
from gatehouse.store.canonical import digest_of
from gatehouse.store.code import Code, code_of
from gatehouse.store.database import out_of_memory
from gatehouse.store.hidden_values import hiding, without_values
from gatehouse.store.identity import Spec, identity_of
from gatehouse.store.pages import draw
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.run import RUN_ID, Attempt
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

FAULT = "GATEHOUSE_FAULT"
TOLERATE = "GATEHOUSE_TOLERATE"
"""Environment variable: if the stage fails and is not tried again, its task succeeds with a warning."""
CONTENTS = "gatehouse.reports.contents:page"
"""A page for any artifact: its numbers as bars, its columns and files, and its lineage."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 15.0, 300.0
_SENSITIVE = "gatehouse.data.validation.sensitivity:sensitive_columns"
"""Says of which columns no value may be shown. Named, not imported: it decides results, and this room decides none."""
_HEAVY = ("torch", "feast", "mlflow", "optuna", "sklearn", "duckdb", "pandas", "pyarrow")
_outer: contextvars.ContextVar[str] = contextvars.ContextVar("gatehouse_stage", default="")
_forced: contextvars.ContextVar[str] = contextvars.ContextVar("gatehouse_stage_forced", default="")


@dataclass(frozen=True)
class Effects:
    """What a stage reads and writes besides its parameters and its artifacts.

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
    """What a stage declares about itself.

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
        self.request, _, self.result = get_type_hints(function).values()

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
            _end_on_sigterm()
        while True:
            attempt = Attempt(store, label, digest_of([identity_of(request), force]))
            with _inside(label, force, functools.partial(self._sensitive, request, store)):
                try:
                    if (failure := attempt.permanent_failure()) is not None:  # KFP may start the task again.
                        raise RepeatedError(failure["message"], failure["error"], failure["exit_code"])
                    inject_fault(self.name, "start", attempt)
                    with attempt.as_task():
                        result, hit = self._recall_or_run(request, store, attempt, force)
                    inject_fault(self.name, "finish", attempt)
                    break
                except Exception as raised:
                    error = without_values(_in_words(raised))
                    pause = 0.0 if outer else _pause_before_another(error, attempt)
                    facts = _facts_of(error)
                    stopped = isinstance(error, StoppedError)
                    tolerated = not (outer or pause or stopped) and self.name in os.environ.get(TOLERATE, "").split(",")
                    with contextlib.suppress(StoreError):  # The error matters more than a failure to record it.
                        attempt.note("stopped" if stopped else "tolerated" if tolerated else "failed", **facts)
                    if tolerated:
                        attempt.warn(f"{self.name} failed, and the run goes on without it: {facts['message']}")
                        return _empty_result(self.result)
                    if not pause and error is raised:
                        raise
                    if not pause:
                        raise error from (None if isinstance(error, HiddenValueError) else raised)
                    logger.warning("%s failed, and is tried again in %g s: %s", label, pause, facts["message"])
                    del error  # It holds what the attempt had in memory.
                except SystemExit as ended:
                    if ended.code == 128 + signal.SIGTERM:
                        # KFP shows an exit task no difference between a terminated run and one whose pod was killed.
                        with contextlib.suppress(StoreError):  # The signal ends the stage, on the record or not.
                            attempt.note("stopped", **_facts_of(StoppedError(f"{self.name} was stopped by a signal.")))
                    raise
            time.sleep(pause)
        loaded = [name for name in _HEAVY if name in sys.modules]
        body = result.model_dump(mode="json")
        facts = {"memo": self.declared.effects.memo, "tracked": body.get(self.declared.tracked, "")}
        attempt.note("hit" if hit else "finished", result=body, imported=loaded, **facts)
        return result

    def _recall_or_run(self, request: Req, store: ArtifactStore, attempt: Attempt, force: str) -> tuple[Res, bool]:
        """The result, and whether it comes from the memo."""
        inputs = references_in(request.model_dump(mode="json"))
        if deprecated := list(filter(None, map(store.require_readable, inputs))):
            attempt.note("warned", message=" ".join(deprecated))
        if not self.declared.effects.memo:
            result = self.function(request, store)
            outputs = references_in(result.model_dump(mode="json"))
            # An artifact that it did not make itself has its provenance already.
            new = [str(output) for output in outputs if next(store.objects.list(f"provenance/{output}"), None) is None]
            attempt.provenance(new)
            self._draw_pages(store, outputs, attempt)
            return result, False

        key, sources = self.key(request), self.sources()
        attempt.facts = {
            "key": key,
            "code": sources.digest,
            "outside": self.outside(request) if self.outside else "",
            "request": identity_of(request),
        }
        recalled = None if force else memo.recall(store, self.name, key, attempt.warn, inputs)
        if recalled is not None:
            with contextlib.suppress(ValidationError):  # An older result may have another form.
                return self.result.model_validate(recalled), True

        # Sources are recorded so that two runs can be compared later.
        store.record(f"code/{sources.digest}.json", sources.to_json())
        limits.confine_arrow()
        result = self.function(request, store)
        body = result.model_dump(mode="json")
        outputs = references_in(body)
        missing = [str(output) for output in outputs if not store.exists(output)]
        if missing:
            raise StageResultError(
                f"Stage {self.name} returned references that are not in the store: {', '.join(missing)}."
            )
        if not result.provisional and not memo.remember(store, self.name, key, body):
            attempt.warn(f"NonDeterministicStage: {self.name} gave another result than before for the same key {key}.")
        attempt.provenance(map(str, outputs))
        self._draw_pages(store, outputs, attempt)
        return result, False

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


@contextlib.contextmanager
def _inside(label: str, force: str, sensitive: Callable[[], Collection[str]]) -> Iterator[None]:
    """In this context, calls belong to the stage of this label, and errors show no value of a sensitive column."""
    token, forced = _outer.set(label), _forced.set(force)
    try:
        with hiding(sensitive):
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
    root = Path(gatehouse.__file__).parent
    for path in sorted(root.rglob("*stage.py")):
        importlib.import_module(".".join(("gatehouse", *path.relative_to(root).with_suffix("").parts)))
    return STAGES


def forcible_stages() -> list[str]:
    """Names of the stages that keep what they made, in a memo or by themselves, in order."""
    stages = [stage for stage in declared_stages().values() if not stage.declared.inner]
    return sorted(
        stage.name for stage in stages if stage.declared.effects.memo or "force" in stage.request.model_fields
    )


def inject_fault(stage_name: str, point: str, attempt: Attempt) -> None:
    """For tests: pause, exit or raise at one point of one stage, as in `GATEHOUSE_FAULT=<stage>:<point>:<action>`.

    Points are `start` and `finish`. `pause` records the event `paused` and sleeps until the run is killed. Only the
    first attempt of a run has the fault. Raises RuntimeError if the action is `raise`.
    """
    place, _, action = os.environ.get(FAULT, "").rpartition(":")
    if place != f"{stage_name}:{point}" or attempt.number > 1:
        return
    if action == "pause":
        attempt.note("paused")
        time.sleep(600)
    elif action == "exit":
        os._exit(70)
    elif action == "raise":
        raise RuntimeError(f"injected fault at {place}")


def _pause_before_another(error: Exception, attempt: Attempt) -> float:
    """Seconds until this pod tries the stage again, as KFP may not; 0 where no attempt is left, or none would help.

    A launcher has restarts of its own, and each takes as long as this pod may; more memory needs another pod.
    """
    left = attempt.number < int(os.environ.get(ATTEMPTS, "1")) and bool(os.environ.get(RUN_ID)) and in_pod()
    hopeless = isinstance(error, StoppedError | LauncherError | OutOfMemoryError)
    if not left or hopeless or (isinstance(error, GatehouseError) and error.permanent):
        return 0.0
    return float(min(_PAUSE_SECONDS * 2 ** (attempt.number - 1), _LONGEST_PAUSE_SECONDS))


def _empty_result(result: type[Res]) -> Res:
    """A result without content: empty text, only zeros, no entries. No deciding stage uses it."""
    empty: dict[str, Any] = {}
    for name, info in result.model_fields.items():
        kind: Any = get_origin(info.annotation) or info.annotation
        empty[name] = kind() if kind in (int, float, bool, tuple, list, dict) else ""
    return cast(Res, result.model_construct(None, **empty))


def _facts_of(error: Exception) -> dict[str, Any]:
    """The fields of an error in the record of a failure."""
    name = error.name if isinstance(error, RepeatedError) else type(error).__name__
    facts = {"error": name, "message": redacted(str(error))}
    if not isinstance(error, GatehouseError):
        return facts | {"exit_code": 1, "permanent": False, "unexpected": True}
    return facts | {"exit_code": error.exit_code, "permanent": error.permanent}


def _end_on_sigterm() -> None:
    def end(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


def _in_words(error: Exception) -> Exception:
    """A full disk, full memory, or a signal during a query as an error in words; other errors unchanged."""
    if is_interruption(error):
        return StoppedError("A signal stopped the run while a query ran. Run again: what was finished is kept.")
    return disk_full(error) or out_of_memory(error) or error
