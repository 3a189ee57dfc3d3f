"""The training program that torchrun starts, one process a rank: from the job file to weights and a result file."""

import argparse
import importlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gatehouse.errors import ConfigurationError, GatehouseError, StoreError
from gatehouse.launchers.launcher import FAILURE, JOB, RESULT, RETRY_CODE
from gatehouse.launchers.timeouts import collective_seconds
from gatehouse.launchers.worker.heartbeat import Heartbeat
from gatehouse.runtime.importing import without
from gatehouse.runtime.process import die_with_parent, follow_owner
from gatehouse.store.atomic_file import write_json
from gatehouse.store.hidden_values import hiding, without_values
from gatehouse.training.compute.process import prepare_process
from gatehouse.training.compute.spec import ComputeSpec
from gatehouse.training.loop.divergence import DivergedError
from gatehouse.training.spec import NetworkTraining, TrainSpec, train_spec

logger = logging.getLogger(__name__)


def preload(directory: Path) -> bool:
    """Import what the workers of a job need; returns whether they may be forked from this process.

    CUDA does not survive a fork, so workers on GPUs import for themselves. Workers on CPUs see no GPU: the optimizer
    asks each one that it sees, which fails after a fork.
    """
    spec = train_spec(json.loads((directory / JOB).read_text())["spec"])
    if not isinstance(spec, NetworkTraining) or spec.compute.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if not isinstance(spec, NetworkTraining):
        with without("sklearn"):  # which XGBoost imports, where it finds it, for classes in its style
            importlib.import_module("gatehouse.training.trees.trainer")
        return True
    if spec.compute.device == "cuda":
        return False
    importlib.import_module("gatehouse.training.loop.trainer")
    if spec.parallelism.data == "fsdp" or spec.parallelism.model_size > 1:
        importlib.import_module("torch._dynamo")  # FSDP and DTensor import torch's compiler where they are used.
    return True


def main() -> None:
    """Train as the job file says, and leave weights and a result file, a failure file, or, preempted, a checkpoint."""
    parser = argparse.ArgumentParser(description="Train one model; started by torchrun.")
    parser.add_argument("directory", type=Path, help="Folder of the job: job.json, data, checkpoints, result.")
    directory = parser.parse_args().directory
    die_with_parent()
    follow_owner()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if (directory / FAILURE).exists():
        sys.exit("The attempt before ended in an error that a restart would only repeat.")
    job = json.loads((directory / JOB).read_text())
    spec = train_spec(job["spec"])
    compute = spec.compute if isinstance(spec, NetworkTraining) else ComputeSpec()
    heartbeat = Heartbeat.of_environment(int(os.environ["RANK"]))
    try:
        prepare_process(compute, spec.parallelism.threads)
    except ConfigurationError as error:
        write_json(directory / FAILURE, {"message": str(error)})
        sys.exit(str(error))
    timeout = timedelta(seconds=collective_seconds())
    if compute.device == "cuda":
        dist.init_process_group("nccl", timeout=timeout, device_id=torch.device("cuda", torch.cuda.current_device()))
    else:
        dist.init_process_group("gloo", timeout=timeout)
    try:
        with hiding(lambda: job["hidden"]), _ended(directory):
            result = _train(spec, job["architecture"], directory, heartbeat)
            if result is not None and dist.get_rank() == 0:
                write_json(directory / RESULT, result)
    finally:
        dist.destroy_process_group()


@contextmanager
def _ended(directory: Path) -> Iterator[None]:
    """Tell the launcher why the training ended: by a failure file, where a restart would only repeat the error."""
    try:
        yield
    except StoreError as error:
        logger.error("StoreError: %s", error)
        sys.exit(RETRY_CODE)
    except Exception as raised:
        known = isinstance(raised, DivergedError | GatehouseError)
        shown = raised if known else without_values(raised)
        # Of these a peer or the machine may be the cause: torchrun starts again, from the last checkpoint.
        if not isinstance(raised, RuntimeError | OSError | MemoryError):
            message = str(shown) if known or shown is not raised else f"{type(shown).__name__}: {shown}"
            write_json(directory / FAILURE, {"message": message})
            if known:
                sys.exit(message)  # It says all that there is: frames would push the log's own words out of sight.
        if shown is raised:
            raise
        raise shown from None


def _train(
    spec: TrainSpec, architecture: dict[str, Any], directory: Path, heartbeat: Heartbeat | None
) -> dict[str, Any] | None:
    """Train on the current process group, from the last checkpoint, and write the weights file of the job.

    Returns:
        `history` (one row an epoch or round: `epoch`, `train_<loss>` and the validation metrics), `best_epoch`, and
        `weights_sha256` on rank 0; None where the run was preempted, and its checkpoint is written.
    """
    if isinstance(spec, NetworkTraining):
        from gatehouse.training.loop.trainer import Trainer

        return Trainer(spec, architecture, directory, heartbeat).train()
    from gatehouse.training.trees.trainer import train

    return train(spec, architecture, directory, heartbeat)


if __name__ == "__main__":
    main()
