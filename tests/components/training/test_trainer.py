"""The trainer: schedule, early stopping, divergence, checkpoints; one rank inside this process."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import binary_cross_entropy_with_logits

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.boundary import FAULT
from gatehouse.components.training.data import Rows
from gatehouse.components.training.divergence import DivergedError
from gatehouse.components.training.job import prepare_job
from gatehouse.components.training.models import build_model
from gatehouse.components.training.optimizer import learning_rate
from gatehouse.components.training.spec import TrainSpec
from gatehouse.components.training.trainer import train
from tests.components.training.synthetic import lay_out

SPEC = TrainSpec(hidden=(8,), epochs=3, batch_size=128, processes=1, learning_rate=0.01, patience=10)


def _prepare(store: ArtifactStore, spec: TrainSpec, directory: Path) -> dict[str, Any]:
    directory.mkdir()
    return prepare_job(store, *lay_out(store), spec, directory).architecture


def test_the_learning_rate_rises_to_its_peak_and_falls_to_a_hundredth() -> None:
    rates = [learning_rate(step, 100, TrainSpec(warmup=0.1, learning_rate=0.5)) for step in range(100)]
    assert rates[:10] == sorted(rates[:10])
    assert max(rates) == rates[9] == 0.5
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(0.005, rel=0.05)


def test_weights_are_those_of_the_best_epoch_and_patience_ends_training(
    store: ArtifactStore, tmp_path: Path, alone: None
) -> None:
    spec = SPEC.model_copy(update={"epochs": 40, "learning_rate": 0.05, "hidden": (64, 64), "patience": 2})
    architecture = _prepare(store, spec, tmp_path / "job")
    result = train(spec, architecture, tmp_path / "job")
    losses = [row["log_loss"] for row in result["history"]]
    assert len(losses) < spec.epochs
    assert result["best_epoch"] == int(np.argmin(losses)) == len(losses) - 1 - spec.patience
    model = build_model(architecture)
    model.load_state_dict(load_file(tmp_path / "job" / "weights.safetensors"))
    model.eval()
    rows = Rows.load(tmp_path / "job" / "validation")
    loss = binary_cross_entropy_with_logits(model(rows.numbers, rows.ids), rows.labels)
    assert float(loss) == pytest.approx(min(losses), abs=1e-6)


def test_a_run_that_stops_after_any_epoch_resumes_to_the_same_bits(
    store: ArtifactStore, tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    architecture = _prepare(store, SPEC, tmp_path / "whole")
    whole = train(SPEC, architecture, tmp_path / "whole")
    for epoch in range(SPEC.epochs - 1):
        directory = tmp_path / f"stopped-{epoch}"
        _prepare(store, SPEC, directory)
        monkeypatch.setenv(FAULT, f"raise:{epoch}")
        with pytest.raises(ValueError, match="injected fault"):
            train(SPEC, architecture, directory)
        monkeypatch.delenv(FAULT)
        torch.manual_seed(99)
        assert train(SPEC, architecture, directory) == whole


def test_a_checkpoint_that_was_being_written_is_not_read(
    store: ArtifactStore, tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    architecture = _prepare(store, SPEC, tmp_path / "job")
    monkeypatch.setenv(FAULT, "raise:0")
    with pytest.raises(ValueError, match="injected fault"):
        train(SPEC, architecture, tmp_path / "job")
    monkeypatch.delenv(FAULT)
    (tmp_path / "job" / "epoch-1.tmp").write_bytes(b"torn")
    (tmp_path / "job" / "epoch-1.safetensors").write_bytes(b"torn as well: the mark does not name it")
    result = train(SPEC, architecture, tmp_path / "job")
    assert len(result["history"]) == SPEC.epochs


@pytest.mark.parametrize(
    ("part", "named"), [("train", r"gradient is not finite in epoch 0, step \d"), ("validation", "after epoch 0")]
)
def test_a_loss_that_is_no_number_halts_and_names_the_step(
    store: ArtifactStore, tmp_path: Path, alone: None, part: str, named: str
) -> None:
    architecture = _prepare(store, SPEC, tmp_path / "job")
    path = tmp_path / "job" / part / "numbers.npy"
    numbers = np.load(path)
    numbers[5, 0] = np.nan
    np.save(path, numbers)
    with pytest.raises(DivergedError, match=named):
        train(SPEC, architecture, tmp_path / "job")
    assert not (tmp_path / "job" / "weights.safetensors").exists()


def test_the_history_is_plain_json(store: ArtifactStore, tmp_path: Path, alone: None) -> None:
    architecture = _prepare(store, SPEC, tmp_path / "job")
    result = train(SPEC, architecture, tmp_path / "job")
    assert json.loads(json.dumps(result)) == result
    assert set(result["history"][0]) == {"epoch", "train_log_loss", "log_loss", "roc_auc"}
