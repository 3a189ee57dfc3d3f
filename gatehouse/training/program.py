"""The training program that torchrun starts, one process per rank: from the job file to weights and a result file."""

import argparse
import importlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gatehouse.errors import ConfigurationError, GatehouseError, StoreError
from gatehouse.launchers.launcher import FAILURE, JOB, RESULT, RETRY_CODE, collective_seconds
from gatehouse.launchers.ranks import Heartbeat
from gatehouse.runtime.importing import without
from gatehouse.runtime.process import die_with_parent, follow_owner
from gatehouse.store.atomic_file import write_json
from gatehouse.store.hidden_values import hiding, without_values
from gatehouse.training.compute import DivergedError, prepare_process
from gatehouse.training.shards import shard_of_rank
from gatehouse.training.spec import ComputeSpec, NetworkTraining, train_spec

logger = logging.getLogger(__name__)


def preload(directory: Path) -> bool:
    """Import what the workers of a job need; returns whether they may be forked from this process.

    CUDA does not survive a fork, so workers on GPUs import for themselves. Workers on CPUs see no GPU: the optimizer
    initializes each GPU that it sees, which fails after a fork.
    """
    spec = train_spec(json.loads((directory / JOB).read_text())["spec"])
    if not isinstance(spec, NetworkTraining) or spec.compute.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if not isinstance(spec, NetworkTraining):
        with without("sklearn"):  # XGBoost imports it where it is installed, for estimators that are not used here.
            importlib.import_module("gatehouse.training.trees")
        return True
    if spec.compute.device == "cuda":
        return False
    importlib.import_module("gatehouse.training.trainer")
    if spec.parallelism.data == "fsdp" or spec.parallelism.model_size > 1:
        importlib.import_module("torch._dynamo")  # FSDP and DTensor import torch's compiler where they are used.
    return True


def restore(directory: Path, ranks: Sequence[int]) -> None:
    """Fetch the shards of the `ranks` of one of several nodes, before each start of its workers."""
    from gatehouse.launchers.kubernetes.transfer import fetch_shards

    spec = train_spec(json.loads((directory / JOB).read_text())["spec"])
    try:
        fetch_shards(directory, {shard_of_rank(spec, rank) for rank in ranks})
    except StoreError as error:
        sys.stderr.write(f"The rows of this machine cannot be read: {error}\n")
        sys.exit(RETRY_CODE)
    except GatehouseError as error:
        write_json(directory / FAILURE, {"message": str(error)})
        sys.exit(1)


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
        with hiding(lambda: job["hidden"]), _reporting(directory):
            result: dict[str, Any] | None  # None where the run was preempted, and its checkpoint is written.
            if isinstance(spec, NetworkTraining):
                from gatehouse.training.trainer import Trainer

                result = Trainer(spec, job["architecture"], directory, heartbeat).train()
            else:
                from gatehouse.training.trees import train

                result = train(spec, job["architecture"], directory, heartbeat)
            if result is not None and dist.get_rank() == 0:
                write_json(directory / RESULT, result)
    finally:
        dist.destroy_process_group()


@contextmanager
def _reporting(directory: Path) -> Iterator[None]:
    """Report an error to the launcher by a failure file, where a restart would only repeat it."""
    try:
        yield
    except StoreError as error:
        logger.error("StoreError: %s", error)
        sys.exit(RETRY_CODE)
    except Exception as error:
        own = isinstance(error, DivergedError | GatehouseError)
        shown = error if own else without_values(error)
        # A peer or the machine may be the cause of these: torchrun starts again, from the last checkpoint.
        if not isinstance(error, RuntimeError | OSError | MemoryError):
            message = str(shown) if own or shown is not error else f"{type(shown).__name__}: {shown}"
            write_json(directory / FAILURE, {"message": message})
            if own:
                sys.exit(message)  # Without frames, which would push the lines of the log out of sight.
        if shown is error:
            raise
        raise shown from None


if __name__ == "__main__":
    main()
