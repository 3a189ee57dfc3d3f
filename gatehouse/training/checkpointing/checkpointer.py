"""Takes checkpoints of a training run when they are due, and brings a run back to its last whole one.

The state is copied into memory that is kept for it, and a thread writes the copy while the loop goes on. The ranks
write what they hold, one of them each piece that several hold alike; rank 0 writes the manifest when all files are
there. All methods but `let_go` are collective: every rank calls them at the same step boundary.
"""

import logging
import os
import threading
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from gatehouse.launchers.launcher import CHECKPOINT_NAME, CHECKPOINT_STORE, CHECKPOINTS, collective_seconds
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.objects.opening import open_objects
from gatehouse.training.checkpointing.leaves import PRIVATE, flatten, read_state, write_leaves
from gatehouse.training.checkpointing.record import BEST, CheckpointStore, RankFile, Saved, TornCheckpointError
from gatehouse.training.parallel.mesh import local, offsets_of
from gatehouse.training.spec import CheckpointSpec

logger = logging.getLogger(__name__)

LAST_SECONDS = 2.0  # the part of a preempted machine's time that is kept for what follows the checkpoint
_PATIENCE_SECONDS = 2.0  # after which training says that it waits
_WAIT_SECONDS = 60.0  # for the checkpoint before, or at the end; below the time after which a rank counts as hanging
_ERROR_SECONDS = 10.0  # for the last checkpoint after an error


class TrainingState(Protocol):
    """Everything that decides how a run continues; the entry `rank` of its nested state belongs to this rank alone.

    A rank's state has the same names from before the first step to the end. All other values are JSON.
    """

    def state_dict(self) -> dict[str, Any]: ...  # noqa: D102

    def load_state_dict(self, state: dict[str, Any]) -> None: ...  # noqa: D102


class Checkpointer:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, policy: CheckpointSpec, *, far: str = "", name: str = "") -> None:
        """Checkpoint into a folder that all ranks see or, where `far` is the address of a store, there under `name`."""
        self._scratch = folder / "tmp"
        self._scratch.mkdir(parents=True, exist_ok=True)
        if far:
            self.store = CheckpointStore(open_objects(far), f"scratch/checkpoints/{name}")
        else:
            self.store = CheckpointStore(LocalObjects(folder), "steps")
        self._policy = policy
        self._rank, self._world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        # The thread that writes must not talk in the group in which the loop talks. It may wait long for a slow store.
        timeouts = timedelta(seconds=collective_seconds()), timedelta(days=1)
        self._group, self._beside = (
            dist.new_group(backend="gloo", timeout=timeout) if self._world > 1 else None for timeout in timeouts
        )
        # A later start has a greater number. The token parts two starts that see the same checkpoints.
        starts = [int(name.partition("-")[0]) for name in self.store.names()] if self._rank == 0 else []
        self._start, self._token = self._gathered((max(starts, default=0) + 1, uuid.uuid4().hex[:8]), self._group)[0]
        self._names: list[str] = []
        self._pieces: dict[str, tuple[int, ...]] = {}
        self._copies: dict[str, Tensor] = {}
        self._writing: threading.Thread | None = None
        self._whole = True  # whether the last checkpoint that was begun is written
        self._last_step = -1
        self._last_time = time.monotonic()

    @classmethod
    def of_environment(cls, directory: Path, policy: CheckpointSpec) -> "Checkpointer":
        """The checkpointer of a job, in the store that the environment names, if any, else in the job's directory."""
        far = os.environ.get(CHECKPOINT_STORE, "")
        return cls(directory / CHECKPOINTS, policy, far=far, name=os.environ.get(CHECKPOINT_NAME, directory.name))

    @property
    def last(self) -> str:
        """A sentence about the last checkpoint, for the error of a run that halts."""
        if self._last_step < 0:
            return "No checkpoint was taken before."
        return f"The last checkpoint was taken after step {self._last_step}."

    def load(self, state: TrainingState) -> int | None:
        """Load the last whole checkpoint; returns its step, or None where there is none.

        A torn checkpoint, or one of another number of processes, is skipped with a warning that names it.
        """
        if int(os.environ.get("LOCAL_RANK", self._rank)) == 0:
            for file in self._scratch.glob("*"):  # what a killed process left
                file.unlink(missing_ok=True)
        for name in self._gathered(self.store.names(), self._group)[0]:
            whole = True
            try:
                saved = self.store.read(name, self._world)
                self.store.file(saved, self._rank, verify=True)
            except TornCheckpointError as error:
                whole = False
                logger.warning("%s", error)
            if not self._all(whole):
                continue
            state.load_state_dict(read_state(self.store, saved, state.state_dict(), self._rank))
            self._last_step, self._last_time = saved.step, time.monotonic()
            if self._rank == 0:
                logger.info("Resumed from checkpoint %s after step %d.", name, saved.step)
            return saved.step
        return None

    def maybe_save(
        self, state: TrainingState, step: int, *, due: bool = False, epoch_ended: bool = False, best: bool = False
    ) -> None:
        """Take a checkpoint after `step` steps, if the policy or `due` asks for one."""
        every = self._policy.every_steps
        interval = (due or (every is not None and step % every == 0)) and step != self._last_step
        ended = epoch_ended and self._policy.every_epoch
        reasons = tuple(name for name, holds in (("interval", interval), ("epoch", ended), (BEST, best)) if holds)
        if reasons:
            self.save(state, step, reasons)

    @property
    def due(self) -> bool:
        """Whether, by this rank's clock, the last checkpoint is older than the policy allows."""
        minutes = self._policy.every_minutes
        return minutes is not None and time.monotonic() - self._last_time >= minutes * 60

    def save(self, state: TrainingState, step: int, reasons: tuple[str, ...]) -> None:
        """Copy the state, to be written while training continues; waits for the checkpoint before."""
        if not self._is_written(_PATIENCE_SECONDS):
            logger.warning("Training waits for the checkpoint before. Let checkpoints be due less often.")
        if self._all(self._is_written(_WAIT_SECONDS)):
            self._begin(state, step, reasons)
        else:
            logger.warning("No checkpoint is taken after step %d: the one before is still being written.", step)

    def save_now(self, state: TrainingState, step: int, reasons: tuple[str, ...], seconds: float) -> bool:
        """Write a checkpoint before this returns; returns whether it is whole, on all ranks, within `seconds`."""
        deadline = time.monotonic() + seconds
        if not self._all(self._is_written(seconds)):
            return False
        if step != self._last_step or not self._all(self._whole):
            self._begin(state, step, reasons)
        return self._all(self._is_written(deadline - time.monotonic()) and self._whole)

    def finish(self) -> bool:
        """Wait for the last checkpoint; returns whether it is whole."""
        return self._all(self._is_written(_WAIT_SECONDS) and self._whole)

    def let_go(self) -> None:
        """Wait a little for the last checkpoint, without the other ranks' consent, as after an error."""
        self._is_written(_ERROR_SECONDS)

    def _is_written(self, seconds: float) -> bool:
        """Whether, after at most `seconds`, nothing is being written on this rank."""
        if self._writing is not None:
            self._writing.join(max(0.0, seconds))
        return self._writing is None or not self._writing.is_alive()

    @torch.no_grad()
    def _begin(self, state: TrainingState, step: int, reasons: tuple[str, ...]) -> None:
        tensors, values = flatten(state.state_dict())
        if not self._all(list(tensors) == self._names):
            pieces = {path: offsets_of(tensor) for path, tensor in tensors.items()}
            below = self._gathered(pieces, self._group)[: self._rank]
            # The lowest rank writes what several hold alike.
            lower = {piece for other in below for piece in other.items() if not piece[0].startswith(PRIVATE)}
            self._names, self._pieces = list(tensors), dict(pieces.items() - lower)
        for path in self._pieces:
            piece, copy = local(tensors[path]), self._copies.get(path)
            if copy is None or (copy.shape, copy.dtype) != (piece.shape, piece.dtype):
                # Copies are kept: a first copy into new memory costs ten times a later one.
                copy = self._copies[path] = torch.empty(piece.shape, dtype=piece.dtype, pin_memory=piece.is_cuda)
            copy.copy_(piece, non_blocking=piece.is_cuda)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch has none
            torch.cuda.synchronize()
        self._last_step, self._last_time, self._whole = step, time.monotonic(), False
        self._writing = threading.Thread(target=self._write, args=(step, reasons, values), daemon=True)
        self._writing.start()

    def _write(self, step: int, reasons: tuple[str, ...], values: dict[str, Any]) -> None:
        """Write this rank's file and, where all ranks have theirs, the manifest; training goes on after an error."""
        name, own = f"{self._start:06d}-{step:012d}-{self._token}", None
        file = self._scratch / f"{self._token}-{self._rank}"
        try:
            try:
                write_leaves(file, {path: self._copies[path] for path in self._pieces}, values)
                own = RankFile(self.store.put_file(name, file), self._pieces)
            except Exception as error:
                logger.warning("The checkpoint after step %d could not be written: %s", step, error)
            file.unlink(missing_ok=True)
            files = self._gathered(own, self._beside)
            if None in files:
                return
            if self._rank == 0:
                self.store.commit(Saved(name, step, reasons, tuple(files)))
            self._whole = True
            if self._rank == 0:
                self.store.prune(self._policy.keep)
        except Exception as error:
            logger.warning("The checkpoint after step %d could not be completed: %s", step, error)

    def _gathered(self, own: Any, group: dist.ProcessGroup | None) -> list[Any]:
        """`own` of each rank."""
        everywhere = [own] * self._world
        if group is not None:
            dist.all_gather_object(everywhere, own, group=group)
        return everywhere

    def _all(self, own: bool) -> bool:
        """Whether this holds on all ranks."""
        return all(self._gathered(own, self._group))
