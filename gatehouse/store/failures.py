"""Failures of stages: in words and without hidden values, on the record, and with another attempt where it helps."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from gatehouse.errors import (
    GatehouseError,
    LauncherError,
    OutOfMemoryError,
    RepeatedError,
    StoppedError,
    StoreError,
    is_interruption,
)
from gatehouse.runtime.process import in_pod
from gatehouse.runtime.redaction import redacted
from gatehouse.runtime.variables import ATTEMPTS
from gatehouse.store.database import out_of_memory
from gatehouse.store.hidden_values import without_values
from gatehouse.store.run import RUN_ID, Attempt

logger = logging.getLogger(__name__)

FAULT = "GATEHOUSE_FAULT"
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 15.0, 300.0


def end_on_sigterm() -> None:
    """Let SIGTERM end this process with SystemExit, so that everything is cleaned up."""

    def end(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


@contextmanager
def recording_signals(stage_name: str, attempt: Attempt) -> Iterator[None]:
    """In this context SIGTERM is recorded as the end of the attempt.

    For an exit task KFP shows no difference between a terminated run and one whose pod was killed.
    """
    try:
        yield
    except SystemExit as ended:
        if ended.code == 128 + signal.SIGTERM:
            record_failure(attempt, "stopped", StoppedError(f"{stage_name} was stopped by a signal."))
        raise


def presentable(error: Exception) -> Exception:
    """A full disk, full memory or a signal in words, an error that quotes hidden values without them; else the same."""
    if is_interruption(error):
        return StoppedError("A signal stopped the run while a query ran. Run again: what was finished is kept.")
    return without_values(out_of_memory(error) or error)


def record_failure(attempt: Attempt, event: str, error: Exception) -> str:
    """Record `failed`, `stopped` or `tolerated` with an error; returns its message without secrets."""
    name = error.name if isinstance(error, RepeatedError) else type(error).__name__
    facts: dict[str, Any] = {"error": name, "message": redacted(str(error))}
    if isinstance(error, GatehouseError):
        facts |= {"exit_code": error.exit_code, "permanent": error.permanent}
    else:
        facts |= {"exit_code": 1, "permanent": False, "unexpected": True}
    with suppress(StoreError):  # The error matters more than a failure to record it.
        attempt.note(event, **facts)
    return str(facts["message"])


def refuse_repetition(attempt: Attempt) -> None:
    """Raise RepeatedError if an earlier attempt in this run had a permanent error: KFP may start a task again."""
    if (failure := attempt.permanent_failure()) is not None:
        raise RepeatedError(failure["message"], failure["error"], failure["exit_code"])


def pause_before_another(error: Exception, attempt: Attempt) -> float:
    """Seconds until this pod tries the stage again, as KFP may not; 0 where no attempt is left, or none would help.

    A launcher has restarts of its own, and each takes as long as this pod may; more memory needs another pod.
    """
    left = attempt.number < int(os.environ.get(ATTEMPTS, "1")) and bool(os.environ.get(RUN_ID)) and in_pod()
    hopeless = isinstance(error, StoppedError | LauncherError | OutOfMemoryError)
    if not left or hopeless or (isinstance(error, GatehouseError) and error.permanent):
        return 0.0
    return float(min(_PAUSE_SECONDS * 2 ** (attempt.number - 1), _LONGEST_PAUSE_SECONDS))


@contextmanager
def injected_faults(stage_name: str, attempt: Attempt) -> Iterator[None]:
    """For tests: pause, exit or raise before or after one stage, as in `GATEHOUSE_FAULT=<stage>:<point>:<action>`.

    Points are `start` and `finish`. `pause` records the event `paused` and sleeps until the run is killed. Only the
    first attempt of a run has the fault. Raises RuntimeError if the action is `raise`.
    """
    place, _, action = os.environ.get(FAULT, "").rpartition(":")

    def inject(point: str) -> None:
        if place != f"{stage_name}:{point}" or attempt.number > 1:
            return
        if action == "pause":
            attempt.note("paused")
            time.sleep(3600)
        elif action == "exit":
            os._exit(70)
        elif action == "raise":
            raise RuntimeError(f"injected fault at {place}")

    inject("start")
    yield
    inject("finish")
