"""The share of training time that checkpoints cost: a large one every ten minutes, a small one every five seconds.

Two ranks train. Rounds of steps that begin with a checkpoint take turns with rounds without one; the difference of
their medians is the time that a checkpoint adds, by the clock, and in processor time of the rank until it is written.
torch's `async_save` with its safetensors writer takes the turns too. Fails where ours costs more than 1 % of the
interval. The ranks and their threads need a core each. The number of rounds is the argument (9).
"""

import itertools
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import start_processes

from gatehouse.training.checkpointing.checkpointer import Checkpointer
from gatehouse.training.spec import CheckpointSpec

LIMIT = 0.01
CASES = [(200_000_000, 4, 10, 600.0), (1_000_000, 20, 40, 5.0)]  # bytes, layers, steps of a round, seconds


class State:
    def __init__(self, sharded: bool, size: int, layers: int) -> None:
        torch.manual_seed(0)
        width = int((size / 12 / layers) ** 0.5)  # Weights and two moments of four bytes.
        body = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
        self.model: Any = fully_shard(body) if sharded else nn.parallel.DistributedDataParallel(body)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.rows = torch.randn(8, width)

    def train_step(self) -> None:
        self.optimizer.zero_grad()
        torch.autograd.backward(self.model(self.rows).square().mean())
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        moments = get_optimizer_state_dict(self.model, self.optimizer)["state"]
        return {"model": get_model_state_dict(self.model), "optimizer": moments}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def main() -> int:
    repeats, costs = int(sys.argv[1]) if sys.argv[1:] else 9, []
    for (size, layers, steps, seconds), sharded in itertools.product(CASES, (False, True)):
        print(f"{size / 1e6:.0f} MB, {'sharded' if sharded else 'replicated'}, every {seconds:.0f} s")
        with tempfile.TemporaryDirectory() as folder:
            start_processes(_rank, (sharded, size, layers, steps, repeats, folder), nprocs=2, start_method="fork")
            report = json.loads(Path(folder, "report").read_text())
        for kind, (call, added, processor) in report.items():
            print(
                f"  {kind}: call {call:.4f} s, added {added:.4f} s, {added / seconds:.2%}; processor {processor:.4f} s"
            )
        costs.append(report["ours"][1] / seconds)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; the most {max(costs):.2%}, limit {LIMIT:.0%}")
    return 0 if max(costs) < LIMIT else 1


def _rank(rank: int, sharded: bool, size: int, layers: int, steps: int, repeats: int, folder: str) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    state, checkpointer = State(sharded, size, layers), Checkpointer(Path(folder) / "ours", CheckpointSpec(keep=1))
    beside, stager = dist.new_group(backend="gloo"), DefaultStager(StagingOptions(False, False, False, False))

    def ours(number: int) -> Callable[[], bool]:
        checkpointer.save(state, number, ("interval",))
        return checkpointer.finish

    def async_save(number: int) -> Any:
        writer = dcp.HuggingFaceStorageWriter(f"{folder}/torch", save_distributed=True)
        options = {"storage_writer": writer, "process_group": beside, "async_stager": stager}
        # Its types allow a response in place of a future, and know no dictionary of options.
        return dcp.async_save(state.state_dict(), **options).result  # type: ignore[union-attr, arg-type]  # See above.

    takes: dict[str, Any] = {"none": lambda number: lambda: None, "ours": ours, "async_save": async_save}
    rounds: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in takes}
    for number, (kind, take) in itertools.product(range(repeats + 1), takes.items()):
        dist.barrier()
        began, processor, finish = time.perf_counter(), time.process_time(), take(number)
        call = time.perf_counter() - began
        for _ in range(steps):
            state.train_step()
        seconds = time.perf_counter() - began
        finish()
        rounds[kind].append((call, seconds, time.process_time() - processor))
    if rank == 0:  # The first of each makes buffers.
        medians = {kind: torch.tensor(seconds[1:]).double().median(dim=0).values for kind, seconds in rounds.items()}
        without = medians.pop("none") * torch.tensor([0, 1, 1])
        report = {kind: (median - without).tolist() for kind, median in medians.items()}
        Path(folder, "report").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
