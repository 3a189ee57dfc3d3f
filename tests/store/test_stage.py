"""The stage decorator: memo, force, verification, records, stale specs, non-determinism."""

import errno
import os
import signal
import time
import traceback
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
    StaleSpecError,
    StoppedError,
    StoreError,
)
from gatehouse.runtime import limits
from gatehouse.store import code as code_module
from gatehouse.store import run as run_module
from gatehouse.store import stage as stage_module
from gatehouse.store.declaration import Declaration
from gatehouse.store.forcing import nonces_of, require_known
from gatehouse.store.forms import RERUN
from gatehouse.store.run import RUN_ID, Event, events
from gatehouse.store.stage import ATTEMPTS, TOLERATE, Stage, StageModel
from gatehouse.store.store import ArtifactStore


class Request(StageModel):
    """What the counted stage depends on."""

    value: int
    data: str = ""


class Result(StageModel):
    """What it returns."""

    split: str


class Counted:
    """A stage that counts how often its function ran."""

    def __init__(self, name: str = "split") -> None:
        self.runs = 0
        self.salt = ""

        def function(request: Request, store: ArtifactStore) -> Result:
            self.runs += 1
            return Result(split=str(store.publish("splits", "s", {"x.json": f"{request.value}{self.salt}"})))

        self.stage: Stage[Request, Result] = Stage(Declaration(name, name, tracked="split"), function)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    monkeypatch.setenv(RUN_ID, "run")
    return ArtifactStore.open(tmp_path / "store")


def _events(store: ArtifactStore) -> list[Event]:
    return [event for _, event in events(store, "run")]


def test_the_second_call_comes_from_the_memo(store: ArtifactStore) -> None:
    counted = Counted()
    first = counted.stage(Request(value=1), store)
    assert counted.stage(Request(value=1), store) == first
    assert counted.runs == 1
    assert [event.event for event in _events(store)] == ["finished", "started", "hit", "started"]
    assert [event.body.get("tracked") for event in _events(store)] == [first.split, None, first.split, None]


@pytest.mark.parametrize("other", [Request(value=2), Request(value=1, data=f"datasets/d/sha256-{'0' * 64}")])
def test_another_request_runs(store: ArtifactStore, other: Request) -> None:
    counted = Counted()
    counted.stage(Request(value=1), store)
    counted.stage(other, store)
    assert counted.runs == 2


def test_an_address_and_its_identity_are_one_request() -> None:
    identity = f"datasets/d/sha256-{'0' * 64}"
    assert Request(value=1, data=f"/some/store/{identity}") == Request(value=1, data=identity)


def test_force_runs_again_and_keeps_one_record(store: ArtifactStore) -> None:
    counted = Counted()
    counted.stage(Request(value=1), store)
    counted.stage(Request(value=1), store, force="now")
    assert counted.runs == 2
    assert len(list(store.objects.list("memo/split"))) == 1


def test_who_forces_a_stage_that_calls_itself_means_both_and_no_other_stage(store: ArtifactStore) -> None:
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

    stages = {"outer": Stage(Declaration("outer", "A"), outer), "inner": Stage(Declaration("inner", "B"), inner)}
    for force in ("", "now", ""):
        stages["outer"](Request(value=1), store, force=force)
    assert ran == [("outer", 1), ("outer", 2), ("inner", 2), ("outer", 1), ("outer", 2)]


def test_two_results_under_one_key_are_reported(store: ArtifactStore) -> None:
    counted = Counted()
    counted.stage(Request(value=1), store)
    counted.salt = "changed"
    second = counted.stage(Request(value=1), store, force="now")
    warned = [event for event in _events(store) if event.event == "warned"]
    assert len(warned) == 1 and "NonDeterministicStage: split" in warned[0].body["message"]
    assert counted.stage(Request(value=1), store) == second


def test_a_memo_whose_artifact_is_gone_is_a_miss(store: ArtifactStore) -> None:
    counted = Counted()
    result = counted.stage(Request(value=1), store)
    store.path(result.split, "x.json").unlink()
    assert counted.stage(Request(value=1), store) == result
    assert counted.runs == 2 and store.exists(result.split)


@pytest.mark.parametrize("damage", ["7", "12"], ids=["altered", "too long"])
def test_a_damaged_file_of_a_memoised_result_is_put_aside_and_made_again(store: ArtifactStore, damage: str) -> None:
    counted = Counted()
    result = counted.stage(Request(value=1), store)
    path = store.path(result.split, "x.json")
    path.chmod(0o644)
    path.write_text(damage)
    assert counted.stage(Request(value=1), store) == result and counted.runs == 2
    assert store.verify(result.split) == 1
    assert [store.objects.get_bytes(key).decode() for key in store.objects.list("quarantine")] == [damage]
    warned = [event.body["message"] for event in _events(store) if event.event == "warned"]
    assert len(warned) == 1 and "x.json" in warned[0] and "quarantine/blobs/" in warned[0]
    assert counted.stage(Request(value=1), store) == result and counted.runs == 2


def test_a_damaged_manifest_of_a_memoised_result_is_put_aside_and_made_again(store: ArtifactStore) -> None:
    counted = Counted()
    result = counted.stage(Request(value=1), store)
    path = Path(store.address) / result.split / "manifest.json"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("splits", "splitz"))
    assert counted.stage(Request(value=1), store) == result and counted.runs == 2
    assert store.verify(result.split) == 1


@pytest.mark.parametrize("damage", [None, "12"], ids=["gone", "too long"])
def test_a_file_of_what_a_result_is_made_of_is_made_again_and_an_input_is_not(
    store: ArtifactStore, damage: str | None
) -> None:
    runs = []
    given = store.publish("datasets", "d", {"d.json": "0"})

    def together(request: Request, store: ArtifactStore) -> Result:
        runs.append(request)
        part = store.publish("features", "f", {"f.json": "1"})
        return Result(split=str(store.publish("splits", "s", {}, derived_from={"part": part, "data": request.data})))

    made, request = Stage(Declaration("split", "Split"), together), Request(value=1, data=str(given))
    result = made(request, store)
    store.path(given, "d.json").unlink()
    assert made(request, store) == result and len(runs) == 1, "an input that is gone makes no stage run again"
    path = store.path(store.manifest(result.split).derived_from["part"], "f.json")
    path.unlink()
    if damage:
        path.write_text(damage)
    assert made(request, store) == result and len(runs) == 2
    assert path.read_text() == "1" and len(list(store.objects.list("quarantine"))) == bool(damage)
    assert made(request, store) == result and len(runs) == 2


def test_a_result_that_does_not_exist_is_an_error(store: ArtifactStore) -> None:
    def lying(request: Request, store: ArtifactStore) -> Result:
        return Result(split=f"splits/s/sha256-{'0' * 64}")

    with pytest.raises(StageResultError, match="splits/s"):
        Stage(Declaration("split", "Split"), lying)(Request(value=1), store)
    assert not list(store.objects.list("memo"))


def test_a_failure_is_recorded_with_its_cause(store: ArtifactStore) -> None:
    def failing(request: Request, store: ArtifactStore) -> Result:
        raise ConfigurationError("column x: expected int64, found string")

    with pytest.raises(ConfigurationError):
        Stage(Declaration("split", "Split"), failing)(Request(value=1), store)
    failed = next(event for event in _events(store) if event.event == "failed")
    assert failed.body["error"] == "ConfigurationError" and failed.body["exit_code"] == 4
    assert failed.body["message"] == "column x: expected int64, found string"


@pytest.mark.parametrize(("error", "runs"), [(ConfigurationError, 1), (StoreError, 3), (ValueError, 3)])
def test_a_second_attempt_finds_a_permanent_error_at_once(
    store: ArtifactStore, error: type[Exception], runs: int
) -> None:
    ran: list[int] = []

    def failing(request: Request, store: ArtifactStore) -> Result:
        ran.append(request.value)
        raise error("batch_size: expected 1 to 8192, found 9000")

    stage = Stage(Declaration("split", "Split"), failing)
    for _ in range(3):
        with pytest.raises(Exception, match=r"expected 1 to 8192, found 9000$") as raised:
            stage(Request(value=1), store)
    assert len(ran) == runs
    assert getattr(raised.value, "exit_code", 1) == getattr(error, "exit_code", 1)
    failed = [event.body for event in _events(store) if event.event == "failed"]
    assert [body["error"] for body in failed] == [error.__name__] * 3
    with pytest.raises(error):
        stage(Request(value=2), store)
    assert ran[-1] == 2


def test_a_permanent_error_of_long_ago_is_looked_for_again(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted()
    attempts: list[int] = []

    def mended(request: Request, store: ArtifactStore) -> Result:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConfigurationError("the secret is not there")
        return counted.stage(request, store)

    stage = Stage(Declaration("prepare", "Prepare"), mended)
    with pytest.raises(ConfigurationError):
        stage(Request(value=1), store)
    monkeypatch.setattr(run_module, "_RETRY_SECONDS", 0.0)
    assert stage(Request(value=1), store).split


def test_a_full_disk_is_said_in_words(store: ArtifactStore) -> None:
    def failing(request: Request, store: ArtifactStore) -> Result:
        raise OSError(errno.ENOSPC, "No space left on device", "/big/part.parquet")

    with pytest.raises(StoreError, match=r"The disk is full while .* was written"):
        Stage(Declaration("split", "Split"), failing)(Request(value=1), store)
    assert next(event for event in _events(store) if event.event == "failed").body["error"] == "StoreError"


@pytest.mark.parametrize("raised", [MemoryError("malloc of 9 GB"), duckdb.OutOfMemoryException("could not allocate")])
def test_too_little_memory_is_said_in_words_and_is_tried_again(store: ArtifactStore, raised: Exception) -> None:
    def failing(request: Request, store: ArtifactStore) -> Result:
        raise raised

    for _ in range(2):
        with pytest.raises(OutOfMemoryError, match=r"this process may use [\d.]+ GB.*`resources` in project.yaml"):
            Stage(Declaration("split", "Split"), failing)(Request(value=1), store)


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
        Stage(Declaration("split", "Split"), failing)(Request(value=1, data=data), store)
    printed = "".join(traceback.format_exception(raised.value))
    failed = next(event for event in _events(store) if event.event == "failed").body
    assert ("Slartibartfast" in printed + failed["message"]) == (not sensitive)
    assert "in failing" in printed
    if sensitive:
        hidden = "ValueError, whose words are not shown, as columns are sensitive (name), raised at test_stage.py:"
        assert failed["message"].startswith("v.sql: expected" if caught else hidden)


def test_arrow_has_the_threads_of_the_pod_and_not_of_its_machine(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, usual = Counted(), pa.cpu_count()
    monkeypatch.setattr(limits, "processors", lambda: usual + 3)
    try:
        counted.stage(Request(value=1), store)
        assert pa.cpu_count() == usual + 3
    finally:
        pa.set_cpu_count(usual)


def test_a_signal_within_a_query_is_told_as_one(store: ArtifactStore) -> None:
    def stopped(request: Request, store: ArtifactStore) -> Result:
        raise RuntimeError("Query interrupted")  # what DuckDB makes of a signal

    with pytest.raises(StoppedError, match="A signal stopped the run while a query ran"):
        Stage(Declaration("split", "Split"), stopped)(Request(value=1), store)
    assert next(event for event in _events(store) if event.event == "stopped").body["error"] == "StoppedError"


def test_a_spec_compiled_from_other_code_is_refused_unless_the_memo_answers(store: ArtifactStore) -> None:
    counted = Counted()
    with pytest.raises(StaleSpecError, match="Compile again"):
        counted.stage(Request(value=1), store, code="0" * 64)
    result = counted.stage(Request(value=1), store, code=counted.stage.code())
    assert counted.stage(Request(value=1), store, code=counted.stage.code()) == result
    assert counted.runs == 1


def test_a_spec_fits_whatever_is_installed_but_the_key_holds_the_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    training_set = f"training-sets/service/sha256-{'0' * 64}"
    request = SplitRequest(training_set=training_set, spec=RandomSplit(strategy="random"))
    compiled, key = split.code(), split.key(request)
    monkeypatch.setattr(code_module, "_version", lambda name: "0.1")  # Another release, which nobody installs.
    split.require_current(compiled)
    assert split.key(request, compiled) == split.key(request) != key
    assert split.key(request, "0" * 64) != split.key(request)


def test_stages_inside_a_stage_are_recorded_under_it(store: ArtifactStore) -> None:
    inner = Counted()

    def outer(request: Request, store: ArtifactStore) -> Result:
        return inner.stage(request, store)

    Stage(Declaration("tune", "Tune"), outer)(Request(value=1), store)
    assert {event.stage for event in _events(store)} == {"tune", "tune:split"}


def test_an_injected_fault_names_its_stage_and_point(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stage_module.FAULT, "split:finish:raise")
    counted = Counted()
    with pytest.raises(RuntimeError, match="split:finish"):
        counted.stage(Request(value=1), store)
    monkeypatch.delenv(stage_module.FAULT)
    counted.stage(Request(value=1), store)
    assert counted.runs == 1


@pytest.mark.parametrize(("ending", "noted"), [("signal", ["stopped"]), ("exit", [])])
def test_a_stage_that_a_signal_ends_says_so_on_the_record(store: ArtifactStore, ending: str, noted: list[str]) -> None:
    def end(request: Request, store: ArtifactStore) -> Result:
        if ending == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(30)
        raise SystemExit(1)

    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit):
            Stage(Declaration("split", "Split"), end)(Request(value=1), store)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert _ends(store) == noted


def test_provenance_says_which_run_made_an_artifact(store: ArtifactStore) -> None:
    result = Counted().stage(Request(value=1), store)
    assert len(list(store.objects.list(f"provenance/{result.split}"))) == 1


def test_a_rerun_names_stages_and_an_optional_nonce() -> None:
    for unfilled in ("", RERUN, "none"):
        assert nonces_of(unfilled) == {}
    assert nonces_of("train, evaluate@2") == {"train": "2", "evaluate": "2"}
    assert nonces_of("train") == {"train": "forced"}
    require_known("train,evaluate@2", ("train", "evaluate"))
    with pytest.raises(ConfigurationError, match=r"rerun: expected stages among evaluate, train, found 'trian'"):
        require_known("trian", ("train", "evaluate"))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts of a pod that may make three; nobody waits for them."""
    waited: list[float] = []
    monkeypatch.setenv(ATTEMPTS, "3")
    monkeypatch.setattr(stage_module.time, "sleep", waited.append)  # The pauses take a minute.
    return waited


def _failing(*errors: Exception) -> Stage[Request, Result]:
    """A stage whose attempts end in these errors, and after them well."""
    left = list(errors)

    def fail(request: Request, store: ArtifactStore) -> Result:
        if left:
            raise left.pop(0)
        return Result.model_construct(None, split="")

    return Stage(Declaration("split", "Split"), fail)


def _ends(store: ArtifactStore) -> list[str]:
    return [event.event for event in _events(store) if event.event not in ("started", "warned")]


def test_a_pod_tries_a_stage_again_after_an_error_that_may_pass(store: ArtifactStore, pauses: list[float]) -> None:
    _failing(StoreError("busy"), ConnectionResetError("lost"))(Request(value=1), store)
    assert _ends(store) == ["failed", "failed", "finished"] and pauses == [15, 30]


@pytest.mark.parametrize(
    ("error", "tries"),
    [(StoreError, 3), (KeyError, 3), (ConfigurationError, 1), (LauncherError, 1), (OutOfMemoryError, 1)],
)
def test_a_pod_tries_no_more_often_than_told_and_not_where_that_is_no_help(
    store: ArtifactStore, pauses: list[float], error: type[Exception], tries: int
) -> None:
    with pytest.raises(error):
        _failing(*[error("no") for _ in range(9)])(Request(value=1), store)
    assert _ends(store) == ["failed"] * tries and len(pauses) == tries - 1


def test_a_pod_that_kfp_started_again_goes_on_counting(store: ArtifactStore, pauses: list[float]) -> None:
    stage = _failing(*[StoreError("busy") for _ in range(9)])
    for _ in range(2):
        with pytest.raises(StoreError):
            stage(Request(value=1), store)
    assert _ends(store) == ["failed"] * 4


def test_without_a_record_a_stage_is_tried_once(
    store: ArtifactStore, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RUN_ID)
    with pytest.raises(StoreError):
        _failing(StoreError("busy"))(Request(value=1), store)
    assert pauses == []


@pytest.mark.parametrize(("error", "attempts"), [(StoreError, 3), (ConfigurationError, 1), (OutOfMemoryError, 1)])
def test_a_stage_that_may_fail_ends_well_with_a_warning_once_trying_again_does_not_help(
    store: ArtifactStore, pauses: list[float], monkeypatch: pytest.MonkeyPatch, error: type[Exception], attempts: int
) -> None:
    monkeypatch.setenv(TOLERATE, "probe,split")
    stage = _failing(*[error("no answer") for _ in range(9)])
    assert stage(Request(value=1), store).split == ""
    assert _ends(store) == ["failed"] * (attempts - 1) + ["tolerated"]
    (warned,) = [event.body["message"] for event in _events(store) if event.event == "warned"]
    assert warned == "split failed, and the run goes on without it: no answer"
    assert not list(store.objects.list("memo"))
