"""The log of a predictor: its rows, what it hides, kills, repeats, a store that is away, and what monitoring reads."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests

from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.monitoring.live_log import live_files, live_tables
from gatehouse.monitoring.rows import collect_log, read_log
from gatehouse.registry.ledger import CANARY, CHAMPION
from gatehouse.server import prediction_log
from gatehouse.server.inference import Inference
from gatehouse.server.prediction_log import PredictionLog, read_spool
from gatehouse.server.predictor import Following, create_app
from gatehouse.server.traffic import Answer
from gatehouse.store.store import ArtifactStore
from tests.ports import free_port
from tests.server.live import Live, make_live, tensors
from tests.server.serving import serving
from tests.training.synthetic import NUMERIC, table

ROWS = table(40)
NOON = "2013-12-01T12:00:00+00:00"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    """Version 1 is champion and 2 canary of half the keys; the column `wind` is sensitive."""
    live = make_live(ArtifactStore.open(tmp_path_factory.mktemp("logged")), sensitive=("wind",))
    live.promote(1, CHAMPION)
    live.promote(2, CANARY, 0.5)
    return live


@pytest.fixture
def log(live: Live, tmp_path: Path) -> Callable[..., PredictionLog]:
    """Makes a log with an empty folder of spools, into a store without rows."""
    shutil.rmtree(live.store.local_folder / "traffic", ignore_errors=True)
    return lambda **more: PredictionLog(live.store, "delays", folder=tmp_path, **more)


def _answer(live: Live, rows: pa.Table = ROWS, **more: Any) -> Answer:
    at = {"name": "decision_time", "datatype": "BYTES", "shape": [rows.num_rows], "data": [NOON] * rows.num_rows}
    inputs = [*tensors(rows, keys=True), at]
    return live.traffic().answer(Inference.model_validate({"inputs": inputs} | more))


def _logged(store: ArtifactStore) -> pa.Table:
    tables = [*live_tables(store, live_files(store, "delays", None))]
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})


def test_a_row_of_the_log_says_who_was_answered_what_and_by_which_model(live: Live, log: Any) -> None:
    written = log()
    written.start()
    written.add(_answer(live, id="r1"))
    written.close()
    rows = _logged(live.store).sort_by("request_row")
    assert rows["flight_id"].to_pylist() == ROWS["flight_id"].to_pylist()
    assert {*rows["request_id"].to_pylist()} == {"r1"} and rows["request_row"].to_pylist() == list(range(40))
    versions = rows["model_version"].to_pylist()
    assert {*zip(rows["arm"].to_pylist(), versions, strict=True)} == {(CHAMPION, 1), (CANARY, 2)}
    scored = {version: live.predict(version, ROWS) for version in (1, 2)}
    assert rows["probability"].to_pylist() == [scored[version][row] for row, version in enumerate(versions)]
    assert {item.isoformat() for item in rows["decision_time"].to_pylist()} == {NOON}
    assert {*rows["ledger"].to_pylist()} == {live.traffic().records} and rows["error"].null_count == 40
    assert "wind" not in rows.column_names and {*NUMERIC} - {"wind"} < {*rows.column_names}
    assert rows["distance"].to_pylist() == ROWS["distance"].to_pylist()
    (hour,) = {key.split("/")[2] for key in live_files(live.store, "delays", None)}
    assert hour == rows["requested_at"][0].as_py().strftime("%Y-%m-%dT%H")


@pytest.mark.parametrize("features", ["digest", "none"])
def test_features_may_be_left_out_and_keys_sampled(live: Live, log: Any, features: str) -> None:
    written = log(features=features, share=0.5)
    for start in (0, 20):
        written._waiting.add(_answer(live, ROWS.slice(start, 20)), 20, 1)
        written._waiting.add(_answer(live, ROWS.slice(start, 20)), 20, 1)
    written.write()
    written._seal()
    written.send()
    rows = _logged(live.store)
    keys = rows["flight_id"].to_pylist()
    assert 5 < len({*keys}) < 35 and all(keys.count(key) == 2 for key in keys)
    assert "distance" not in rows.column_names
    assert ("features_digest" in rows.column_names) == (features == "digest")


def test_a_failed_row_is_logged_with_its_error(live: Live, log: Any) -> None:
    live.promote(3, CANARY, 0.5)
    try:
        answer = _answer(live)
    finally:
        live.promote(2, CANARY, 0.5)
    written = log()
    written.add(answer)
    written.write()
    written._seal()
    written.send()
    rows = _logged(live.store)
    errors = {*zip(rows["arm"].to_pylist(), rows["model_version"].to_pylist(), rows["error"].to_pylist(), strict=True)}
    assert errors == {(CHAMPION, 1, None), (CANARY, 1, "PredictionError")}


def test_a_predictor_that_ends_has_sent_what_it_answered(live: Live, log: Any) -> None:
    with serving(create_app(Following(live.traffic()), log=log())) as address:
        body = {"inputs": tensors(ROWS, keys=True)}
        requests.post(f"{address}/v2/models/delays/infer", json=body, timeout=60).raise_for_status()
    assert _logged(live.store).num_rows == 40


def test_what_is_sealed_after_the_last_sending_is_sent(live: Live, log: Any) -> None:
    written = log()
    written.add(_answer(live))
    written._ended.set()  # As where the end comes while spools are being sent.
    written.start()
    written.close()
    assert _logged(live.store).num_rows == 40


def test_rows_that_are_sent_again_are_not_there_twice(live: Live, log: Any, tmp_path: Path) -> None:
    written = log()
    written.add(_answer(live))
    written.write()
    written._seal()
    (spool,) = tmp_path.glob("*.arrow")
    copy = spool.read_bytes()
    written.send()
    assert not [*tmp_path.glob("*.arrow")]
    spool.write_bytes(copy)  # Killed after the file was stored, and before the spool was deleted.
    log().send()
    assert _logged(live.store).num_rows == 40 and not [*tmp_path.glob("*.arrow")]


def test_a_half_written_batch_costs_this_batch_alone(live: Live, log: Any, tmp_path: Path) -> None:
    written = log()
    for _ in range(3):
        written.add(_answer(live))
        written.write()
    (spool,) = tmp_path.glob("*.arrow")
    os.truncate(spool, spool.stat().st_size - 100)
    assert read_spool(spool).num_rows == 80
    os.truncate(spool, 10)
    assert read_spool(spool).num_rows == 0


def test_a_store_that_is_away_costs_the_oldest_rows_beyond_a_bound(
    live: Live, log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = log()

    def refuse(*_: object) -> bool:
        raise StoreError("the store does not answer")

    with monkeypatch.context() as away:
        away.setattr(live.store.objects, "put_bytes", refuse)
        for rows in (40, 30, 20):
            written.add(_answer(live, ROWS.slice(0, rows)))
            written.write()
            written._seal()
            written.send()
        assert written.dropped == 0 and len([*tmp_path.glob("*.arrow")]) == 3
        size = sum(path.stat().st_size for path in tmp_path.glob("*.arrow"))
        away.setattr(prediction_log, "SPOOL_BYTES", size - 1)
        written.send()
        assert written.dropped == 40
    written.send()
    assert _logged(live.store).num_rows == 50


def test_rows_are_spooled_where_the_store_is_away(live: Live, log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written = log()
    with monkeypatch.context() as away:
        away.setattr(written, "_store", None)
        written.add(_answer(live))
        written.write()
        written._seal()
    written.send()
    assert (_logged(live.store).num_rows, written.dropped) == (40, 0)


def test_the_log_is_sent_on_after_a_fault(live: Live, log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written, faults = log(), [FileNotFoundError("another process sent this spool"), ZeroDivisionError()]
    send = written.send
    monkeypatch.setattr(written, "send", lambda: _raise(faults.pop()) if faults else send())
    monkeypatch.setattr(prediction_log, "SEND_SECONDS", 0.1)
    monkeypatch.setattr(prediction_log, "WRITE_SECONDS", 0.05)
    written.start()
    written.add(_answer(live))
    until = time.monotonic() + 30
    while not _logged(live.store).num_rows and time.monotonic() < until:
        time.sleep(0.05)
    assert _logged(live.store).num_rows == 40
    written.close()


def _raise(error: Exception) -> None:
    raise error


def test_monitoring_reads_the_log_as_it_is(live: Live, log: Any) -> None:
    written = log()
    written.add(_answer(live))
    written.write()
    written._seal()
    written.send()
    model = live.models[0]
    reference = collect_log(live.store, "live", model, "2013-12-01T00:00:00Z", "2013-12-02T00:00:00Z")
    assert reference.startswith("prediction-logs/delays/sha256-")
    read = read_log(live.store, reference, model, "binary", ["flight_id", "decision_time"])
    mine = [part for part in _answer(live).parts if part.arm == CHAMPION]
    assert read.table["flight_id"].to_pylist() == [ROWS["flight_id"][row].as_py() for row in mine[0].rows]
    assert read.foreign_rows == 0 and "arm" not in read.table.column_names and "distance" in read.table.column_names
    assert collect_log(live.store, "live", model, "2013-12-01T00:00:00Z", "2013-12-02T00:00:00Z") == reference
    with pytest.raises(ConfigurationError, match="--log"):
        collect_log(live.store, "live", model, "2013-12-02T00:00:00Z")


def test_no_artifact_takes_the_folder_of_the_log(store: ArtifactStore) -> None:
    with pytest.raises(ConfigurationError, match="traffic"):
        store.publish("traffic", "delays", {"x": b"x"})


def test_a_killed_predictor_loses_at_most_the_last_second(live: Live, log: Any, tmp_path: Path) -> None:
    port = free_port()
    command = ["predictor", "delays", "--store", live.store.address, "--log", "all", "--spool", str(tmp_path)]
    program = "import sys; from gatehouse.cli.main import main; sys.argv[0] = 'gatehouse'; main()"
    with subprocess.Popen([sys.executable, "-c", program, *command, "--port", str(port)]) as process:
        try:
            address = f"http://127.0.0.1:{port}/v2"
            _await(f"{address}/health/ready", process)
            answered: list[float] = []
            for number in range(60):
                body = {"inputs": tensors(ROWS, keys=True), "id": f"r{number}"}
                requests.post(f"{address}/models/delays/infer", json=body, timeout=60).raise_for_status()
                answered.append(time.monotonic())
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
    log().send()
    ids = {*_logged(live.store)["request_id"].to_pylist()}
    safe = {f"r{number}" for number, at in enumerate(answered) if at < killed - 1}
    assert len(safe) > 10 and safe <= ids
    assert _logged(live.store).num_rows == 40 * len(ids)


def _await(url: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        try:
            if requests.get(url, timeout=5).status_code == 200:
                return
        except requests.ConnectionError:
            time.sleep(0.2)
    raise AssertionError("the predictor does not answer")
