"""Stages in pieces: the references of one piece, whatever runs the pieces, and however they are cut."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.data.statistics import partial_pieces
from gatehouse.data.validation import rule_pieces
from gatehouse.data.validation.contract import CONTRACT_FILE
from gatehouse.data.validation.stage import ValidateRequest, validate
from gatehouse.evaluation import draws, part_scores
from gatehouse.evaluation.result import ScoringError
from gatehouse.evaluation.spec import EvaluationSpec
from gatehouse.evaluation.stage import EvaluateRequest, evaluate
from gatehouse.metrics import performance
from gatehouse.monitoring import scoring_stage
from gatehouse.monitoring.scoring_stage import ScoreRequest, score
from gatehouse.runtime.process import descendants
from gatehouse.runtime.variables import ENGINE
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import publish
from tests.evaluation.candidates import publish_model
from tests.evaluation.conftest import LENIENT
from tests.pieces.ray_cluster import ray_cluster
from tests.pieces.test_pieces import command
from tests.training.synthetic import publish_split, publish_training_set, table

pytestmark = pytest.mark.timeout(900)
ENGINES: list[tuple[int, dict[str, Any]]] = [
    (100, {"workers": 1}),
    (66, {"workers": 2, "memory": "300Mi"}),
    (100, {"workers": 2, "memory": "2G"}),
    (66, {"kind": "ray", "workers": 1}),
    (100, {"kind": "ray", "workers": 2}),
]
"""Thousands of rows of a piece, and an engine."""
SECRET = "somebody"
CONTRACT = {
    "version": 1,
    "tables": {
        "trade": {
            "columns": {
                "number": {"type": "int64", "unique": True},
                "amount": {"type": "double", "min": -3, "psi": {"value": 0.1}},
                "text": {"type": "string", "pattern": "[a-z][0-9]+", "min_length": 3},
                "person": {"type": "string", "sensitive": True, "allowed": [f"{SECRET} {n}" for n in range(9)]},
            },
            "expressions": [
                {"name": "below_all", "sql": "amount < (SELECT max(amount) FROM trade)"},
                {"name": "a_number", "sql": "CAST(substr(text, 2) AS INTEGER) >= 0 OR coded = 'x'"},
                {"name": "ordered", "sql": "number > -amount", "tolerance": 0.1},
            ],
        },
        "few": {"columns": {"a": {"type": "int64", "max": 2}}},
    },
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with ray_cluster() as address:
        yield address


class Stages:
    """A store with a snapshot that breaks its contract, a baseline, a model, and rows to score."""

    def __init__(self, folder: Path) -> None:
        self.store = ArtifactStore.open(folder)
        self.contract = str(self.store.publish("config", "contract", {CONTRACT_FILE: json.dumps(CONTRACT)}))
        self.baseline = ""
        earlier = self._snapshot(20_000, 1)
        self.snapshot = self._snapshot(132_000, 2)  # A file has too many values to count.
        self.baseline = self.validated(earlier)
        self.rows = publish_training_set(self.store, table(900))
        parts = {"train": range(200), "validation": range(200, 300), "test": range(301, 900, 2)}
        self.split = publish_split(self.store, self.rows, **parts)
        self.model, self.champion = (
            publish_model(self.store, self.rows, self.split, steps=2, seed=seed) for seed in (0, 1)
        )

    def _snapshot(self, rows: int, seed: int) -> str:
        draw = np.random.default_rng(seed)
        amounts = draw.normal(size=rows)
        numbers = np.arange(rows)
        numbers[-1] = 7
        texts = [f"t{number}" for number in range(rows)]
        texts[rows // 2] = "tx"
        people = pa.array([f"{SECRET} {number % 10}" for number in range(rows)])
        columns = {"number": numbers, "amount": pa.array(amounts, mask=amounts > 2), "text": texts, "person": people}
        columns |= {"coded": pa.array(["y", "z"] * (rows // 2)).dictionary_encode(), "even": numbers % 2 == 0}
        tables = {"trade": pa.table(columns), "few": pa.table({"a": [1, 2, 3]})}
        return publish(self.store, tables, rows_per_file=66_000, sensitive=("person",))

    def validated(self, snapshot: str) -> str:
        request = ValidateRequest(snapshot=snapshot, contract=self.contract, baseline=self.baseline, force="again")
        return validate.function(request, self.store).validation

    def scored(self) -> str:
        return score.function(ScoreRequest(model=self.model, rows=self.rows, version=3), self.store).predictions

    def evaluated(self, model: str = "", champion: str = "") -> str:
        spec = EvaluationSpec(slices=("carrier",), protected=("carrier",), bootstrap_samples=20)
        models = {"model": model or self.model, "champion": champion or self.champion}
        request = EvaluateRequest(**models, split=self.split, spec=spec, policy=LENIENT)
        return evaluate.function(request, self.store).evaluation

    def records(self) -> dict[str, str]:
        """What is remembered of pieces, and when it was written."""
        folder = self.store.local_folder / "memo"
        records = [path for name in ("measure_files", "judge_rows") for path in (folder / name).rglob("*.json")]
        return {str(path): str(path.stat().st_mtime_ns) for path in records}

    def forget(self) -> None:
        shutil.rmtree(self.store.local_folder / "memo")


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    return Stages(tmp_path_factory.mktemp("stages") / "store")


@pytest.fixture(scope="module")
def whole(stages: Stages) -> Iterator[tuple[str, str, str]]:
    """Validation, predictions and evaluation in one piece; but predictions have a fixed size of blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(performance, "_SINGLE", 10)
        patch.setattr(performance, "_BATCHES", 2)
        patch.setattr(scoring_stage, "ROWS", 50)
        patch.setenv(ENGINE, '{"workers": 1}')
        whole = stages.validated(stages.snapshot), stages.scored(), stages.evaluated()
        patch.delenv(ENGINE)
        yield whole


@pytest.fixture(params=ENGINES, ids=lambda value: "-".join(map(str, (value[0], *value[1].values()))))
def thousands(request: pytest.FixtureRequest, stages: Stages, monkeypatch: pytest.MonkeyPatch) -> int:
    """The thousands of rows of a piece; the pieces run on an engine, and nothing is remembered."""
    rows, engine = request.param
    address = {"address": request.getfixturevalue("cluster")} if "kind" in engine else {}
    monkeypatch.setenv(ENGINE, json.dumps(engine | address))
    stages.forget()
    return int(rows)


def test_no_engine_changes_a_validation(
    stages: Stages, whole: tuple[str, str, str], thousands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (partial_pieces, rule_pieces):
        monkeypatch.setattr(module, "ROWS", thousands * 1000)
    assert stages.validated(stages.snapshot) == whole[0]
    pieces = {100: 2, 66: 3}[thousands]
    for name in ("measure_files", "judge_rows"):
        assert len(list(stages.store.objects.list(f"memo/{name}"))) == pieces
    kept = [entry for each in stages.store.references("pieces") for entry in stages.store.manifest(each).files]
    assert not any(SECRET.encode() in stages.store.objects.get_bytes(entry.blob) for entry in kept)


def test_a_validation_in_pieces_finds_what_is_wrong(stages: Stages, whole: tuple[str, str, str]) -> None:
    found = {anomaly["rule"]: anomaly["rows"] for anomaly in stages.store.read_json(whole[0], "anomalies.json")}
    assert found["expression below_all"] == 1 and found["unique"] == 2 and found["allowed"] == 13_200
    assert found["pattern"] == 1 and found["expression a_number"] is None and found["max"] == 1


@pytest.mark.parametrize("stage", ["validation", "evaluation"])
def test_workers_are_killed_and_the_result_stays(
    stages: Stages, whole: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.setenv(ENGINE, '{"workers": 2}')
    monkeypatch.setattr(part_scores, "ROWS", 100)
    monkeypatch.setattr(draws, "ROWS_DRAWN", 1_000)
    for module in (partial_pieces, rule_pieces):
        monkeypatch.setattr(module, "ROWS", 66_000)
    stages.forget()
    ended, killed = threading.Event(), set[int]()

    def kill() -> None:
        """Kill a worker every now and then, but no piece five times."""
        while len(killed) < 4 and not ended.wait(0.5):
            if workers := [pid for pid in descendants(os.getpid()) if b"pieces.worker" in command(pid)]:
                killed.add(workers[0])
                os.kill(workers[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        if stage == "validation":
            assert stages.validated(stages.snapshot) == whole[0]
        else:
            assert stages.evaluated() == whole[2]
    finally:
        ended.set()
        thread.join()
    assert killed


_DRIVER = """
import sys
from gatehouse.data.statistics import partial_pieces
from gatehouse.data.validation import rule_pieces
from gatehouse.data.validation.stage import ValidateRequest, validate
from gatehouse.store.store import ArtifactStore
partial_pieces.ROWS = rule_pieces.ROWS = 66_000
request = ValidateRequest.model_validate_json(sys.argv[2])
print(validate.function(request, ArtifactStore.open(sys.argv[1])).validation)
"""


def test_a_killed_validation_goes_on_with_the_pieces_that_were_not_done(
    stages: Stages, whole: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENGINE, '{"workers": 1}')
    stages.forget()
    request = ValidateRequest(snapshot=stages.snapshot, contract=stages.contract, baseline=stages.baseline)
    command = [sys.executable, "-c", _DRIVER, stages.store.address, request.model_dump_json()]
    done: dict[str, str] = {}
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
            while driver.poll() is None and len(records := stages.records()) <= len(done):
                time.sleep(0.01)
            driver.kill()
        done |= records
    last = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert last.splitlines()[-1] == whole[0]
    assert done and done.items() <= stages.records().items()


def test_no_engine_changes_predictions(
    stages: Stages, whole: tuple[str, str, str], thousands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring_stage, "ROWS", 50)
    monkeypatch.setattr(scoring_stage, "BLOCKS", thousands // 25)
    assert stages.scored() == whole[1]
    assert len(list(stages.store.objects.list("memo/score_range"))) == {100: 5, 66: 9}[thousands]


def test_no_engine_changes_an_evaluation(
    stages: Stages, whole: tuple[str, str, str], thousands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_scores, "ROWS", thousands)
    monkeypatch.setattr(draws, "ROWS_DRAWN", thousands * 30)
    assert stages.evaluated() == whole[2]
    ranges = {100: 2, 66: 4}[thousands]
    # Metrics of four roles, guessing, and slices and fairness of two.
    assert len(list(stages.store.objects.list("memo/measure_range"))) == ranges * 9
    scored = {100: 3, 66: 5}[thousands] * 4
    assert len(list(stages.store.objects.list("memo/score_rows"))) == scored
    stages.evaluated(stages.champion, stages.model)
    assert len(list(stages.store.objects.list("memo/score_rows"))) == scored, "a model in another role is not scored"


def test_the_error_of_a_piece_names_the_model_and_its_role(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    other = publish_model(stages.store, stages.rows, stages.split, steps=1, loss="mse")
    for rows in (1000, 100):
        monkeypatch.setattr(part_scores, "ROWS", rows)
        with pytest.raises(ScoringError, match=rf"^The champion {other} .*regression"):
            stages.evaluated(champion=other)
