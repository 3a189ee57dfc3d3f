"""Real traffic through a rollout: equals rise to champion, a worse one goes back, and kills lose nothing."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.evaluation.stage import EvaluateRequest, evaluate
from gatehouse.monitoring.live_log import live_files, live_tables
from gatehouse.registry.ledger import CHAMPION, Ledger
from gatehouse.registry.stage import ResolveRequest, resolve
from gatehouse.reports.contents import rendered
from gatehouse.store.store import ArtifactStore
from tests.evaluation.candidates import publish_model
from tests.registry.gate import NAME, Gate, make_gate
from tests.server.replay import replay
from tests.training.synthetic import publish_split, publish_training_set, table

POLICY = GatePolicy.model_validate(
    {
        "better_than_guessing": None,
        "must_beat_baseline": [],
        "champion": {"metric": "brier", "tolerance": 1.0},
        "live_required": True,
        "live": {"metrics": {"brier": 0.05}, "outcomes": 300},
        "rollout": {"shares": [0.1, 0.5], "min_hours": 0, "outcomes": 100},
    }
)
ROWS = table(9000, seed=11)


def enter(gate: Gate, data: tuple[str, str], steps: int, seed: int) -> str:
    """Train a model and take it through the gate; the decision."""
    model = publish_model(gate.store, *data, steps=steps, seed=seed)
    gate.say_how_it_was_made(model)
    beside = resolve(ResolveRequest(model_name=NAME, candidate=model, policy=POLICY), gate.store)
    asked = {"model": model, "champion": beside.champion, "floor": beside.floor, "split": data[1]}
    request = EvaluateRequest.model_validate(asked | {"spec": EvaluationSpec(), "policy": POLICY})
    return gate.register(model, evaluate(request, gate.store).evaluation).decision


@pytest.mark.timeout(600)
def test_equals_rise_to_champion_and_a_worse_one_goes_back(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)
    gate = make_gate(store)
    snapshot = str(next(iter(store.references("snapshots"))))
    training_set = publish_training_set(store, table(), task="binary", snapshot=snapshot)
    data = training_set, publish_split(store, training_set)
    assert enter(gate, data, 150, 0) == "approved" and enter(gate, data, 150, 1) == "awaiting promotion"
    outcomes = tmp_path / "outcomes.parquet"
    steps = replay(store, NAME, POLICY, ROWS, ["flight_id"], "label", 3000, outcomes)
    assert [(step.decision, step.share) for step in steps] == [("began", 0.1), ("stepped", 0.5), ("promoted", 1.0)]
    logged = [table.num_rows for table in live_tables(store, live_files(store, NAME, None))]
    assert sum(logged) == 6000, "the killed predictors lost nothing"
    assert enter(gate, data, 2, 3) == "awaiting promotion", "the gate was too lenient"
    steps = replay(store, NAME, POLICY, ROWS, ["flight_id"], "label", 4500, outcomes)
    assert steps[-1].decision == "taken back" and "brier: worse by" in steps[-1].reasons[1]
    state = Ledger(store, NAME).state()
    assert (state.champion, state.canary, state.versions[2].withdrawn) == (2, 0, True)
    page = rendered(store, state.live[-1][1].evaluation).read_text()
    assert "Offline and live" in page and f"{NAME}:2" in page and "of 1 candidate" in page


@pytest.mark.timeout(300)
def test_a_killed_command_and_its_repeats_take_one_step(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)
    gate = make_gate(store)
    gate.run(gate.model(1))
    gate.run(gate.model(2), policy=POLICY)
    (tmp_path / "policy.yaml").write_text("live: {metrics: {brier: 0.05}}\n")
    command = [sys.executable, "-m", "gatehouse.cli.main", "models", "rollout", NAME, "--store", store.address]
    for seconds in (0.5, 1.0, 1.5, 30.0, 30.0):
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
        until = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert gate.kinds.count("promoted canary") == 1 and gate.state.holder(CHAMPION) == 1
