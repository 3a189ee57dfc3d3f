"""Every parallelism, alone, in pairs and all three at once, learns what one process learns; and what cannot be cut."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from gatehouse.tracking.metrics_file import read_points
from gatehouse.training.parallel.mesh import Layout
from gatehouse.training.parallel.parallelize import Replicated, replicate
from tests.training.specs import architecture, network, vary, write_rows

# 129 rows in batches of 64: the last has one, so all but one process have nothing but padding then.
TRAIN, VALIDATION = 129, 61
USUAL: dict[str, Any] = {
    "dropout": 0.0,
    "epochs": 1,
    "batch_size": 64,
    "accumulation": 2,
    "learning_rate": 0.01,
    "clip_norm": 0.01,
}
FT = network("ft_transformer", token_size=8, heads=4, feed_forward=16, blocks=2, **USUAL)
MLP = network(hidden=(8, 12, 8), **USUAL)
TENSOR: dict[str, Any] = {"tensor": 2}
PIPELINE: dict[str, Any] = {"pipeline": 2}
FSDP: dict[str, Any] = {"data": "fsdp"}
CASES: dict[str, dict[str, Any]] = {
    "ddp": {"processes": 2},
    "ddp-4": {"processes": 4},
    "fsdp": {"processes": 2} | FSDP,
    "tensor": {"processes": 2} | TENSOR,
    "pipeline": {"processes": 2} | PIPELINE,
    "gpipe": {"processes": 2, "pipeline_schedule": "gpipe"} | PIPELINE,
    "ddp-tensor": {"processes": 4} | TENSOR,
    "ddp-pipeline": {"processes": 4} | PIPELINE,
    "fsdp-tensor": {"processes": 4} | FSDP | TENSOR,
    "fsdp-pipeline": {"processes": 4} | FSDP | PIPELINE,
    "tensor-pipeline": {"processes": 4} | TENSOR | PIPELINE,
    "fsdp-tensor-pipeline": {"processes": 8} | FSDP | TENSOR | PIPELINE,
    "activation-checkpointing-fsdp": {"processes": 2, "activation_checkpointing": True} | FSDP,
    "no-accumulation": {"processes": 1, "accumulation": 1},
    "activation-checkpointing": {"processes": 1, "activation_checkpointing": True},
}
MLP_CASES: dict[str, dict[str, Any]] = {
    "mlp-fsdp-tensor": {"processes": 4} | FSDP | TENSOR,
    "mlp-pipeline": {"processes": 2} | PIPELINE,
}
# Masks of dropout are those of one process under tensor parallelism alone: rows and stages draw by their place.
DROPOUT: dict[str, Any] = {"dropout": 0.4}
REFERENCES = {"one": FT, "mlp-one": MLP, "dropout-one": vary(FT, **DROPOUT), "mlp-dropout-one": vary(MLP, **DROPOUT)}
COMPARED = {name: (vary(FT, **case), "one") for name, case in CASES.items()}
COMPARED |= {name: (vary(MLP, **case), "mlp-one") for name, case in MLP_CASES.items()}
COMPARED["dropout-tensor"] = vary(FT, **DROPOUT, processes=2, **TENSOR), "dropout-one"
COMPARED["mlp-dropout-tensor"] = vary(MLP, **DROPOUT, processes=2, **TENSOR), "mlp-dropout-one"
CHECKPOINTED = ("fsdp", "tensor", "pipeline")
RESUMED = ("ddp", "ddp-4", "fsdp", "tensor-pipeline")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where every case was trained, a folder each."""
    folder = tmp_path_factory.mktemp("parallel")
    draw = np.random.default_rng(0)
    noise, weights = 0.3 * draw.normal(size=TRAIN), draw.uniform(0.5, 2.0, TRAIN).astype(np.float32)
    write_rows(
        folder,
        lambda values: (values + noise[: len(values)] > 0).astype(np.float32),
        rows=(TRAIN, VALIDATION),
        width=4,
        cardinalities=(5, 5),
        weights=weights,
    )
    cases = {}
    for name, spec in (REFERENCES | {name: case for name, (case, _) in COMPARED.items()}).items():
        cases[name] = {
            "spec": spec.model_dump(mode="json"),
            "architecture": architecture(spec, 4, [5, 5]),
            "resumed": name in RESUMED,
            "checkpointed": name in CHECKPOINTED,
        }
    (folder / "cases.json").write_text(json.dumps(cases))
    command = [sys.executable, "-m", "tests.training.parallel_cases", str(folder)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout[-5000:]
    return folder


def _steps(folder: Path, name: str) -> dict[int, float]:
    """The first value of each step: a run that was resumed has some twice."""
    points, _ = read_points(folder / "metrics")
    return {point.step: point.value for point in reversed(points) if point.name == name}


@pytest.mark.parametrize("name", COMPARED)
def test_it_learns_what_one_process_learns(ran: Path, name: str) -> None:
    parallel, single = ran / name, ran / COMPARED[name][1]
    norms = _steps(single, "grad_norm")
    assert len(norms) == 3
    assert min(norms.values()) > USUAL["clip_norm"], "nothing is clipped, so a wrong norm would not show"
    assert _steps(parallel, "grad_norm") == pytest.approx(norms, rel=1e-3)
    # The last batch has one row: its loss is not averaged over processes that have none, and these log none.
    last, losses = max(norms), _steps(parallel, "step_loss")
    assert losses.get(last) in (None, pytest.approx(_steps(single, "step_loss")[last], rel=1e-3))
    results = [json.loads((folder / "result.json").read_text()) for folder in (parallel, single)]
    for row, expected in zip(results[0]["history"], results[1]["history"], strict=True):
        assert row == pytest.approx(expected, abs=1e-5)
    weights, expected_weights = (load_file(folder / "weights") for folder in (parallel, single))
    assert weights.keys() == expected_weights.keys()
    for key, tensor in expected_weights.items():
        torch.testing.assert_close(weights[key], tensor, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "result"), [(name, "resumed") for name in RESUMED] + [(name, "checkpointed") for name in CHECKPOINTED]
)
def test_a_run_that_goes_on_from_a_state_or_a_checkpoint_ends_in_the_same_bits(
    ran: Path, name: str, result: str
) -> None:
    whole, resumed = (json.loads((ran / name / f"{file}.json").read_text()) for file in ("result", result))
    assert resumed == whole


def test_a_model_that_cannot_be_cut_says_what_it_lacks() -> None:
    # torch's compiler comes with these, which takes seconds in each worker that only collects this file.
    from gatehouse.training.parallel.pipeline import stage_of
    from gatehouse.training.parallel.sharding import NotDivisibleError, plan_of

    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(NotDivisibleError, match="expected the children embed, blocks and head, found 0"):
        stage_of(model, Layout(None, 0, 1, 0, 1, 0, 2))
    with pytest.raises(NotDivisibleError, match=r"method tensor_plan\(\)"):
        plan_of(model)


def test_a_model_that_is_not_compiled_does_without_the_compiler(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    monkeypatch.delitem(vars(torch), "_dynamo", raising=False)
    model = nn.Linear(2, 1)
    replicated = replicate(model, network(processes=2))
    replicated(torch.ones(3, 2)).sum().backward()
    assert type(replicated) is Replicated and model.weight.grad is not None
    assert "_dynamo" not in vars(torch), "who asks the compiler later would get no answer"
