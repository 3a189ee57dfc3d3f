"""Takes checkpoints of a training run when they are due, and brings a run back to its last whole one.

All methods are collective: every rank calls them at the same step boundary. What they exchange is a few numbers; the
writing itself needs no collective.
"""

import fcntl
import logging
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from gatehouse.launchers.launcher import CHECKPOINT_NAME, CHECKPOINT_STORE, CHECKPOINTS, collective_seconds
from gatehouse.store.objects.opening import open_objects
from gatehouse.training.checkpointing.background import BackgroundWriter, StagingBuffer
from gatehouse.training.checkpointing.format import BEST, CheckpointStore, Saved, TornCheckpointError
from gatehouse.training.checkpointing.plan import PRIVATE, Plan, flatten, make_plan, read_state, structure_of
from gatehouse.training.checkpointing.writer import Request, Share, near, scratch, write_share
from gatehouse.training.parallel.mesh import local
from gatehouse.training.spec import CheckpointSpec

logger = logging.getLogger(__name__)

LAST_SECONDS = 2.0  # the part of a preempted machine's time that is kept for what follows the checkpoint
_DEADLINE_SECONDS = 60.0
"""How long a rank may wait for a file before it exchanges with its peers again, in seconds; below their timeout."""
_PEERS_SECONDS = 300.0
_PATIENCE_SECONDS = 2.0
_ORPHANS_AHEAD = 2
"""An orphaned writer may still use this many sequence numbers; a new run skips them."""


class TrainingState(Protocol):
    """Everything that decides how a run continues; the entry `rank` of its nested state belongs to this rank alone."""

    def state_dict(self) -> dict[str, Any]: ...  # noqa: D102

    def load_state_dict(self, state: dict[str, Any]) -> None: ...  # noqa: D102


class Checkpointer:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, policy: CheckpointSpec, *, far: str = "", name: str = "") -> None:
        """Checkpoint into a folder that all ranks of a machine see, with copies under `name` in a `far` store."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._policy = policy
        self._far, self._far_prefix = far, f"scratch/checkpoints/{name}"
        alone = not (dist.is_initialized() and dist.get_world_size() > 1)
        self._group = None if alone else dist.new_group(backend="gloo", timeout=timedelta(seconds=collective_seconds()))
        self._rank, self._world = (0, 1) if alone else (dist.get_rank(), dist.get_world_size())
        self._sequence = 0
        self._last_step = -1
        self._last_time = time.monotonic()
        self._plan: Plan | None = None
        self._buffer: StagingBuffer | None = None
        self._writer: BackgroundWriter | None = None

    @classmethod
    def of_environment(cls, directory: Path, policy: CheckpointSpec) -> "Checkpointer":
        """The checkpointer of a job, with a copy in the store that the environment names, if any."""
        far = os.environ.get(CHECKPOINT_STORE, "")
        return cls(directory / CHECKPOINTS, policy, far=far, name=os.environ.get(CHECKPOINT_NAME, directory.name))

    @property
    def last(self) -> str:
        """A sentence about the last checkpoint, for the error of a run that halts."""
        if self._last_step < 0:
            return "No checkpoint was taken before."
        return f"The last checkpoint was taken after step {self._last_step}."

    def load(self, state: TrainingState) -> int | None:
        """Load the last whole checkpoint of as many ranks; returns its step, or None where there is none.

        A torn checkpoint is skipped with a warning that names it.
        """
        # Writers of an attempt that was killed may hold the newest checkpoint. No rank looks before the writers of all
        # machines have ended; then their unfinished files are removed.
        deadline = time.monotonic() + _DEADLINE_SECONDS

        def is_released(path: Path) -> bool:
            with open(path, "r+") as lock:
                while True:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        return True
                    except BlockingIOError:
                        if time.monotonic() > deadline:
                            return False
                        time.sleep(0.02)

        ended = all(map(is_released, self._folder.glob("writer-*.lock")))
        for file in scratch(self._folder).glob("*") if ended else ():
            file.unlink(missing_ok=True)
        ended = self._all(ended)
        sources = [near(self._folder)]
        if self._far:
            sources.append(CheckpointStore(open_objects(self._far), self._far_prefix))
        numbers = [sequence for store in sources for sequence in store.sequences()]
        # Newest first. For equal numbers the folder comes before the far store, which sends missing files.
        candidates = [
            (-saved.sequence, place)
            for place, store in enumerate(sources)
            for saved in store.saved()
            if saved.world_size == self._world
        ]
        box = [(max(numbers, default=0), sorted(candidates))]
        if self._group is not None:
            dist.broadcast_object_list(box, src=0, group=self._group)
        self._sequence, candidates = box[0]
        if not ended:
            logger.warning("A checkpoint writer of the attempt before is still at work: its numbers are left to it.")
            self._sequence += _ORPHANS_AHEAD
        for negative, place in candidates:
            if (saved := self._verified(sources[place], -negative)) is not None:
                state.load_state_dict(read_state(sources[place], saved, state.state_dict(), self._rank))
                self._last_step, self._last_time = saved.step, time.monotonic()
                if self._rank == 0:
                    logger.info("Resumed from checkpoint %d after step %d.", saved.sequence, saved.step)
                return saved.step
        return None

    def maybe_save(
        self, state: TrainingState, step: int, *, due: bool = False, epoch_ended: bool = False, best: bool = False
    ) -> bool:
        """Take a checkpoint after `step` steps, if the policy or `due` asks for one; returns whether one was taken."""
        every = self._policy.every_steps
        interval = (due or (every is not None and step % every == 0)) and step != self._last_step
        ended = epoch_ended and self._policy.every_epoch
        reasons = tuple(name for name, holds in (("interval", interval), ("epoch", ended), (BEST, best)) if holds)
        if not reasons:
            return False
        self.save(state, step, reasons)
        return True

    @property
    def due(self) -> bool:
        """Whether, by this rank's clock, the last checkpoint is older than the policy allows."""
        minutes = self._policy.every_minutes
        return minutes is not None and time.monotonic() - self._last_time >= minutes * 60

    def save(self, state: TrainingState, step: int, reasons: tuple[str, ...]) -> None:
        """Stage a checkpoint now, to be written while training continues; waits for the one before."""
        writer, request = self._stage(state, step, reasons)
        writer.request(request)

    def save_now(self, state: TrainingState, step: int, reasons: tuple[str, ...], seconds: float) -> bool:
        """Write a checkpoint before this returns; returns whether it is whole, on all ranks, within `seconds`.

        For a process that is about to end: it writes by itself, because the writer process runs at the lowest priority,
        and abandons the write before.
        """
        deadline = time.monotonic() + seconds
        if self._writer is not None:
            self._writer.abandon()
        writer, request = self._stage(state, step, reasons)
        writer.abandon()
        done = False
        assert self._buffer is not None
        try:
            share = self._share(max(0.1, deadline - time.monotonic()))
            write_share(share, request, self._buffer.tensors, lambda: False, lambda: None)
            done = True  # In the far store too: the folder of a pod goes with it.
        except Exception as error:
            logger.warning("The last checkpoint could not be written: %s", error)
        return self._all(done and time.monotonic() <= deadline)

    def finish(self) -> bool:
        """Wait for the last write, and end the writer; returns whether everything is written."""
        writer = self._drop()
        whole = self._all(writer is None or not writer.wait(_PATIENCE_SECONDS) or not writer.failed)
        return self._all(writer is None or writer.close(_DEADLINE_SECONDS if whole else 0.0))

    def let_go(self) -> None:
        """Let the writer finish by itself, without waiting and without the other ranks, as after an error."""
        writer = self._drop()
        if writer is not None:
            writer.let_go()

    def _drop(self) -> BackgroundWriter | None:
        """Release plan and buffer; returns the writer, which still has them."""
        writer = self._writer
        if self._buffer is not None:
            self._buffer.close()
        self._plan = self._buffer = self._writer = None
        return writer

    def _stage(self, state: TrainingState, step: int, reasons: tuple[str, ...]) -> tuple[BackgroundWriter, Request]:
        tree = dict(state.state_dict())
        private = tree.pop(PRIVATE, None)
        if private is not None:
            tree[PRIVATE] = {str(self._rank): private}
        tensors, values = flatten(tree)
        settled = self._writer is None or self._writer.wait(_PATIENCE_SECONDS)
        same = self._plan is not None and self._plan.structure == structure_of(tensors, values)
        same, whole = self._agree(same, self._writer is None or not self._writer.failed)
        if self._writer is not None and not settled:
            # The writer finds no processor time, or waits for a part that is lost.
            logger.warning("Training waits for the checkpoint before. Let checkpoints be due less often.")
            if not (whole and self._writer.wait(_DEADLINE_SECONDS)):
                self._writer.abandon()
        if not same:
            plan = make_plan(tensors, values, self._group)
            self.finish()
            self._plan, self._buffer = plan, StagingBuffer(plan)
            self._writer = BackgroundWriter(self._share(_PEERS_SECONDS), self._buffer)
        assert self._plan is not None and self._buffer is not None and self._writer is not None
        self._buffer.copy([local(tensors[chunk.key]) for chunk in self._plan.chunks])
        self._sequence += 1
        self._last_step, self._last_time = step, time.monotonic()
        own = {path: value for path, value in values.items() if path in self._plan.values}
        return self._writer, Request(self._sequence, step, reasons, own)

    def _share(self, peers_seconds: float) -> Share:
        assert self._plan is not None
        return Share(
            folder=str(self._folder),
            rank=self._rank,
            world_size=self._world,
            chunks=self._plan.chunks,
            bytes=self._plan.bytes,
            uniform=self._plan.uniform,
            keep=self._policy.keep,
            complete=not self._far or int(os.environ.get("LOCAL_WORLD_SIZE", self._world)) == self._world,
            far=self._far,
            far_prefix=self._far_prefix,
            peers_seconds=peers_seconds,
        )

    def _verified(self, store: CheckpointStore, sequence: int) -> Saved | None:
        """The checkpoint if all of it is whole: each rank reads, and fetches, its share of the files."""
        saved = None
        try:
            saved = store.read(sequence)
            for rank in range(saved.world_size):
                part = store.part(saved, rank)
                if part.bytes and rank % self._world == self._rank:
                    store.file(saved, part, verify=True)
        except TornCheckpointError as error:
            logger.warning("%s", error)
            saved = None
        return saved if self._all(saved is not None) else None

    def _all(self, own: bool) -> bool:
        """Whether this holds on all ranks."""
        return self._agree(own)[0]

    def _agree(self, *own: bool) -> list[bool]:
        """Which of these hold on all ranks."""
        if self._group is None:
            return list(own)
        answer = torch.tensor(own, dtype=torch.int32)
        dist.all_reduce(answer, dist.ReduceOp.MIN, group=self._group)
        return [bool(value) for value in answer.tolist()]
