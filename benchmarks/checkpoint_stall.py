"""What a checkpoint of a large state costs the training loop: ours beside torch's own, replicated and sharded.

Two ranks train a model whose weights and moments make up the state. A checkpoint's cost is the call itself and what
the steps after it take more than steps without one: for each place after the checkpoint the median over all repeats
counts, so that a step that the machine held up weighs nothing and one that every checkpoint slows weighs all. It is
printed as a share of the synchronous save, by the clock (with a bootstrap's interval) and by this rank's processor
time; fails over the limit. Rounds with and without a checkpoint take turns, and so do the kinds. The ranks and their
writers need a core each, or the writers the time that the ranks wait: the machine is printed, and how much a step
without a checkpoint varies.
"""

import argparse
import itertools
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn

from gatehouse.training.checkpointing.checkpointer import Checkpointer
from gatehouse.training.checkpointing.writer import near
from gatehouse.training.spec import CheckpointSpec

LIMIT = 0.10
KINDS = ("ours", "save", "async_save")
TURNS = ("ours", "save", "ours", "async_save", "ours")  # What is small needs the most repeats.
WALL, CPU = 0, 1
Round = list[tuple[float, float]]  # Of a call and of each step after it: by the clock, of the processor.


class State:
    def __init__(self, sharded: bool, size: int) -> None:
        torch.manual_seed(0)
        width = int((size / 12 / 4) ** 0.5)  # Weights and two moments of four bytes, in four layers.
        body = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(4)))
        self.model: Any = fully_shard(body) if sharded else body
        self.parallel = self.model if sharded else nn.parallel.DistributedDataParallel(body)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.rows = torch.randn(8, width)

    def train_step(self) -> None:
        self.optimizer.zero_grad()
        torch.autograd.backward(self.parallel(self.rows).square().mean())
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": get_model_state_dict(self.model),
            "optimizer": get_optimizer_state_dict(self.model, self.optimizer),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError("only saves are measured")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=200_000_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--steps", type=int, default=4, help="that follow a checkpoint and are counted in")
    parser.add_argument("--directory", type=Path, default=None, help="where checkpoints are written")
    options = parser.parse_args()
    kept = True
    print(_machine())
    for sharded in (False, True):
        with tempfile.TemporaryDirectory(dir=options.directory) as folder:
            spawn(_rank, (sharded, options.bytes, options.repeats, options.steps, folder), nprocs=2)
            report = json.loads((Path(folder) / "report").read_text())
        print(f"{'sharded' if sharded else 'replicated'}, {options.bytes / 1e6:.0f} MB, two ranks; ", end="")
        print("a step takes {:.0f} ms, one in ten over {:.0f} ms".format(*(1000 * step for step in report["step"])))
        for kind, call in zip(KINDS, report["call"], strict=True):
            wall, cpu = report[kind]
            print(
                f"  {kind:10} {wall * 1000:8.1f} ms, {cpu * 1000:8.1f} ms of processor, {call * 1000:8.1f} ms in the "
                f"call; of save: {wall / report['save'][WALL]:6.3f}, {cpu / report['save'][CPU]:6.3f}"
            )
        share = report["share"]
        print("  ratio {:.3f} (95 %: {:.3f} to {:.3f}), limit {}".format(share, *report["interval"], LIMIT))
        if abs(share) > LIMIT > share or report["save"][WALL] <= 0:
            print("  the machine is too busy for this: a checkpoint cannot make training faster")
            kept = False
        kept &= share < LIMIT
    print(_machine())
    return 0 if kept else 1


def _machine() -> str:
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ":unknown")
    load = os.getloadavg()[0]
    busy = ", busy: by the clock the figures say little" if load > (os.cpu_count() or 1) + 2 else ""
    return f"{model.partition(':')[2].strip()}, {os.cpu_count()} cores, load {load:.1f}{busy}"


def _rank(rank: int, sharded: bool, size: int, repeats: int, steps: int, folder: str) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=300))
    # async_save talks in the background, and must not do so in the group that the steps talk in.
    beside = dist.new_group(backend="gloo")
    state = State(sharded, size)
    checkpointer = Checkpointer(Path(folder) / "ours", CheckpointSpec(keep=1))
    written = near(Path(folder) / "ours")
    stored = 0

    def gatehouse() -> Callable[[], bool]:
        checkpointer.save(state, (step := stored), ("interval",))
        return lambda: any(saved.step == step for saved in written.saved())

    def save() -> Callable[[], bool]:
        dcp.save(state.state_dict(), checkpoint_id=f"{folder}/save-{stored}")
        return lambda: True

    def async_save() -> Callable[[], bool]:
        done = dcp.async_save(state.state_dict(), checkpoint_id=f"{folder}/async-{stored}", process_group=beside)
        return done.done  # type: ignore[union-attr]  # a Future once a save was begun

    takes = dict(zip(KINDS, (gatehouse, save, async_save), strict=True))
    taken: dict[str, list[Round]] = {kind: [] for kind in KINDS}
    without: list[Round] = []
    for number in range(repeats + 1):
        for turn in range(len(TURNS)):
            kind = TURNS[(number + turn) % len(TURNS)]
            stored = number * len(TURNS) + turn
            quiet, disturbed = _round(state, steps, lambda: lambda: True), _round(state, steps, takes[kind])
            if number:  # The first of each makes buffers.
                without.append(quiet)
                taken[kind].append(disturbed)
            if rank == 0:
                for old in (*Path(folder).glob("save-*"), *Path(folder).glob("async-*")):
                    shutil.rmtree(old)
    checkpointer.finish()
    if rank == 0:
        report = {kind: [_added(taken[kind], without, clock) for clock in (WALL, CPU)] for kind in KINDS}
        steps_without = [step[WALL] for run in without for step in run[1:]]
        report["step"] = [statistics.median(steps_without), statistics.quantiles(steps_without, n=10)[-1]]
        shares = sorted(_share(*map(_drawn, (taken["ours"], taken["save"], without))) for _ in range(400))
        report["share"] = _share(taken["ours"], taken["save"], without)
        report["interval"] = [shares[10], shares[-11]]
        report["call"] = [statistics.median(run[0][WALL] for run in taken[kind]) for kind in KINDS]
        (Path(folder) / "report").write_text(json.dumps(report))
    dist.destroy_process_group()


def _share(rounds: list[Round], save: list[Round], without: list[Round]) -> float:
    """Of what a synchronous save adds, by the clock."""
    return _added(rounds, without, WALL) / _added(save, without, WALL)


def _drawn(rounds: list[Round]) -> list[Round]:
    """As many, drawn with replacement: how the figures spread tells how far they can be trusted."""
    return random.choices(rounds, k=len(rounds))


def _added(taken: list[Round], without: list[Round], clock: int) -> float:
    """Seconds that a checkpoint adds: the call, and at each place after it the median step over one without."""
    call, *after = (statistics.median(sample[clock] for sample in place) for place in zip(*taken, strict=True))
    step = statistics.median(sample[clock] for quiet in without for sample in quiet[1:])
    return call + sum(after) - step * len(after)


def _round(state: State, steps: int, take: Callable[[], Callable[[], bool]]) -> Round:
    """Seconds of the call and of each step after it, by the clock and of this rank's processor.

    What is not on disk after those steps is awaited off the clock, so that every kind begins with an idle disk.
    """
    dist.barrier()
    times = [(time.perf_counter(), time.process_time())]
    finished = take()
    for step in range(steps + 1):
        if step:
            state.train_step()
        times.append((time.perf_counter(), time.process_time()))
    while not finished():
        time.sleep(0.01)
    return [(after[0] - before[0], after[1] - before[1]) for before, after in itertools.pairwise(times)]


if __name__ == "__main__":
    sys.exit(main())
