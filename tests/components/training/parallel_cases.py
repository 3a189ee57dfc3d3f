"""Trains the same tiny model under every parallelism, eight processes in one launch; run by test_parallel.py.

Each case forms a process group of its own of the first ranks; the others wait for the next case. What takes long at
its first use (imports, and the rules of DTensor's operators) is done once, before the processes are forked.
"""

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor
import torch.multiprocessing as mp
from torch.testing._internal.distributed.fake_pg import FakeStore

from gatehouse.components.training.clipping import gradient_norm
from gatehouse.components.training.data import Batch
from gatehouse.components.training.losses import loss_of
from gatehouse.components.training.models import build_model
from gatehouse.components.training.optimizer import build_optimizer
from gatehouse.components.training.parallel import parallelize
from gatehouse.components.training.parallel.mesh import lay_out
from gatehouse.components.training.parallel.spread import whole
from gatehouse.components.training.spec import TrainSpec
from gatehouse.components.training.trainer import Trainer
from tests.components.training.kept_states import Giver, Keeper

WARMED = ("fsdp", "ddp-tensor", "fsdp-tensor", "mlp-fsdp-tensor")
RESUMED = ("ddp", "ddp-4", "fsdp", "tensor-pipeline")


def main() -> None:
    """Run the cases of `<folder>/cases.json`, whose data lies in `<folder>`, on as many processes as the largest."""
    folder = Path(sys.argv[1])
    cases = json.loads((folder / "cases.json").read_text())
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in WARMED:
        _warm(TrainSpec.model_validate(cases[name]["spec"]), cases[name]["architecture"])
    largest = max(case["spec"]["processes"] for case in cases.values())
    mp.start_processes(_work, (folder, cases), nprocs=largest, start_method="fork")


def _warm(spec: TrainSpec, architecture: dict[str, Any]) -> None:
    """One step among processes that do not exist, whose exchanges do nothing; more than a case has.

    DTensor keeps what it has worked out by mesh, with the names of groups that are gone: no later mesh may be like it.
    """
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=16)
    layout, rows = lay_out(spec), 4 * spec.accumulation
    execution = parallelize(build_model(architecture), spec, layout, loss_of(spec), torch.device("cpu"), rows)
    optimizer = build_optimizer(execution.part, spec)
    numbers, ids = (
        torch.zeros(rows, architecture["width"]),
        torch.zeros(rows, len(architecture["cardinalities"])).long(),
    )
    execution.backward(Batch(numbers, ids, torch.zeros(rows), torch.ones(rows), torch.empty(0)), 1.0)
    gradient_norm(list(execution.part.parameters()), layout)
    optimizer.step()
    execution.score(numbers, ids)
    for tensor in execution.part.state_dict().values():
        whole(tensor)
    dist.destroy_process_group()


def _work(rank: int, folder: Path, cases: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    for name, case in cases.items():
        spec = TrainSpec.model_validate(case["spec"])
        if rank >= spec.processes:
            continue
        _run(name, rank, folder, spec, case["architecture"])


def _run(name: str, rank: int, folder: Path, spec: TrainSpec, architecture: dict[str, Any]) -> None:
    directory = folder / name
    directory.mkdir(exist_ok=True)
    for part in ("train", "validation"):
        if rank == 0 and not (directory / part).exists():
            (directory / part).symlink_to(folder / part)
    began = time.monotonic()
    rendezvous = f"file://{folder / f'{name}.rendezvous'}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=spec.processes)
    dist.barrier()
    try:
        taken: list[dict[str, Any]] = []
        _train(Trainer(spec, architecture, directory), directory / "result.json", Keeper(taken))
        if name in RESUMED:
            _train(Trainer(spec, architecture, directory), directory / "resumed.json", Giver(taken))
        if rank == 0:
            print(name, spec.processes, round(time.monotonic() - began, 2), flush=True)
    except Exception:
        traceback.print_exc()
        raise
    finally:
        dist.destroy_process_group()


def _train(trainer: Trainer, result: Path, checkpointer: Keeper) -> None:
    trainer.checkpointer = checkpointer  # type: ignore[assignment]
    found = trainer.train()
    if dist.get_rank() == 0:
        result.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
