"""What the benchmarks of training share: rows, the model, and a loop written by hand."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gatehouse.tracking.metrics_file import MetricsFile
from gatehouse.training.models import build_model
from gatehouse.training.spec import DataSpec, NetworkTraining, OptimizerSpec, ParallelismSpec, StoppingSpec

NUMERIC, CARDINALITIES = 40, [12, 20, 50, 100, 300, 1000]
SPEC = NetworkTraining(
    data=DataSpec(batch_size=4096),
    optimizer=OptimizerSpec(learning_rate=1e-3),
    stopping=StoppingSpec(epochs=1),
    parallelism=ParallelismSpec(processes=1),
)
ARCHITECTURE: dict[str, Any] = {
    "model": SPEC.model.model_dump(mode="json"), "loss": "binary", "width": NUMERIC, "cardinalities": CARDINALITIES,
    "outputs": 1,
}  # fmt: skip
Batch = tuple[Tensor, Tensor, Tensor]


def write_rows(folder: Path, rows: int) -> None:
    """Write the arrays of one part, as a job has them."""
    draw = np.random.default_rng(7)
    folder.mkdir(parents=True)
    numbers = draw.normal(size=(rows, NUMERIC)).astype(np.float32)
    ids = np.stack([draw.integers(0, most, rows) for most in CARDINALITIES], axis=1)
    labels = (numbers[:, 0] + draw.normal(size=rows) > 0).astype(np.float32)
    for name, array in (("numbers", numbers), ("ids", ids), ("labels", labels)):
        np.save(folder / f"{name}.npy", array)


def read_rows(folder: Path) -> Batch:
    """The arrays of one part in memory."""
    numbers, ids, labels = (torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("numbers", "ids", "labels"))
    return numbers, ids, labels


def permuted(rows: Batch) -> Iterator[Batch]:
    """Batches of one epoch: a permutation, gathered a batch at a time."""
    order = torch.randperm(len(rows[2]))
    for chosen in order.split(SPEC.data.batch_size):
        yield rows[0][chosen], rows[1][chosen], rows[2][chosen]


def new_model() -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model and its optimizer, as training makes them."""
    torch.manual_seed(SPEC.seed)
    model = build_model(ARCHITECTURE).train()
    return model, torch.optim.AdamW(
        model.parameters(), lr=SPEC.optimizer.learning_rate, weight_decay=SPEC.optimizer.weight_decay
    )


def by_hand(
    batches: Callable[[], Iterator[Batch]],
    file: Path,
    new: Callable[[], tuple[nn.Module, torch.optim.Optimizer]] = new_model,
    context: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> tuple[float, float]:
    """One epoch with clipping, a check of the gradient and three metrics a step; CPU and wall seconds."""
    model, optimizer = new()
    metrics = MetricsFile(file)
    began = time.process_time(), time.perf_counter()
    for step, (numbers, ids, labels) in enumerate(batches()):
        optimizer.zero_grad(set_to_none=True)
        with context():
            logits = model(numbers, ids)
        loss = binary_cross_entropy_with_logits(logits.float(), labels)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), SPEC.optimizer.clip_norm)
        if not torch.isfinite(norm):
            raise ArithmeticError
        optimizer.step()
        rate = optimizer.param_groups[0]["lr"]
        metrics.log({"step_loss": float(loss.detach()), "grad_norm": float(norm), "learning_rate": rate}, step)
    ended = time.process_time() - began[0], time.perf_counter() - began[1]
    metrics.close()
    return ended
