"""The stage decorator: memo, force, verification, records, retries, stale specs, non-determinism."""

import errno
import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from gatehouse.data.splitting.spec import RandomSplit
from gatehouse.data.splitting.stage import SplitRequest, split
from gatehouse.errors import (
    ConfigurationError,
    LauncherError,
    OutOfMemoryError,
    StageResultError,
    StoppedError,
    StoreError,
)
from gatehouse.runtime import limits
from gatehouse.runtime.variables import ATTEMPTS
from gatehouse.store import code as code_module
from gatehouse.store import run as run_module
from gatehouse.store import stage as stage_module
from gatehouse.store.failures import FAULT
from gatehouse.store.parameters import nonces_of, require_known
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.stage import TOLERATE, Declaration, Stage, StageModel
from gatehouse.store.store import ArtifactStore


class Request(StageModel):
    value: int = 1
    data: str = ""


class Result(StageModel):
    split: str


def _stage(function: Callable[[Request, ArtifactStore], Result], name: str = "split") -> Stage[Request, Result]:
    return Stage(Declaration(name, name, tracked="split"), function)


class Counted:
    def __init__(self) -> None:
        self.runs = 0
        self.salt = ""

        def function(request: Request, store: ArtifactStore) -> Result:
            self.runs += 1
            return Result(split=str(store.publish("splits", "s", {"x.json": f"{request.value}{self.salt}"})))

        self.stage = _stage(function)


class Nested(StageModel):
    tables: dict[str, tuple[str, ...]]


def _failing(*errors: Exception) -> Stage[Request, Result]:
    left = list(errors)

    def fail(request: Request, store: ArtifactStore) -> Result:
        if left:
            raise left.pop(0)
        return Result(split="")

    return _stage(fail)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    monkeypatch.setenv(RUN_ID, "run")
    return ArtifactStore.open(tmp_path / "store")


def _bodies(store: ArtifactStore, event: str) -> list[dict[str, object]]:
    return [entry.body for _, entry in events(store, "run") if entry.event == event]


def _ends(store: ArtifactStore) -> list[str]:
    return [event.event for _, event in events(store, "run") if event.event not in ("started", "warned")]


def test_the_second_call_comes_from_the_memo(store: ArtifactStore) -> None:
    counted = Counted()
    first = counted.stage(Request(), store)
    assert counted.stage(Request(), store) == first and counted.runs == 1
    assert _ends(store) == ["finished", "hit"]
    assert [body["tracked"] for body in _bodies(store, "finished") + _bodies(store, "hit")] == [first.split] * 2
    assert len(list(store.objects.list(f"provenance/{first.split}"))) == 1


@pytest.mark.parametrize("other", [Request(value=2), Request(data=f"datasets/d/sha256-{'0' * 64}")])
def test_another_request_runs(store: ArtifactStore, other: Request) -> None:
    counted = Counted()
    counted.stage(Request(), store)
    counted.stage(other, store)
    assert counted.runs == 2


def test_an_address_and_its_identity_are_one_request() -> None:
    identity = f"datasets/d/sha256-{'0' * 64}"
    assert Request(data=f"/some/store/{identity}") == Request(data=identity)
    assert Nested(tables={"t": [f"gs://b/{identity}"]}) == Nested(tables={"t": [identity]})


def test_force_runs_again_and_two_results_under_one_key_are_reported(store: ArtifactStore) -> None:
    counted = Counted()
    counted.stage(Request(), store)
    counted.stage(Request(), store, force="now")
    assert counted.runs == 2 and len(list(store.objects.list("memo/split"))) == 1 and not _bodies(store, "warned")
    counted.salt = "changed"
    latest = counted.stage(Request(), store, force="now")
    (warning,) = _bodies(store, "warned")
    assert "NonDeterministicStage: split" in str(warning["message"])
    assert counted.stage(Request(), store) == latest


def test_force_applies_to_calls_of_a_stage_to_itself_and_to_no_other_stage(store: ArtifactStore) -> None:
    """A refit is the second of two trainings; the trials of an experiment are trainings too."""
    ran: list[tuple[str, int]] = []

    def outer(request: Request, store: ArtifactStore) -> Result:
        ran.append(("outer", request.value))
        if request.value == 1:
            stages["outer"](Request(value=2), store)
            stages["inner"](Request(value=2), store)
        return Result(split="")

    def inner(request: Request, store: ArtifactStore) -> Result:
        ran.append(("inner", request.value))
        return Result(split="")

    stages = {"outer": _stage(outer, "outer"), "inner": _stage(inner, "inner")}
    for force in ("", "now", ""):
        stages["outer"](Request(), store, force=force)
    assert ran == [("outer", 1), ("outer", 2), ("inner", 2), ("outer", 1), ("outer", 2)]
    assert {event.stage for _, event in events(store, "run")} == {"outer", "outer:outer", "outer:inner"}


@pytest.mark.parametrize("damage", [None, "7", "12", "manifest"], ids=["gone", "altered", "too long", "manifest"])
def test_a_damaged_result_in_the_memo_is_put_aside_and_made_again(store: ArtifactStore, damage: str | None) -> None:
    counted = Counted()
    result = counted.stage(Request(), store)
    path = store.path(result.split, "x.json")
    if damage == "manifest":
        path = Path(store.address) / result.split / "manifest.json"
    path.chmod(0o644)
    path.write_text(damage) if damage else path.unlink()
    for _ in range(2):
        assert counted.stage(Request(), store) == result and counted.runs == 2
    assert store.verify(result.split) == 1
    aside = [store.objects.get_bytes(key).decode() for key in store.objects.list("quarantine")]
    assert aside == ([damage] if damage else [])
    (warning,) = _bodies(store, "warned")
    assert ("quarantine/" in str(warning["message"])) == bool(damage)


def test_an_unreadable_record_of_the_memo_is_a_miss(store: ArtifactStore) -> None:
    counted = Counted()
    result = counted.stage(Request(), store)
    (path,) = (Path(store.address) / "memo").rglob("*.json")
    path.chmod(0o644)
    path.write_text("")
    assert [counted.stage(Request(), store) for _ in range(2)] == [result, result] and counted.runs == 2
    assert path.name in str(_bodies(store, "warned")[0]["message"])


@pytest.mark.parametrize("damage", [None, "12"], ids=["gone", "too long"])
def test_a_part_of_a_result_is_made_again_and_an_input_is_not(store: ArtifactStore, damage: str | None) -> None:
    runs = []
    data = store.publish("datasets", "d", {"d.json": "0"})

    def together(request: Request, store: ArtifactStore) -> Result:
        runs.append(request)
        part = store.publish("features", "f", {"f.json": "1"})
        return Result(split=str(store.publish("splits", "s", {}, derived_from={"part": part, "data": request.data})))

    stage, request = _stage(together), Request(data=str(data))
    result = stage(request, store)
    store.path(data, "d.json").unlink()
    assert stage(request, store) == result and len(runs) == 1, "an input that is gone makes no stage run again"
    path = store.path(store.manifest(result.split).derived_from["part"], "f.json")
    path.unlink()
    if damage:
        path.write_text(damage)
    for _ in range(2):
        assert stage(request, store) == result and len(runs) == 2
    assert path.read_text() == "1" and len(list(store.objects.list("quarantine"))) == bool(damage)


def test_a_result_that_does_not_exist_is_an_error(store: ArtifactStore) -> None:
    def lie(request: Request, store: ArtifactStore) -> Result:
        return Result(split=f"splits/s/sha256-{'0' * 64}")

    with pytest.raises(StageResultError, match="splits/s"):
        _stage(lie)(Request(), store)
    assert not list(store.objects.list("memo"))


@pytest.mark.parametrize(
    ("raised", "expected", "event"),
    [
        (ConfigurationError("column x: expected int64"), ConfigurationError, "failed"),
        (OSError(errno.ENOSPC, "No space left on device", "/big/part.parquet"), StoreError, "failed"),
        (MemoryError("malloc of 9 GB"), OutOfMemoryError, "failed"),
        (duckdb.OutOfMemoryException("could not allocate"), OutOfMemoryError, "failed"),
        (RuntimeError("Query interrupted"), StoppedError, "stopped"),  # what DuckDB makes of a signal
    ],
)
def test_an_error_is_recorded_with_its_class_and_exit_code(
    store: ArtifactStore, raised: Exception, expected: type[ConfigurationError], event: str
) -> None:
    with pytest.raises(expected) as caught:
        _failing(raised)(Request(), store)
    (body,) = _bodies(store, event)
    assert (body["error"], body["exit_code"]) == (expected.__name__, expected.exit_code)
    assert body["message"] == str(caught.value)


@pytest.mark.parametrize(("error", "runs"), [(ConfigurationError, 1), (StoreError, 3), (ValueError, 3)])
def test_a_second_attempt_repeats_a_permanent_error_at_once(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, error: type[Exception], runs: int
) -> None:
    ran: list[int] = []

    def fail(request: Request, store: ArtifactStore) -> Result:
        ran.append(request.value)
        raise error("batch_size: expected 1 to 8192, found 9000")

    stage = _stage(fail)
    for _ in range(3):
        with pytest.raises(Exception, match=r"expected 1 to 8192, found 9000$") as raised:
            stage(Request(), store)
        assert getattr(raised.value, "exit_code", 1) == getattr(error, "exit_code", 1)
    assert len(ran) == runs
    assert [body["error"] for body in _bodies(store, "failed")] == [error.__name__] * 3
    with pytest.raises(error):
        stage(Request(value=2), store)
    monkeypatch.setattr(run_module, "_RETRY_SECONDS", 0.0)  # Somebody may have mended the cause since.
    with pytest.raises(error):
        stage(Request(), store)
    assert len(ran) == runs + 2


@pytest.mark.parametrize("sensitive", [(), ("name",)])
@pytest.mark.parametrize("caught", [False, True])
def test_no_error_of_a_library_quotes_a_row_where_a_column_is_sensitive(
    store: ArtifactStore, caught: bool, sensitive: tuple[str, ...]
) -> None:
    source = store.publish("datasets", "people", {}, details={"sensitive": sensitive} if sensitive else {})
    data = str(store.publish("features", "v", {}, derived_from={"people": source}))

    def failing(request: Request, store: ArtifactStore) -> Result:
        try:
            float("Slarti" + "bartfast")
        except ValueError as error:
            if caught:
                raise ConfigurationError("v.sql: expected a number") from error
            raise
        raise AssertionError

    with pytest.raises(Exception, match=r"number|float|not shown") as raised:
        _stage(failing)(Request(data=data), store)
    printed = "".join(traceback.format_exception(raised.value))
    (failed,) = _bodies(store, "failed")
    assert ("Slartibartfast" in printed + str(failed["message"])) == (not sensitive)
    assert "in failing" in printed
    if sensitive and not caught:
        assert "(name), raised at test_stage.py:" in str(failed["message"])


def test_arrow_has_the_threads_of_the_pod_and_not_of_its_machine(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = pa.cpu_count()
    monkeypatch.setattr(limits, "processors", lambda: usual + 3)
    try:
        Counted().stage(Request(), store)
        assert pa.cpu_count() == usual + 3
    finally:
        pa.set_cpu_count(usual)


def test_a_key_holds_the_versions_of_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    request = SplitRequest(training_set=f"training-sets/service/sha256-{'0' * 64}", spec=RandomSplit(strategy="random"))
    key = split.key(request)
    monkeypatch.setattr(code_module, "_version", lambda name: "0.1")  # Another release, which nobody installs.
    assert split.key(request) != key


def test_an_injected_fault_names_its_stage_and_point(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULT, "split:finish:raise")
    counted = Counted()
    with pytest.raises(RuntimeError, match="split:finish"):
        counted.stage(Request(), store)
    monkeypatch.delenv(FAULT)
    counted.stage(Request(), store)
    assert counted.runs == 1


@pytest.mark.parametrize(("ending", "noted"), [("signal", ["stopped"]), ("exit", [])])
def test_a_stage_that_a_signal_ends_records_that(store: ArtifactStore, ending: str, noted: list[str]) -> None:
    def end(request: Request, store: ArtifactStore) -> Result:
        if ending == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(30)
        raise SystemExit(1)

    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit):
            _stage(end)(Request(), store)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert _ends(store) == noted


def test_a_rerun_names_stages_and_an_optional_nonce() -> None:
    assert nonces_of("") == {}
    assert nonces_of("train, evaluate@2") == {"train": "2", "evaluate": "2"}
    assert nonces_of("train") == {"train": "forced"}
    require_known("train,evaluate@2", ("train", "evaluate"))
    with pytest.raises(ConfigurationError, match=r"^rerun: .*'trian'"):
        require_known("trian", ("train", "evaluate"))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts of a pod that may make three; nobody waits for them."""
    waited: list[float] = []
    monkeypatch.setenv(ATTEMPTS, "3")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(stage_module.time, "sleep", waited.append)
    return waited


def test_a_pod_tries_a_stage_again_after_an_error_that_may_pass(store: ArtifactStore, pauses: list[float]) -> None:
    _failing(StoreError("busy"), ConnectionResetError("lost"))(Request(), store)
    assert _ends(store) == ["failed", "failed", "finished"] and pauses == [15, 30]


@pytest.mark.parametrize("tolerated", [False, True])
@pytest.mark.parametrize(
    ("error", "tries"),
    [(StoreError, 3), (KeyError, 3), (ConfigurationError, 1), (LauncherError, 1), (OutOfMemoryError, 1)],
)
def test_a_pod_tries_as_often_as_allowed_where_that_may_help_and_then_fails_or_is_tolerated(
    store: ArtifactStore,
    pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    tries: int,
    tolerated: bool,
) -> None:
    stage = _failing(*[error("no answer") for _ in range(9)])
    if tolerated:
        monkeypatch.setenv(TOLERATE, "freshness,split")
        assert stage(Request(), store).split == ""
        assert len(_bodies(store, "warned")) == 1 and not list(store.objects.list("memo"))
    else:
        with pytest.raises(error):
            stage(Request(), store)
    assert _ends(store) == ["failed"] * (tries - tolerated) + ["tolerated"] * tolerated and len(pauses) == tries - 1


def test_a_pod_that_kfp_started_again_goes_on_counting(store: ArtifactStore, pauses: list[float]) -> None:
    stage = _failing(*[StoreError("busy") for _ in range(9)])
    for _ in range(2):
        with pytest.raises(StoreError):
            stage(Request(), store)
    assert _ends(store) == ["failed"] * 4


def test_without_a_record_a_stage_is_tried_once(
    store: ArtifactStore, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RUN_ID)
    with pytest.raises(StoreError):
        _failing(StoreError("busy"))(Request(), store)
    assert pauses == []
