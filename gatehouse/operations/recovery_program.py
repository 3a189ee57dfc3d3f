"""A program that checks recovery with the means of training: its last worker kills itself, and all must resume."""

import argparse
import importlib
import json
import os
import signal
import socket
from datetime import timedelta
from pathlib import Path

from gatehouse.launchers.launcher import RESULT, WEIGHTS
from gatehouse.launchers.ranks import Heartbeat
from gatehouse.runtime.process import die_with_parent, follow_owner
from gatehouse.store.atomic_file import write_json
from gatehouse.store.canonical import sha256_bytes

STEPS, KILLED_AT = 6, 3


def preload(directory: Path) -> bool:
    """Import the libraries of the workers, which may be forked from this process."""
    importlib.import_module("torch.distributed")
    return True


def main() -> None:
    """Count steps together. In the first attempt the last worker kills itself; the next attempt resumes at its step."""
    import torch
    import torch.distributed as dist

    parser = argparse.ArgumentParser(description="Come back after a killed worker; started by torchrun.")
    parser.add_argument("directory", type=Path, help="Folder of the job.")
    directory = parser.parse_args().directory
    die_with_parent()
    follow_owner()
    heartbeat = Heartbeat.of_environment(int(os.environ["RANK"]))
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    checkpoint = directory / "checkpoint.json"
    begun = torch.tensor(json.loads(checkpoint.read_text())["step"] if checkpoint.exists() else 0)
    dist.all_reduce(begun, dist.ReduceOp.MAX)
    for step in range(int(begun), STEPS):
        workers = torch.tensor(1)
        dist.all_reduce(workers)
        assert int(workers) == dist.get_world_size(), "a worker is missing"
        write_json(checkpoint, {"step": step + 1})
        if heartbeat:
            heartbeat.beat(step)
        dist.barrier()
        if step + 1 == KILLED_AT and not begun and dist.get_rank() == dist.get_world_size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    machines: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(machines, socket.gethostname())
    if dist.get_rank() == 0:
        data = json.dumps({"steps": STEPS}).encode()
        (directory / WEIGHTS).write_bytes(data)
        about = {"weights_sha256": sha256_bytes(data), "resumed_at": int(begun), "machines": sorted(set(machines))}
        write_json(directory / RESULT, about)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
