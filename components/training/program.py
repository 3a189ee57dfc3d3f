"""The training program that torchrun starts, one process a rank: from the job file to weights and a result file."""

import argparse
import json
import logging
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from gatehouse.components.artifacts.atomic_file import write_json
from gatehouse.components.launchers.launcher import FAILURE, JOB, RESULT, RETRY_CODE
from gatehouse.components.launchers.timeouts import collective_seconds
from gatehouse.components.launchers.worker.heartbeat import Heartbeat
from gatehouse.components.training.loop.divergence import DivergedError
from gatehouse.components.training.scoring.frameworks import framework_of
from gatehouse.components.training.spec import TrainSpec
from gatehouse.errors import ConfigurationError, GatehouseError, StoreError
from gatehouse.process import die_with_parent, follow_owner

logger = logging.getLogger(__name__)


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
    spec = TrainSpec.model_validate(job["spec"])
    heartbeat = Heartbeat.of_environment(int(os.environ["RANK"]))
    try:
        prepare_process(spec)
    except ConfigurationError as error:
        write_json(directory / FAILURE, {"message": str(error)})
        sys.exit(str(error))
    backend = "nccl" if spec.device == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=collective_seconds()))
    try:
        result = framework_of(spec).train(spec, job["architecture"], directory, heartbeat)
        if result is not None and dist.get_rank() == 0:
            write_json(directory / RESULT, result)
    except (RuntimeError, OSError, MemoryError):
        raise  # A peer or the machine may be the cause: torchrun starts the workers again, from the last checkpoint.
    except StoreError as error:
        logger.error("StoreError: %s", error)
        sys.exit(RETRY_CODE)
    except Exception as error:
        known = isinstance(error, DivergedError | GatehouseError)
        message = str(error) if known else f"{type(error).__name__}: {error}"
        write_json(directory / FAILURE, {"message": message})
        if known:
            sys.exit(message)  # It says all that there is: frames would push the log's own words out of sight.
        raise
    finally:
        dist.destroy_process_group()


def prepare_process(spec: TrainSpec) -> None:
    """Set what decides bits and lives in the process: threads, determinism, and the device of this rank.

    Raises:
        ConfigurationError: if the spec trains on GPUs, and there is none for this rank.
    """
    torch.set_num_threads(spec.threads)
    if spec.deterministic:
        # cuBLAS adds in a fixed order only with workspaces of its own, which it reads from here when it starts.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(spec.deterministic)
    if spec.device == "cuda":
        place, found = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if place >= found:
            raise ConfigurationError(
                f"training.device is cuda: expected a GPU for each process of this machine, found {found} for process "
                f"{place + 1}. Set it to cpu, start fewer processes, or ask for more in launch.resources."
            )
        torch.cuda.set_device(place)
        torch.backends.cudnn.benchmark = not spec.deterministic


if __name__ == "__main__":
    main()
