"""Trains the same tiny model under every parallelism, eight processes in one launch; run by test_parallel.py.

Each case forms a process group of its own of the first ranks; the others wait for the next case. Modules are imported
once, before the processes are forked. No gradient is computed before: torch's CUDA build starts threads for that, also
where there is no GPU, and refuses to compute gradients in a process that was forked after.
"""

import json
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor
import torch.multiprocessing as mp

from gatehouse.launchers.ranks import Agreement, StepBarrier
from gatehouse.training.shards import shard_count
from gatehouse.training.spec import CheckpointSpec, NetworkTraining, train_spec
from gatehouse.training.trainer import Trainer, TrainState
from tests.training.conftest import Giver, Keeper
from tests.training.specs import divide_rows, link_rows


def main() -> None:
    """Run the cases of `<folder>/cases.json`, whose data lies in `<folder>`, on as many processes as the largest."""
    folder = Path(sys.argv[1])
    cases = json.loads((folder / "cases.json").read_text())
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    largest = max(case["spec"]["parallelism"]["processes"] for case in cases.values())
    for name, case in cases.items():
        if (shards := shard_count(train_spec(case["spec"]))) > 1:
            divide_rows(folder, folder / name, shards)
    mp.start_processes(_work, (folder, cases), nprocs=largest, start_method="fork")


def _work(rank: int, folder: Path, cases: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    for name, case in cases.items():
        spec = train_spec(case["spec"])
        assert isinstance(spec, NetworkTraining)
        if rank < spec.parallelism.processes:
            _run(name, rank, folder, spec, case)


def _run(name: str, rank: int, folder: Path, spec: NetworkTraining, case: dict[str, Any]) -> None:
    directory, architecture = folder / name, case["architecture"]
    link_rows(folder, directory)
    began = time.monotonic()
    rendezvous = f"file://{folder / f'{name}.rendezvous'}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=spec.parallelism.processes)
    dist.barrier()
    try:
        taken: list[dict[str, Any]] = []
        _train(Trainer(spec, architecture, directory), directory / "result.json", Keeper(taken))
        if case["resumed"]:
            _train(Trainer(spec, architecture, directory), directory / "resumed.json", Giver(taken))
        if case["checkpointed"]:
            _interrupt(spec, architecture, directory / "checkpointed")
        if rank == 0:
            print(name, spec.parallelism.processes, round(time.monotonic() - began, 2), flush=True)
    except Exception:
        traceback.print_exc()
        raise
    finally:
        dist.destroy_process_group()


class Ending(StepBarrier):
    """Ends all ranks by an error after two steps."""

    def agree(self, step: int, *, due: bool = False, epoch_ended: int | None = None) -> Agreement:
        if step == 2:
            raise InterruptedError
        return super().agree(step, due=due, epoch_ended=epoch_ended)


def _interrupt(spec: NetworkTraining, architecture: dict[str, Any], directory: Path) -> None:
    """Train with real checkpoints, end by an error, and go on."""
    spec = spec.model_copy(update={"checkpoints": CheckpointSpec(every_steps=1)})
    link_rows(directory.parent, directory)
    dist.barrier()
    trainer = Trainer(spec, architecture, directory)
    trainer.barrier = Ending()
    with suppress(InterruptedError):
        trainer.train()
    trainer = Trainer(spec, architecture, directory)
    load = trainer.checkpointer.load

    def loaded(state: TrainState) -> int | None:
        step = load(state)
        assert step == 2
        return step

    trainer.checkpointer.load = loaded  # type: ignore[method-assign, assignment]
    _train(trainer, directory.with_suffix(".json"))


def _train(trainer: Trainer, result: Path, checkpointer: Keeper | None = None) -> None:
    if checkpointer:
        trainer.checkpointer = checkpointer  # type: ignore[assignment]
    outcome = trainer.train()
    if dist.get_rank() == 0:
        result.write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
