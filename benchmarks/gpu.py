"""Training on a GPU: ours beside a loop written by hand, how busy the GPU is, and what bits and compiling cost.

Each case has a process of its own, as determinism is a setting of a process; there ours and the loop by hand take
turns, an epoch each. The loop by hand has its rows in the GPU's memory. Both clip, check the gradient and log three
metrics a step. MFU is the share of the GPU's peak that the model's products take: their operations as torch counts
them, times the rows a second.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _training import ARCHITECTURE, CARDINALITIES, NUMERIC, Batch, by_hand, read_rows, write_rows
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from training_step import NoCheckpoints

from gatehouse.tracking.machine import Machine
from gatehouse.training.compute import autocast, prepare_process
from gatehouse.training.models import build_model
from gatehouse.training.spec import NetworkTraining, train_spec
from gatehouse.training.trainer import Trainer

HAND_LEAST, BUSY_LEAST = 0.95, 90.0
LARGE = {"architecture": "ft_transformer", "token_size": 512, "heads": 8, "feed_forward": 2048, "blocks": 6}
FAST = {"precision": "bf16", "deterministic": False}
MILLISECONDS = 1e3


@dataclass(frozen=True)
class Case:
    """One way to train: the model, how it is computed, and the steps of an epoch."""

    model: dict[str, Any]
    compute: dict[str, Any]
    steps: int


CASES = {
    "tabular_mlp, fp32": Case({"architecture": "tabular_mlp"}, {"deterministic": False}, 300),
    "ft_transformer, bf16": Case({"architecture": "ft_transformer"}, FAST, 100),
    "large ft_transformer, bf16": Case(LARGE, FAST, 25),
    "large ft_transformer, bf16, deterministic": Case(LARGE, {"precision": "bf16"}, 25),
    "large ft_transformer, bf16, compiled": Case(LARGE, FAST | {"compile": True}, 25),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=0, help="of an epoch; 0: enough of them for each case")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu only shows that it runs")
    parser.add_argument(
        "--peak", type=float, default=989.0, help="bf16 TFLOP/s of the GPU without sparsity (H100, H200)"
    )
    parser.add_argument("--case", default="", help="one case, in this process")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(_measured(CASES[options.case], options)))
        return
    rows = {name: row for name in CASES if (row := _in_a_process(name))}
    large = rows.get("large ft_transformer, bf16", {})
    for name in ("deterministic", "compiled"):
        if large and (other := rows.get(f"large ft_transformer, bf16, {name}")):
            print(f"{name}: {other['step ms'] / large['step ms']:.3f} of the time of a step without")
    # A small model waits for Python, not for the GPU: there rows that lie on it already are an advantage.
    kept = len(rows) == len(CASES) and all(
        row["hand / ours"] >= HAND_LEAST and row["busy"] >= BUSY_LEAST
        for name, row in rows.items()
        if name.startswith("large")
    )
    limits = f"large models: hand / ours at least {HAND_LEAST}, at least {BUSY_LEAST:g} % busy"
    print(f"{limits}: {'kept' if kept else 'MISSED'}")
    sys.exit(0 if kept else 1)


def _in_a_process(name: str) -> dict[str, float]:
    ended = subprocess.run([sys.executable, *sys.argv, "--case", name], stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        print(f"{name}: failed", flush=True)
        return {}
    row: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    print(name, "  ".join(f"{key} {value:,.4g}" for key, value in row.items()), sep=": ", flush=True)
    return row


def _measured(case: Case, options: argparse.Namespace) -> dict[str, float]:
    """Medians of the rounds."""
    spec = train_spec(
        {
            "model": case.model,
            "compute": case.compute | {"device": options.device},
            "data": {"batch_size": options.batch},
            "stopping": {"epochs": 1},
            "parallelism": {"processes": 1, "threads": 4},
        }
    )
    assert isinstance(spec, NetworkTraining)
    steps = options.steps or case.steps
    prepare_process(spec.compute, 4)
    architecture = ARCHITECTURE | {"model": spec.model.model_dump(mode="json")}
    times, hand, busy = [], [], []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        write_rows(folder / "train", steps * options.batch)
        write_rows(folder / "validation", 64)
        rendezvous = f"file://{folder / 'rendezvous'}"
        dist.init_process_group(
            "nccl" if options.device == "cuda" else "gloo", init_method=rendezvous, rank=0, world_size=1
        )
        by_us, alone = _Gatehouse(spec, architecture, folder), _ByHand(spec, architecture, folder)
        for number in range(options.rounds + 1):
            watched = _Watch()
            seconds = by_us.epoch()
            percent = watched.end()
            peer_seconds = alone.epoch()
            if number:  # The first round warms up.
                times.append(seconds)
                hand.append(peer_seconds)
                busy.extend(percent)
        dist.destroy_process_group()
    took = statistics.median(times)
    rows = steps * options.batch / took
    ratio = statistics.median(peer / own for peer, own in zip(hand, times, strict=True))
    return {
        "hand / ours": ratio,
        "rows a second": rows,
        "step ms": took / steps * MILLISECONDS,
        "MFU": 100.0 * rows * _operations(architecture) / (options.peak * 1e12),
        "busy": statistics.fmean(busy) if busy else math.nan,
    }


class _Timed(Trainer):
    """Takes the time of the steps of one epoch, without its validation and the file of weights."""

    seconds = 0.0
    _began = 0.0

    def train(self) -> dict[str, Any] | None:
        """See `Trainer.train`."""
        _wait()
        self._began = time.perf_counter()
        return super().train()

    def _end_epoch(self, epoch: int) -> None:
        _wait()
        self.seconds = time.perf_counter() - self._began
        super()._end_epoch(epoch)


class _Gatehouse:
    """Our training loop, whose data comes from files through the process's memory."""

    def __init__(self, spec: NetworkTraining, architecture: dict[str, Any], folder: Path) -> None:
        self._made = spec, architecture, folder

    def epoch(self) -> float:
        """Seconds of the steps of one epoch."""
        trainer = _Timed(*self._made)
        trainer.checkpointer = NoCheckpoints()  # type: ignore[assignment]  # stands in for one that writes
        trainer.train()
        return trainer.seconds


class _ByHand:
    """What a user would write: all rows on the GPU, gathered there by a permutation."""

    def __init__(self, spec: NetworkTraining, architecture: dict[str, Any], folder: Path) -> None:
        self._spec, self._architecture, self._folder, self._count = spec, architecture, folder, 0
        device = spec.compute.device
        rows = read_rows(folder / "train")
        self._rows: Batch = (rows[0].to(device), rows[1].to(device), rows[2].to(device))

    def epoch(self) -> float:
        """Seconds of one epoch."""
        self._count += 1
        new = self._new()
        _wait()
        _, seconds = by_hand(self._batches, self._folder / f"metrics-{self._count}", lambda: new, self._context)
        return seconds

    def _new(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        compute, optimizer = self._spec.compute, self._spec.optimizer
        model = build_model(self._architecture).to(compute.device).train()
        if compute.compile:
            model.compile()
        return model, torch.optim.AdamW(
            model.parameters(), lr=optimizer.learning_rate, weight_decay=optimizer.weight_decay, fused=True
        )

    def _batches(self) -> Iterator[Batch]:
        order = torch.randperm(len(self._rows[2]), device=self._spec.compute.device)
        for chosen in order.split(self._spec.data.batch_size):
            yield self._rows[0][chosen], self._rows[1][chosen], self._rows[2][chosen]
        _wait()

    def _context(self) -> AbstractContextManager[Any]:
        return autocast(self._spec.compute) if self._spec.compute.precision != "fp32" else nullcontext()


class _Watch:
    """Asks the driver five times a second how busy the GPU is; nothing where there is none."""

    def __init__(self) -> None:
        self._over, self._seen = threading.Event(), list[float]()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        machine = Machine(os.getpid())
        while not self._over.wait(0.2):
            self._seen += [value for name, value in machine.gpus().items() if "utilization" in name]

    def end(self) -> list[float]:
        """What was seen in percent, but for the first and the last, when the work begins and ends."""
        self._over.set()
        self._thread.join()
        return self._seen[1:-1]


def _operations(architecture: dict[str, Any]) -> float:
    """Floating-point operations of a training step's products, a row."""
    model, rows = build_model(architecture), 8
    ids = torch.zeros(rows, len(CARDINALITIES), dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(rows, NUMERIC), ids).sum().backward()
    return counter.get_total_flops() / rows


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
