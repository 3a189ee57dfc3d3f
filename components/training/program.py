"""The training program that torchrun starts: reads top to bottom, one process a rank.

Every random choice is a pure function of seed, epoch and rank, so a run that resumes at an epoch ends in the same bits
as one that was never interrupted.
"""

import argparse
import hashlib
import json
import logging
import math
import os
import signal
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel

from gatehouse.components.tracking.spool import SpoolWriter
from gatehouse.components.training import checkpoint
from gatehouse.components.training.launcher import FAILURE, JOB, METRICS, RESULT, WEIGHTS
from gatehouse.components.training.models import build_model
from gatehouse.components.training.spec import TrainSpec
from gatehouse.process import die_with_parent, follow_owner

logger = logging.getLogger(__name__)

FAULT = "GATEHOUSE_TRAINING_FAULT"
_PEER_TIMEOUT = timedelta(seconds=120)


@dataclass(frozen=True)
class Rows:
    """One part of the data: numbers (rows, width), category ids (rows, columns) and labels (rows,)."""

    numbers: Tensor
    ids: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


class DivergedError(ArithmeticError):
    """Loss or gradient is not a finite number any more."""


def main() -> None:
    """Train as the job file says, and leave weights and a result file, or a failure file."""
    parser = argparse.ArgumentParser(description="Train one model; started by torchrun.")
    parser.add_argument("directory", type=Path, help="Folder of the job: job.json, data, checkpoints, result.")
    directory = parser.parse_args().directory
    die_with_parent()
    follow_owner()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if (directory / FAILURE).exists():
        sys.exit("The attempt before ended in an error that a restart would only repeat.")
    job = json.loads((directory / JOB).read_text())
    spec = TrainSpec.model_validate(job["spec"])
    torch.set_num_threads(spec.threads)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo", timeout=_PEER_TIMEOUT)
    try:
        result = train(spec, job["architecture"], directory)
        if dist.get_rank() == 0:
            checkpoint.write_json(directory / RESULT, result)
    except (RuntimeError, OSError, MemoryError):
        raise  # A peer or the machine may be the cause: torchrun starts the workers again, from the last checkpoint.
    except Exception as error:
        message = str(error) if isinstance(error, DivergedError) else f"{type(error).__name__}: {error}"
        checkpoint.write_json(directory / FAILURE, {"message": message}, unique=str(dist.get_rank()))
        raise
    finally:
        dist.destroy_process_group()


def train(spec: TrainSpec, architecture: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Train until the last epoch or until patience ends; write the best epoch's weights; return the result.

    Raises:
        DivergedError: if a gradient or the validation log loss is not finite; names epoch and step.
    """
    data = {part: _load(directory / part) for part in ("train", "validation")}
    torch.manual_seed(spec.seed)
    model = build_model(architecture)
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay)
    history: list[dict[str, float]] = []
    best = _copy(model)
    resumed = checkpoint.load(directory)
    if resumed:
        best = checkpoint.restore(resumed[0], model, optimizer)
        history = resumed[1]["history"]
    parallel = DistributedDataParallel(model)
    metrics = SpoolWriter(directory / METRICS) if dist.get_rank() == 0 else None
    for epoch in range(len(history), spec.epochs):
        if _stale(history, spec.patience):
            break
        loss = _train_epoch(parallel, optimizer, data["train"], spec, epoch, metrics)
        history.append({"epoch": epoch, "train_log_loss": loss, **_validate(model, data["validation"], epoch)})
        if _best(history) == epoch:
            best = _copy(model)
        if dist.get_rank() == 0:
            logger.info(_progress(history[-1], spec.epochs))
            tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
            tensors |= {f"best.{name}": tensor for name, tensor in best.items()}
            checkpoint.save(directory, epoch, tensors | checkpoint.optimizer_tensors(optimizer), {"history": history})
        dist.barrier()
        _inject_fault(epoch)
    digest = ""
    if dist.get_rank() == 0:
        save_file(best, directory / WEIGHTS)
        digest = hashlib.sha256((directory / WEIGHTS).read_bytes()).hexdigest()
    return {"history": history, "best_epoch": _best(history), "weights_sha256": digest}


def _load(folder: Path) -> Rows:
    # Mapped, copy on write: the ranks of one machine share the pages, and torch takes no read-only arrays.
    arrays = [torch.from_numpy(np.load(folder / f"{name}.npy", mmap_mode="c")) for name in ("numbers", "ids", "labels")]
    return Rows(*arrays)


def _progress(row: dict[str, float], epochs: int) -> str:
    return (
        f"epoch {row['epoch'] + 1}/{epochs}  train log loss {row['train_log_loss']:.5f}  "
        f"validation log loss {row['log_loss']:.5f}  ROC AUC {row['roc_auc']:.4f}"
    )


def _inject_fault(epoch: int) -> None:
    """For tests: let the last rank die or hang after an epoch, as `GATEHOUSE_TRAINING_FAULT=<action>:<epoch>` says."""
    action, _, wanted = os.environ.get(FAULT, "").partition(":")
    if wanted != str(epoch) or dist.get_rank() != dist.get_world_size() - 1:
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "hang":
        time.sleep(600)
    elif action == "raise":
        raise ValueError(f"injected fault after epoch {epoch}")


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _best(history: list[dict[str, float]]) -> int:
    return min(range(len(history)), key=lambda index: history[index]["log_loss"])


def _stale(history: list[dict[str, float]], patience: int) -> bool:
    return bool(history) and len(history) - 1 - _best(history) >= patience


def learning_rate(step: int, steps: int, spec: TrainSpec) -> float:
    """Linear warm-up to the peak, then half a cosine down to a hundredth of it.

    Args:
        step: From 0.
        steps: Of the whole run.
        spec: Holds peak and share of warm-up.
    """
    warmup = max(1, round(spec.warmup * steps))
    if step < warmup:
        return spec.learning_rate * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return spec.learning_rate * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))


def rank_batches(
    rows: int, batch_size: int, seed: int, epoch: int, rank: int, world: int
) -> list[tuple[Tensor, Tensor]]:
    """Row numbers and weights of every step of one rank in one epoch.

    The order of rows is a pure function of (seed, epoch). Each global batch is cut into `world` equal pieces; where it
    does not divide, it is padded with rows of weight zero, so every rank takes every step and no row counts twice.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(rows, generator=generator)
    batches = []
    for batch in torch.split(order, batch_size):
        share = math.ceil(len(batch) / world)
        padded = torch.cat([batch, batch[:1].expand(share * world - len(batch))])
        weights = (torch.arange(share * world) < len(batch)).float()
        mine = slice(rank * share, (rank + 1) * share)
        batches.append((padded[mine], weights[mine]))
    return batches


def _train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rows: Rows,
    spec: TrainSpec,
    epoch: int,
    metrics: SpoolWriter | None,
) -> float:
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(spec.seed * 1_000_003 + epoch * 1_009 + rank)
    batches = rank_batches(len(rows), spec.batch_size, spec.seed, epoch, rank, world)
    model.train()
    total = torch.zeros(2, dtype=torch.float64)
    for index, (chosen, weights) in enumerate(batches):
        step = epoch * len(batches) + index
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, spec.epochs * len(batches), spec)
        logits = model(rows.numbers[chosen], rows.ids[chosen])
        loss = binary_cross_entropy_with_logits(logits, rows.labels[chosen], weight=weights, reduction="sum")
        count = min(spec.batch_size, len(rows) - index * spec.batch_size)
        optimizer.zero_grad(set_to_none=True)
        # DDP averages gradients over ranks: times `world`, the sum over all ranks is divided by the rows of the batch.
        torch.autograd.backward(loss * world / count)
        norm = nn.utils.clip_grad_norm_(model.parameters(), spec.clip_norm)
        if not torch.isfinite(norm):
            raise DivergedError(
                f"The gradient is not finite in epoch {epoch}, step {step}. Lower training.learning_rate, or look for "
                "extreme values among the features."
            )
        optimizer.step()
        if metrics:
            rate = optimizer.param_groups[0]["lr"]
            metrics.log(
                {
                    "step_loss": float(loss.detach()) * world / count,
                    "grad_norm": float(norm.detach()),
                    "learning_rate": rate,
                },
                step,
            )
        total += torch.stack([loss.detach(), weights.sum()]).double()
    dist.all_reduce(total)
    return float(total[0] / total[1])


@torch.no_grad()
def _validate(model: nn.Module, rows: Rows, epoch: int) -> dict[str, float]:
    """Log loss and ROC AUC over the validation part, each rank scoring its share."""
    from gatehouse.components.tracking.metrics import roc_auc

    model.eval()
    world, rank = dist.get_world_size(), dist.get_rank()
    share = math.ceil(len(rows) / world)
    scores = torch.zeros(share * world)
    mine = slice(rank * share, min((rank + 1) * share, len(rows)))
    if mine.start < mine.stop:
        scores[mine] = model(rows.numbers[mine], rows.ids[mine])
    dist.all_reduce(scores)
    scores = scores[: len(rows)].double()
    loss = float(binary_cross_entropy_with_logits(scores, rows.labels.double()))
    if not math.isfinite(loss):
        raise DivergedError(
            f"The validation log loss is not finite after epoch {epoch}. Lower training.learning_rate, or look for "
            "extreme values among the features."
        )
    return {"log_loss": loss, "roc_auc": roc_auc(rows.labels.numpy(), scores.numpy())}


if __name__ == "__main__":
    main()
