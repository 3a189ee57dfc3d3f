"""A small training run to kill: one server process imports torch once and forks the ranks of each attempt.

    python rehearsal.py      reads one JSON request a line, answers with one JSON line

A request names world_size, kind (ddp or fsdp), folder, steps, every (steps), and what goes wrong: `kill` is
[rank, step], `kill_after` the seconds after which rank 0 gets `signal`, `flag_after` those after which a preemption's
flag rises, and `broken` a rank that has the folder `broken` in that folder for its own.
"""

import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from gatehouse.launchers.ranks import FLAG, Flag, StepBarrier
from gatehouse.training.checkpointing.checkpointer import Checkpointer
from gatehouse.training.spec import CheckpointSpec
from gatehouse.training.trainer import random_state, seed_all, set_random_state

ROWS, BATCH = 96, 12
CPU = torch.device("cpu")


class Run:
    def __init__(self, kind: str, rank: int) -> None:
        seed_all(7)
        body = nn.Sequential(nn.Linear(6, 13), nn.ReLU(), nn.Dropout(0.3), nn.Linear(13, 1))
        self.model: nn.Module = fully_shard(body) if kind == "fsdp" else body
        self.parallel = DistributedDataParallel(body, find_unused_parameters=True) if kind == "ddp" else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 50)
        self.step = 0
        self.seen: list[int] = []
        seed_all(70 + rank)

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": get_model_state_dict(self.model),
            "optimizer": get_optimizer_state_dict(self.model, self.optimizer),
            "schedule": self.schedule.state_dict(),
            "step": self.step,
            "seen": self.seen,
            "rank": {"random": random_state(CPU)},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_model_state_dict(self.model, state["model"])
        set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.step, self.seen = state["step"], state["seen"]
        if "rank" in state:
            set_random_state(state["rank"]["random"], CPU)

    def train_step(self, data: Tensor, rank: int, world_size: int) -> None:
        epoch, at = divmod(self.step * BATCH, ROWS)
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(epoch))[at : at + BATCH]
        self.seen = [*self.seen, *order.tolist()]
        share = data[order.chunk(world_size)[rank]]
        loss = (self.parallel(share[:, :6]).squeeze(1) - share[:, 6]).square().mean()
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.schedule.step()
        self.step += 1

    def digest(self) -> str:
        digest = hashlib.sha256()
        moments = [moment for slots in self.optimizer.state.values() for moment in slots.values()]
        for tensor in [*self.model.state_dict().values(), *moments]:
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            digest.update(whole.detach().contiguous().numpy().tobytes())
        return digest.hexdigest()


def _rank(request: dict[str, Any], rank: int, meeting: str) -> None:
    world_size = request["world_size"]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size, timeout=timedelta(seconds=30)
    )
    run = Run(request["kind"], rank)
    policy = CheckpointSpec(every_steps=request["every"])
    folder = Path(request["folder"], "broken" if request.get("broken") == rank else "")
    checkpointer = Checkpointer(folder, policy, far=request.get("far", ""), name="rehearsal")
    checkpointer.load(run)
    first = run.step
    data = torch.randn(ROWS, 7, generator=torch.Generator().manual_seed(1))
    barrier = StepBarrier()
    while run.step < request["steps"]:
        run.train_step(data, rank, world_size)
        if request.get("kill") == [rank, run.step]:
            os.kill(os.getpid(), signal.SIGKILL)
        checkpointer.maybe_save(run, run.step)
        time.sleep(request.get("pause", 0.0))
        agreed = barrier.agree(run.step)
        if agreed.preempted:
            saved = checkpointer.save_now(run, run.step, ("preemption",), agreed.seconds)
            Path(f"{request['result']}-{rank}").write_text(json.dumps([run.step, saved]))
            os._exit(0)
    written = checkpointer.finish()
    digest = run.digest()
    if rank == 0:
        result = {"digest": digest, "first": first, "seen": run.seen, "written": written}
        Path(request["result"]).write_text(json.dumps(result))
    dist.destroy_process_group()


def _attempt(request: dict[str, Any]) -> dict[str, Any]:
    """One attempt of all ranks, which ends for all when it ends for one, as with torchrun."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        request["result"] = f"{folder}/result"
        os.environ[FLAG] = f"{folder}/flag"
        ranks: dict[int, int] = {}
        for rank in range(request["world_size"]):
            pid = os.fork()
            if pid == 0:
                try:
                    _rank(request, rank, f"{folder}/meeting")
                    os._exit(0)
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                    os._exit(1)
            ranks[pid] = rank
        if "kill_after" in request:
            time.sleep(request["kill_after"])
            os.kill(next(iter(ranks)), request.get("signal", signal.SIGKILL))
        if "flag_after" in request:
            time.sleep(request["flag_after"])
            Flag(time.monotonic() + request["grace"]).write(Path(os.environ[FLAG]))
        codes = {}
        while ranks:
            pid, status = os.wait()
            if pid not in ranks:
                continue
            codes[ranks.pop(pid)] = os.waitstatus_to_exitcode(status)
            if status:
                for other in ranks:
                    os.kill(other, signal.SIGTERM)
        result = Path(request["result"])
        answer = json.loads(result.read_text()) if result.exists() else {}
        answer["preempted"] = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("result-*"))]
        return {"codes": [codes[rank] for rank in sorted(codes)], "seconds": time.monotonic() - began} | answer


def warm() -> None:
    """Have all that is imported at first use imported once, before the ranks are forked."""
    torch.set_num_threads(1)
    run = Run("plain", 0)
    run.train_step(torch.zeros(ROWS, 7), 0, 1)
    with tempfile.TemporaryDirectory() as folder:
        checkpointer = Checkpointer(Path(folder), CheckpointSpec())
        checkpointer.save(run, 1, ("interval",))
        checkpointer.finish()
        Checkpointer(Path(folder), CheckpointSpec()).load(run)


def main() -> None:
    warm()
    for line in sys.stdin:
        print(json.dumps(_attempt(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
