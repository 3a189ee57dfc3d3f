"""What a checkpoint of a large state costs the training loop: ours beside torch's own, replicated and sharded.

Two ranks train a model whose weights and moments make up the state. A checkpoint's cost is what a round of steps that
begins with one takes more than the round of as many steps just before it: the call itself, and the slower steps after.
It is printed as a share of the synchronous save, by the clock and by this rank's processor time (which a busy machine
moves less); fails over the limit. Rounds are interleaved, kinds take turns, and medians of the differences count. The
ranks and their writers need a core each, or the writers the time that the ranks wait: the machine is printed.
"""

import argparse
import os
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

from gatehouse.components.training.checkpointing.checkpointer import Checkpointer
from gatehouse.components.training.checkpointing.part import near
from gatehouse.components.training.checkpointing.policy import CheckpointPolicy

LIMIT = 0.10
KINDS = ("ours", "save", "async_save")


class State:
    def __init__(self, sharded: bool, size: int) -> None:
        torch.manual_seed(0)
        width = int((size / 12 / 4) ** 0.5)  # Weights and two moments of four bytes, in four layers.
        body = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(4)))
        self.model: Any = fully_shard(body) if sharded else body
        self.parallel = self.model if sharded else nn.parallel.DistributedDataParallel(body)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.rows = torch.randn(64, width)

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
    parser.add_argument("--steps", type=int, default=12, help="that follow a checkpoint and are counted in")
    parser.add_argument("--directory", type=Path, default=None, help="where checkpoints are written")
    options = parser.parse_args()
    kept = True
    print(_machine())
    for sharded in (False, True):
        with tempfile.TemporaryDirectory(dir=options.directory) as folder:
            spawn(_rank, (sharded, options.bytes, options.repeats, options.steps, folder), nprocs=2)
            lines = (Path(folder) / "report").read_text().split()
        cost = dict(zip(lines[::2], map(float, lines[1::2]), strict=True))
        print(f"{'sharded' if sharded else 'replicated'}, {options.bytes / 1e6:.0f} MB, two ranks:")
        for kind in KINDS:
            wall, cpu, call = (cost[f"{kind}{what}"] for what in ("", "_cpu", "_call"))
            print(
                f"  {kind:10} {wall * 1000:8.1f} ms, {cpu * 1000:8.1f} ms of processor, {call * 1000:8.1f} ms in the "
                f"call; of save: {wall / cost['save']:6.3f}, {cpu / cost['save_cpu']:6.3f}, "
                f"{call / cost['save_call']:6.3f}"
            )
        share = cost["ours"] / cost["save"]
        print(f"  ratio {share:.3f}, limit {LIMIT}")
        if abs(share) > LIMIT > share or cost["save"] <= 0:
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
    checkpointer = Checkpointer(Path(folder) / "ours", CheckpointPolicy(keep=1))
    written = near(Path(folder) / "ours")
    number = 0

    def ours() -> Callable[[], bool]:
        checkpointer.save(state, number, ("interval",))
        return lambda: any(saved.step == number for saved in written.saved())

    def save() -> Callable[[], bool]:
        dcp.save(state.state_dict(), checkpoint_id=f"{folder}/save-{number}")
        return lambda: True

    def async_save() -> Callable[[], bool]:
        done = dcp.async_save(state.state_dict(), checkpoint_id=f"{folder}/async-{number}", process_group=beside)
        return done.done  # type: ignore[union-attr]  # a Future once a save was begun

    takes = dict(zip(KINDS, (ours, save, async_save), strict=True))
    costs: dict[str, list[float]] = {name: [] for kind in KINDS for name in (kind, f"{kind}_cpu", f"{kind}_call")}
    for number in range(repeats + 1):
        for turn in range(len(KINDS)):
            kind = KINDS[(number + turn) % len(KINDS)]
            found = _cost(state, takes[kind], steps)
            if number:  # The first of each makes buffers.
                for name, seconds in zip((kind, f"{kind}_cpu", f"{kind}_call"), found, strict=True):
                    costs[name].append(seconds)
            if rank == 0:
                for old in (*Path(folder).glob("save-*"), *Path(folder).glob("async-*")):
                    shutil.rmtree(old)
    checkpointer.finish()
    if rank == 0:
        report = " ".join(f"{name} {statistics.median(found)}" for name, found in costs.items())
        (Path(folder) / "report").write_text(report)
    dist.destroy_process_group()


def _cost(state: State, take: Callable[[], Callable[[], bool]], steps: int) -> tuple[float, float, float]:
    """Seconds that a checkpoint adds: of the call and the steps after it, of this rank's processor, of the call alone.

    What is not on disk after those steps is awaited off the clock, so that every kind begins with an idle disk.
    """
    without = _round(state, steps, lambda: lambda: True)
    taken = _round(state, steps, take)
    return taken[0] - without[0], taken[1] - without[1], taken[2]


def _round(state: State, steps: int, take: Callable[[], Callable[[], bool]]) -> tuple[float, float, float]:
    dist.barrier()
    began, used = time.perf_counter(), time.process_time()
    finished = take()
    call = time.perf_counter() - began
    for _ in range(steps):
        state.train_step()
    spent, worked = time.perf_counter() - began, time.process_time() - used
    while not finished():
        time.sleep(0.01)
    return spent, worked, call


if __name__ == "__main__":
    sys.exit(main())
