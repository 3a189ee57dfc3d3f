"""From the SIGKILL of a worker to the next step, beside a cold start.

Two workers train under the wrapper; one kills itself. Recovery is from the kill to the first step that a restarted
worker takes; a cold start is from the start of the wrapper to the first step. The two of one run are compared, because
they meet the same load; the first run, which finds the files of torch on the disk, does not count. Fails where recovery
is over 1.5 times a cold start in the median of the runs, or more steps are repeated than lie between three checkpoints:
the kill may come while the last one is written. The number of runs is the argument (5).
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from gatehouse.launchers.ranks import Heartbeat
from gatehouse.training.checkpointing.checkpointer import Checkpointer
from gatehouse.training.spec import CheckpointSpec

LIMIT = 1.5
EVERY, KILL, STEPS = 10, 47, 60


class State:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(256, 256)
        self.parallel = nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.step = 0

    def state_dict(self) -> dict[str, object]:
        return {"model": self.model.state_dict(), "step": self.step}

    def load_state_dict(self, state: dict[str, dict[str, torch.Tensor]]) -> None:
        self.model.load_state_dict(state["model"])
        self.step = int(str(state["step"]))


def main() -> int:
    """Measure; or, as a worker that torchrun started, train."""
    if "RANK" in os.environ:
        worker(Path(sys.argv[1]))
        return 0
    repeats = int(sys.argv[1]) if sys.argv[1:] else 5
    runs = [_run() for _ in range(repeats + 1)][1:]
    cold, recovery = (statistics.median(run[key] for run in runs) for key in ("cold", "recovery"))
    repeated = max(int(run["repeated"]) for run in runs)
    print(f"cold start {cold:.2f} s, from kill to the next step {recovery:.2f} s")
    ratios = [run["recovery"] / run["cold"] for run in runs]
    ratio = statistics.median(ratios)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f} over {repeats} runs, load {os.getloadavg()[0]:.1f}"
    print(f"ratio {ratio:.2f} ({spread}), limit {LIMIT}; steps repeated {repeated}, limit {2 * EVERY}")
    return 0 if ratio <= LIMIT and repeated <= 2 * EVERY else 1


def _run() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gatehouse.launchers.wrapper", "recovery", "2", folder]
        environment, began = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}, time.monotonic()
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600)
        steps = sorted(
            (at, step, attempt)
            for path in Path(folder).glob("steps-*")
            for at, step, attempt in map(json.loads, path.read_text().split())
        )
    killed = max(at for at, step, _ in steps if step < 0)
    # The other worker may end the step that both were in.
    at, step = next((at, step) for at, step, attempt in steps if attempt)
    return {"cold": steps[0][0] - began, "recovery": at - killed, "repeated": KILL - (step - 1)}


def preload(directory: Path) -> bool:
    """What the agent of a training asks its program for: whether workers may be forked from it."""
    return True


def worker(folder: Path) -> None:
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    heartbeat = Heartbeat.of_environment(rank)
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    state = State()
    checkpointer = Checkpointer(folder / "checkpoints", CheckpointSpec(every_steps=EVERY))
    checkpointer.load(state)
    with open(folder / f"steps-{rank}", "a", buffering=1) as log:
        while state.step < STEPS:
            state.parallel(torch.randn(8, 256)).square().mean().backward()
            state.optimizer.step()
            state.step += 1
            if heartbeat is not None:
                heartbeat.beat(state.step)
            log.write(f"[{time.monotonic()},{state.step},{attempt}]\n")
            checkpointer.maybe_save(state, state.step)
            if rank == 1 and not attempt and state.step == KILL:
                log.write(f"[{time.monotonic()},-1,{attempt}]\n")
                os.kill(os.getpid(), signal.SIGKILL)
    checkpointer.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
