"""Training on a GPU, from the job file to the weights: what holds on CPUs holds there. Skipped where there is none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from gatehouse.launchers.launcher import JOB, RESULT, TrainingFailedError, TrainingJob
from gatehouse.launchers.local import LocalLauncher
from gatehouse.launchers.ranks import FAULT
from gatehouse.launchers.spec import LocalLaunch
from gatehouse.training.spec import CheckpointSpec, NetworkTraining
from tests.training.specs import architecture, network, vary, write_rows

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

TRAIN, VALIDATION, WIDTH, CARDINALITIES = 2000, 500, 4, [5, 5]
USUAL: dict[str, Any] = {
    "device": "cuda",
    "epochs": 2,
    "batch_size": 256,
    "learning_rate": 0.01,
    "dropout": 0.2,
    "checkpoints": CheckpointSpec(every_steps=3),
}
MLP = network(hidden=(16, 8), **USUAL)
FT = network("ft_transformer", token_size=16, heads=2, feed_forward=32, blocks=2, **USUAL)
OUTPUTS = {"multiclass": 3}
SPECS = {
    "mlp": MLP,
    "ft": FT,
    "ft-bf16": vary(FT, precision="bf16"),
    "ft-fp16": vary(FT, precision="fp16"),
    "accumulation": vary(FT, accumulation=2),
    "activation-checkpointing": vary(FT, activation_checkpointing=True),
    "compile": vary(FT, compile=True, precision="bf16"),
    "fsdp": vary(FT, data="fsdp"),
    "multiclass": vary(MLP, loss="multiclass", class_weights="balanced"),
    "mse": vary(FT, loss="mse"),
    "huber": vary(MLP, loss="huber"),
    "pairwise": vary(MLP, loss="pairwise", group="query"),
}


def _job(directory: Path, spec: NetworkTraining) -> Path:
    noise, kind = 0.3 * np.random.default_rng(3).normal(size=TRAIN), spec.loss.kind

    def labels(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        signal = values + noise[: len(values)]
        if kind == "multiclass":
            return np.digitize(signal, (-0.5, 0.5)).astype(np.float32)
        return (signal > 0).astype(np.float32) if kind in ("binary", "pairwise") else signal

    extra = {"groups": np.arange(TRAIN) // 10} if kind == "pairwise" else {}
    write_rows(directory, labels, rows=(TRAIN, VALIDATION), width=WIDTH, cardinalities=(5, 5), **extra)
    settings = spec.model_dump(mode="json", exclude={"operation": {"timeout_minutes"}})
    body = architecture(spec, WIDTH, CARDINALITIES, OUTPUTS.get(kind, 1))
    (directory / JOB).write_text(json.dumps({"spec": settings, "architecture": body, "hidden": []}))
    return directory


def _trained(directory: Path, spec: NetworkTraining) -> dict[str, Any]:
    """The result of a job that is laid out here, unless it is there already."""
    if not (directory / JOB).exists():
        _job(directory, spec)
    processes = spec.parallelism.processes
    job = TrainingJob(directory, "gatehouse.training.program", processes, 5.0)
    LocalLauncher(LocalLaunch()).run(job)
    result: dict[str, Any] = json.loads((directory / RESULT).read_text())
    return result


@pytest.mark.parametrize("spec", [vary(MLP, dropout=0.0), vary(FT, dropout=0.0)], ids=["mlp", "ft"])
def test_a_gpu_learns_what_a_cpu_learns(tmp_path: Path, spec: NetworkTraining) -> None:
    on_gpu, on_cpu = _trained(tmp_path / "gpu", spec), _trained(tmp_path / "cpu", vary(spec, device="cpu"))
    # Not the weights: those on which nothing depends, such as the bias of attention's keys, follow from rounding.
    for row, expected_row in zip(on_gpu["history"], on_cpu["history"], strict=True):
        assert row == pytest.approx(expected_row, abs=1e-4)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_it_learns_and_a_killed_run_ends_in_the_bits_of_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: NetworkTraining
) -> None:
    first = _trained(tmp_path / "first", spec)
    name = next(key for key in first["history"][0] if key.startswith("train_"))
    assert first["history"][-1][name] < first["history"][0][name]
    monkeypatch.setenv(FAULT, "kill:@5")
    with pytest.raises(TrainingFailedError):
        _trained(tmp_path / "killed", spec)
    monkeypatch.delenv(FAULT)
    assert list((tmp_path / "killed/checkpoints").iterdir()), "nothing was kept, so nothing is resumed"
    resumed = _trained(tmp_path / "killed", spec)
    assert resumed["weights_sha256"] == first["weights_sha256"]
    assert resumed["history"] == first["history"]
