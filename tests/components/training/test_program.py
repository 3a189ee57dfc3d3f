"""The training program: batches, schedule, early stopping, divergence, checkpoints; one rank inside this process."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training import program
from gatehouse.components.training.job import prepare_job
from gatehouse.components.training.models import build_model
from gatehouse.components.training.spec import TrainSpec
from tests.components.training.synthetic import lay_out

SPEC = TrainSpec(hidden=(8,), epochs=3, batch_size=128, processes=1, learning_rate=0.01, patience=10)


def _prepare(store: ArtifactStore, spec: TrainSpec, directory: Path) -> dict[str, Any]:
    directory.mkdir()
    return prepare_job(store, *lay_out(store), spec, directory).architecture


@given(
    rows=st.integers(1, 300),
    batch_size=st.integers(1, 64),
    world=st.integers(1, 5),
    epoch=st.integers(0, 3),
)
def test_every_row_counts_once_on_some_rank(rows: int, batch_size: int, world: int, epoch: int) -> None:
    ranks = [program.rank_batches(rows, batch_size, 7, epoch, rank, world) for rank in range(world)]
    assert {len(batches) for batches in ranks} == {-(-rows // batch_size)}
    counted: list[int] = []
    for step in zip(*ranks, strict=True):
        assert len({len(chosen) for chosen, _ in step}) == 1, "ranks disagree about the shape of a step"
        weighted = [row for chosen, weights in step for row in chosen[weights > 0].tolist()]
        assert len(weighted) <= batch_size
        counted += weighted
    assert sorted(counted) == list(range(rows))


def test_the_order_of_rows_follows_from_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int, world: int = 1) -> list[int]:
        return [row for chosen, _ in program.rank_batches(64, 16, seed, epoch, 0, world) for row in chosen.tolist()]

    torch.manual_seed(1)
    first = order(7, 0)
    torch.manual_seed(2)
    assert order(7, 0) == first
    assert order(7, 1) != first
    assert order(8, 0) != first


def test_the_learning_rate_rises_to_its_peak_and_falls_to_a_hundredth() -> None:
    rates = [program.learning_rate(step, 100, TrainSpec(warmup=0.1, learning_rate=0.5)) for step in range(100)]
    assert rates[:10] == sorted(rates[:10])
    assert max(rates) == rates[9] == 0.5
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(0.005, rel=0.05)


def test_weights_are_those_of_the_best_epoch_and_patience_ends_training(
    store: ArtifactStore, tmp_path: Path, alone: None
) -> None:
    spec = SPEC.model_copy(update={"epochs": 40, "learning_rate": 0.05, "hidden": (64, 64), "patience": 2})
    architecture = _prepare(store, spec, tmp_path / "job")
    result = program.train(spec, architecture, tmp_path / "job")
    losses = [row["log_loss"] for row in result["history"]]
    assert len(losses) < spec.epochs
    assert result["best_epoch"] == int(np.argmin(losses)) == len(losses) - 1 - spec.patience
    model = build_model(architecture)
    model.load_state_dict(load_file(tmp_path / "job" / "weights.safetensors"))
    validation = program._load(tmp_path / "job" / "validation")
    assert program._validate(model, validation, 0)["log_loss"] == pytest.approx(min(losses), abs=1e-6)


def test_a_run_that_stops_after_any_epoch_resumes_to_the_same_bits(
    store: ArtifactStore, tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    architecture = _prepare(store, SPEC, tmp_path / "whole")
    whole = program.train(SPEC, architecture, tmp_path / "whole")
    for epoch in range(SPEC.epochs - 1):
        directory = tmp_path / f"stopped-{epoch}"
        _prepare(store, SPEC, directory)
        monkeypatch.setenv(program.FAULT, f"raise:{epoch}")
        with pytest.raises(ValueError, match="injected fault"):
            program.train(SPEC, architecture, directory)
        monkeypatch.delenv(program.FAULT)
        torch.manual_seed(99)
        assert program.train(SPEC, architecture, directory) == whole


def test_a_checkpoint_that_was_being_written_is_not_read(
    store: ArtifactStore, tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    architecture = _prepare(store, SPEC, tmp_path / "job")
    monkeypatch.setenv(program.FAULT, "raise:0")
    with pytest.raises(ValueError, match="injected fault"):
        program.train(SPEC, architecture, tmp_path / "job")
    monkeypatch.delenv(program.FAULT)
    (tmp_path / "job" / "epoch-1.tmp").write_bytes(b"torn")
    (tmp_path / "job" / "epoch-1.safetensors").write_bytes(b"torn as well: the mark does not name it")
    result = program.train(SPEC, architecture, tmp_path / "job")
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
    with pytest.raises(program.DivergedError, match=named):
        program.train(SPEC, architecture, tmp_path / "job")
    assert not (tmp_path / "job" / "weights.safetensors").exists()


def test_the_history_is_plain_json(store: ArtifactStore, tmp_path: Path, alone: None) -> None:
    architecture = _prepare(store, SPEC, tmp_path / "job")
    result = program.train(SPEC, architecture, tmp_path / "job")
    assert json.loads(json.dumps(result)) == result
    assert set(result["history"][0]) == {"epoch", "train_log_loss", "log_loss", "roc_auc"}
