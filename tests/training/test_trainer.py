"""The trainer: schedule, early stopping, divergence, checkpoints; one rank inside this process."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gatehouse.errors import ConfigurationError
from gatehouse.launchers.ranks import FAULT
from gatehouse.store.store import ArtifactStore
from gatehouse.training.batches import Rows
from gatehouse.training.compute import DivergedError, prepare_process
from gatehouse.training.job import prepare_job
from gatehouse.training.model_spec import BuilderSpec
from gatehouse.training.models import BuilderError, build_model
from gatehouse.training.spec import ComputeSpec, NetworkTraining, OptimizerSpec
from gatehouse.training.trainer import Trainer
from gatehouse.training.validation import best_epoch, is_over
from tests.training.conftest import Giver, Keeper
from tests.training.specs import architecture, link_rows, network, vary, write_rows
from tests.training.synthetic import fitted_data

SPEC = network(hidden=(8,), epochs=3, batch_size=128, processes=1, learning_rate=0.01, patience=10)


def _prepare(store: ArtifactStore, spec: NetworkTraining, directory: Path) -> dict[str, Any]:
    directory.mkdir()
    return prepare_job(store, *fitted_data(store), spec, directory).architecture


def _train(spec: NetworkTraining, architecture: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Train without a checkpoint, which is written by a process of its own."""
    trainer = Trainer(spec, architecture, directory)
    trainer.checkpointer = Keeper([], step=-1)  # type: ignore[assignment]
    result = trainer.train()
    assert result is not None
    return result


def test_settings_that_change_hold_from_their_epoch_on(store: ArtifactStore, tmp_path: Path, alone: None) -> None:
    architecture = _prepare(store, SPEC, tmp_path / "job")
    constant = _train(SPEC, architecture, tmp_path / "job")["history"]
    for change in ({"learning_rate": 0.02}, {"weight_decay": 0.9}, {"clip_norm": 0.01}):
        spec = vary(SPEC, changes=[{"epoch": 1, **change}])
        changed = _train(spec, architecture, tmp_path / "job")["history"]
        assert [before == after for before, after in zip(constant, changed, strict=True)] == [True, False, False], (
            change
        )
    settings = OptimizerSpec(changes=({"epoch": 2, "clip_norm": 3.0}, {"epoch": 4, "learning_rate": 0.5}))
    assert [(settings.at(epoch).clip_norm, settings.at(epoch).learning_rate) for epoch in (1, 2, 3, 4, 5)] == [
        (1.0, 2e-3), (3.0, 2e-3), (3.0, 2e-3), (3.0, 0.5), (3.0, 0.5)
    ]  # fmt: skip


def test_weights_are_those_of_the_best_epoch_and_patience_ends_training(
    store: ArtifactStore, tmp_path: Path, alone: None
) -> None:
    spec = vary(SPEC, epochs=40, learning_rate=0.05, hidden=(64, 64), patience=2)
    architecture = _prepare(store, spec, tmp_path / "job")
    result = _train(spec, architecture, tmp_path / "job")
    losses = [row["log_loss"] for row in result["history"]]
    assert len(losses) < spec.stopping.epochs
    assert result["best_epoch"] == int(np.argmin(losses)) == len(losses) - 1 - spec.stopping.patience
    model = build_model(architecture)
    model.load_state_dict(load_file(tmp_path / "job" / "weights"))
    model.eval()
    rows = Rows.load(tmp_path / "job" / "validation")
    with torch.no_grad():
        loss = binary_cross_entropy_with_logits(model(rows.numbers, rows.ids), rows.labels)
    assert float(loss) == pytest.approx(min(losses), abs=1e-6)


def test_a_refit_ends_after_its_epochs_with_the_last_weights_on_the_schedule_of_all(
    store: ArtifactStore, tmp_path: Path, alone: None
) -> None:
    spec = vary(SPEC, epochs=9, refit=2, patience=1, learning_rate=0.05)
    architecture = _prepare(store, spec, tmp_path / "job")
    result = _train(spec, architecture, tmp_path / "job")
    assert result["best_epoch"] == 1 and [set(row) for row in result["history"]] == [{"epoch", "train_log_loss"}] * 2
    longer = _train(vary(spec, refit=3), architecture, tmp_path / "job")
    assert longer["history"][:2] == result["history"] and longer["weights_sha256"] != result["weights_sha256"]


def test_a_run_that_stops_after_any_epoch_resumes_to_the_same_bits(
    tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "whole", _binary)
    whole = Trainer(SPEC, _architecture(SPEC), tmp_path / "whole").train()
    assert whole is not None
    assert json.loads(json.dumps(whole)) == whole
    assert set(whole["history"][0]) == {"epoch", "train_log_loss", "log_loss", "roc_auc"}
    for epoch in range(SPEC.stopping.epochs - 1):
        directory = link_rows(tmp_path / "whole", tmp_path / f"stopped-{epoch}")
        monkeypatch.setenv(FAULT, f"raise:{epoch}")
        with pytest.raises(ValueError, match="injected fault"):
            Trainer(SPEC, _architecture(SPEC), directory).train()
        monkeypatch.delenv(FAULT)
        torch.manual_seed(99)
        assert Trainer(SPEC, _architecture(SPEC), directory).train() == whole


@pytest.mark.parametrize(
    ("part", "named"), [("train", r"gradient is not finite in epoch 0, step \d"), ("validation", "after epoch 0")]
)
def test_a_loss_that_is_no_number_halts_and_names_the_step_and_what_is_saved(
    tmp_path: Path, alone: None, part: str, named: str
) -> None:
    write_rows(tmp_path, _binary)
    path = tmp_path / part / "numbers.npy"
    numbers = np.load(path)
    numbers[5, 0] = np.nan
    np.save(path, numbers)
    with pytest.raises(DivergedError, match=named + r".*No checkpoint was taken before\."):
        Trainer(SPEC, _architecture(SPEC), tmp_path).train()
    assert not (tmp_path / "weights").exists()


def _binary(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return (values > 0.2).astype(np.float32)


def _architecture(spec: NetworkTraining, outputs: int = 1) -> dict[str, Any]:
    return architecture(spec, 2, [3], outputs)


@pytest.mark.parametrize(
    "base", [network(hidden=(16,)), network("ft_transformer", token_size=8, feed_forward=8, blocks=1)]
)
@pytest.mark.parametrize(
    ("task", "metric", "better"),
    [
        ({"loss": "multiclass"}, "accuracy", 0.8),
        ({"loss": "mse"}, "r2", 0.8),
        ({"loss": "huber"}, "r2", 0.8),
        ({"loss": "pairwise", "group": "day"}, "ndcg", 0.9),
    ],
)
def test_every_task_is_learned(
    tmp_path: Path, alone: None, base: NetworkTraining, task: dict[str, Any], metric: str, better: float
) -> None:
    classes = task["loss"] in ("multiclass", "pairwise")
    groups = {"groups": np.arange(400) // 5} if task["loss"] == "pairwise" else {}
    write_rows(
        tmp_path, lambda values: np.digitize(values, [-0.5, 0.5]).astype(np.float32) if classes else values, **groups
    )
    spec = vary(
        base, dropout=0.0, epochs=8, batch_size=40, learning_rate=0.02, warmup=0.0, metric=metric, patience=8, **task
    )
    result = _train(spec, _architecture(spec, 3 if task["loss"] == "multiclass" else 1), tmp_path)
    assert result["history"][result["best_epoch"]][metric] > better
    assert result["best_epoch"] == int(np.argmax([row[metric] for row in result["history"]]))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_fewer_bits_learn_about_the_same(tmp_path: Path, alone: None, precision: str) -> None:
    write_rows(tmp_path, _binary)
    results = {}
    for kind in ("fp32", precision):
        spec = vary(SPEC, precision=kind, dropout=0.0, batch_size=40)
        results[kind] = _train(spec, _architecture(spec), link_rows(tmp_path, tmp_path / kind))["history"][-1]
    assert results[precision] == pytest.approx(results["fp32"], rel=0.03)
    assert results[precision] != results["fp32"], "the precision changed nothing"


def test_a_gradient_too_large_for_fp16_is_made_again_with_half_the_scale(tmp_path: Path, alone: None) -> None:
    write_rows(tmp_path, _binary)
    spec = vary(SPEC, precision="fp16", epochs=1, dropout=0.0)
    results, scale = [], 2.0**30
    for _ in range(2):
        trainer = Trainer(spec, _architecture(spec), tmp_path)
        trainer.checkpointer = Keeper([], step=-1)  # type: ignore[assignment]
        trainer.state.scaler.scale = scale
        results.append(trainer.train())
        assert 2.0 <= trainer.state.scaler.scale < 2.0**30
        scale = trainer.state.scaler.scale
    assert results[0] == results[1], "a batch whose gradient was too large at first was left out, or counted twice"


@pytest.mark.parametrize("stop", [1, 5, 8, 11])
def test_a_state_taken_at_any_step_goes_on_to_the_same_bits(tmp_path: Path, alone: None, stop: int) -> None:
    write_rows(tmp_path / "whole", _binary)
    spec = vary(SPEC, dropout=0.3, precision="fp16", epochs=3, batch_size=100)
    taken: list[dict[str, Any]] = []
    results = []
    for folder, keeper in (("whole", Keeper(taken, stop)), ("resumed", Giver(taken))):
        trainer = Trainer(spec, _architecture(spec), link_rows(tmp_path / "whole", tmp_path / folder))
        trainer.checkpointer = keeper  # type: ignore[assignment]
        results.append(trainer.train())
    assert results[1] == results[0]


class Exploding(nn.Module):
    """For tests: a loss, or only a gradient, that is not finite; or logits of a wrong shape."""

    def __init__(self, width: int, cardinalities: list[int], outputs: int, spec: BuilderSpec) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 4), nn.Linear(4, outputs)
        self.how = spec.options["how"]

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        hidden = self.first(numbers)
        if self.how == "gradient":
            hidden = (hidden * 0).abs().sqrt() + hidden
        elif self.how == "loss":
            return hidden.sum(1).float() * 1e30
        logits: Tensor = self.second(hidden)
        return logits.float() if self.how == "column" else logits.squeeze(1)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize(("how", "place"), [("loss", "the loss"), ("gradient", "the gradient of first.bias")])
def test_a_halt_names_where_it_began(tmp_path: Path, alone: None, how: str, place: str, precision: str) -> None:
    write_rows(tmp_path, _binary)
    builder = f"{__name__}:Exploding"
    spec = network(builder, options={"how": how}, batch_size=100, precision=precision, loss="mse")
    with pytest.raises(DivergedError, match=rf"epoch 0, step \d: it began in {place}"):
        _train(spec, _architecture(spec), tmp_path)


def test_a_builder_of_your_own_is_trained_and_one_that_cannot_be_used_is_named(tmp_path: Path, alone: None) -> None:
    write_rows(tmp_path, _binary)
    with pytest.raises(BuilderError, match=r"of shape \(2, 1\) for two rows; expected .* of shape \(2,\)"):
        Trainer(column := network(f"{__name__}:Exploding", options={"how": "column"}), _architecture(column), tmp_path)
    spec = network(f"{__name__}:Exploding", options={"how": "not"}, epochs=2)
    assert len(_train(spec, _architecture(spec), tmp_path)["history"]) == 2
    with pytest.raises(BuilderError, match=r"nowhere\.at:all cannot be imported"):
        build_model(_architecture(vary(spec, architecture="nowhere.at:all")))


def test_a_rank_without_a_gpu_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(ConfigurationError, match="expected a GPU for each process of this machine, found 0"):
        prepare_process(ComputeSpec(device="cuda"), 1)


def test_patience_counts_only_gains_that_are_large_enough() -> None:
    history = [{"log_loss": loss} for loss in (0.70, 0.60, 0.599, 0.598, 0.597)]
    assert best_epoch(history, network(least_gain=0.01)) == 1
    assert is_over(history, network(least_gain=0.01, patience=3))
    assert not is_over(history, network(patience=3))
