"""Takes checkpoints of a training run when they are due, and brings a run back to its last whole one.

All methods are collective: every rank calls them at the same step boundary. What they exchange is a few numbers; the
writing itself needs no collective.
"""

import fcntl
import logging
import os
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from gatehouse.errors import GatehouseError
from gatehouse.launchers.launcher import CHECKPOINT_NAME, CHECKPOINT_STORE, CHECKPOINTS
from gatehouse.launchers.timeouts import collective_seconds
from gatehouse.store.objects.opening import open_objects
from gatehouse.training.checkpointing.background import BackgroundWriter
from gatehouse.training.checkpointing.buffer import StagingBuffer
from gatehouse.training.checkpointing.format import BEST, CheckpointStore, Saved, TornCheckpointError
from gatehouse.training.checkpointing.part import Request, Share, near, scratch, write_share
from gatehouse.training.checkpointing.plan import PRIVATE, Plan, make_plan, structure_of
from gatehouse.training.checkpointing.reader import read_state
from gatehouse.training.checkpointing.spec import CheckpointSpec
from gatehouse.training.checkpointing.tree import flatten

logger = logging.getLogger(__name__)

_DEADLINE_SECONDS = 60.0
"""For whatever a rank awaits between two exchanges: its peers wait for it, and must not take it for dead."""
_PEERS_SECONDS = 300.0
_PATIENCE_SECONDS = 2.0
_ORPHANS_AHEAD = 2
"""A writer that nobody awaits any more may still write a checkpoint of at most so many numbers after the last."""


class TrainingState(Protocol):
    """Everything that decides how a run goes on: model, optimizer, schedule, scaler, position, generators, history."""

    def state_dict(self) -> dict[str, Any]:
        """The state, nested; what belongs to this rank alone is under `rank`."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state as `state_dict` gave it; without the entry `rank` after a change of the world size."""


@dataclass(frozen=True)
class Restored:
    """Where a run goes on.

    Attributes:
        step: Steps that are done.
        world_sizes: From which step on the run had how many ranks, this attempt's last.
        same_world_size: Whether the checkpoint was written by as many ranks as there are now; bits differ otherwise.
    """

    step: int
    world_sizes: tuple[tuple[int, int], ...]
    same_world_size: bool


class Checkpointer:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, policy: CheckpointSpec, *, far: str = "", name: str = "") -> None:
        """Make a checkpointer; collective where a process group is there.

        Args:
            folder: Takes the checkpoints; all ranks of one machine see the same folder.
            policy: When, and how many.
            far: Address of an artifact store that gets a copy of each; empty for none.
            name: Names the run there.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._policy = policy
        self._far, self._far_prefix = far, f"scratch/checkpoints/{name}"
        alone = not (dist.is_initialized() and dist.get_world_size() > 1)
        self._group = None if alone else dist.new_group(backend="gloo", timeout=timedelta(seconds=collective_seconds()))
        self._rank, self._world = (0, 1) if alone else (dist.get_rank(), dist.get_world_size())
        self._world_sizes: tuple[tuple[int, int], ...] = ((0, self._world),)
        self._sequence = 0
        self._last_step = -1
        self._last_time = time.monotonic()
        self._plan: Plan | None = None
        self._buffer: StagingBuffer | None = None
        self._writer: BackgroundWriter | None = None

    @classmethod
    def of_environment(cls, directory: Path, policy: CheckpointSpec) -> "Checkpointer":
        """The checkpointer of a job: in a folder of its directory, with a copy where the environment asks for one."""
        far = os.environ.get(CHECKPOINT_STORE, "")
        return cls(directory / CHECKPOINTS, policy, far=far, name=os.environ.get(CHECKPOINT_NAME, directory.name))

    @property
    def world_sizes(self) -> list[list[int]]:
        """From which step on the run has had how many ranks."""
        return [list(each) for each in self._world_sizes]

    @property
    def last(self) -> str:
        """Which checkpoint a halt leaves behind, as a sentence of its error."""
        if self._last_step < 0:
            return "No checkpoint was taken before."
        return f"The last checkpoint was taken after step {self._last_step}."

    def load(self, state: TrainingState) -> Restored | None:
        """Bring `state` to the last whole checkpoint; None, and nothing is changed, where there is none.

        What is torn is skipped with a warning that names it.
        """
        # No rank looks before the writers of all machines have ended.
        gone = self._all(self._clear())
        sources = self._sources()
        taken = [sequence for store in sources for sequence in store.sequences()]
        found = [(saved.sequence, place) for place, store in enumerate(sources) for saved in store.saved()]
        # The folder is asked before the far store; what no rank of its machine sees there is fetched.
        candidates = sorted(found, key=lambda each: (-each[0], each[1]))
        self._sequence, candidates = self._from_first((max(taken, default=0), candidates))
        if not gone:
            logger.warning("A checkpoint writer of the attempt before is still at work: its numbers are left to it.")
            self._sequence += _ORPHANS_AHEAD
        for sequence, place in candidates:
            saved = self._verified(sources, sequence, place)
            if saved is not None:
                return self._restore(state, sources[place], saved)
        return None

    def maybe_save(
        self, state: TrainingState, step: int, *, due: bool = False, epoch_ended: bool = False, best: bool = False
    ) -> bool:
        """Take a checkpoint where one is due after `step` steps; returns whether one was taken.

        Args:
            state: To be saved.
            step: Steps that are done.
            due: Whether the ranks agreed that it is time (see `due`).
            epoch_ended: Whether this step was the last of an epoch.
            best: Whether a validation metric was the best so far.
        """
        every = self._policy.every_steps
        interval = (due or (every is not None and step % every == 0)) and step != self._last_step
        ended = epoch_ended and self._policy.every_epoch
        reasons = tuple(name for name, wanted in (("interval", interval), ("epoch", ended), (BEST, best)) if wanted)
        if not reasons:
            return False
        self.save(state, step, reasons)
        return True

    @property
    def due(self) -> bool:
        """Whether the last checkpoint is longer ago than the policy allows, by this rank's clock."""
        minutes = self._policy.every_minutes
        return minutes is not None and time.monotonic() - self._last_time >= minutes * 60

    def save(self, state: TrainingState, step: int, reasons: tuple[str, ...]) -> None:
        """Stage a checkpoint now, to be written while training goes on.

        Waits where the one before is still being written: checkpoints are due faster than they can be written then.
        """
        writer, request = self._stage(state, step, reasons)
        writer.request(request)

    def save_now(self, state: TrainingState, step: int, reasons: tuple[str, ...], seconds: float) -> bool:
        """Write a checkpoint before this returns, for a process that is about to end.

        This process writes it, because the writer process runs at the lowest priority. A write that the writer had
        begun is abandoned.

        Returns:
            Whether it is whole, on all ranks, within `seconds`.
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
        """Wait for what is being written, and end the writer; returns whether all of it is written."""
        writer = self._drop()
        whole = self._all(writer is None or not writer.wait(_PATIENCE_SECONDS) or not writer.failed)
        return self._all(writer is None or writer.close(_DEADLINE_SECONDS if whole else 0.0))

    def let_go(self) -> None:
        """Let the writer finish by itself, without waiting and without the other ranks, as after an error."""
        writer = self._drop()
        if writer is not None:
            writer.let_go()

    def _drop(self) -> BackgroundWriter | None:
        """Forget plan and buffer; returns the writer, which still has them."""
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
        if not settled:
            self._take_over(whole=whole)
        if not same:
            self._replan(make_plan(tensors, values, self._group))
        assert self._plan is not None and self._buffer is not None and self._writer is not None
        self._buffer.copy(self._plan.pieces(tensors))
        self._sequence += 1
        self._last_step, self._last_time = step, time.monotonic()
        mine = {path: value for path, value in values.items() if path in self._plan.values}
        return self._writer, Request(self._sequence, step, self._world_sizes, reasons, mine)

    def _take_over(self, *, whole: bool) -> None:
        """Free the buffer of a writer that is late: it finds no processor time, or waits for a part that is lost."""
        assert self._writer is not None and self._buffer is not None
        request = self._writer.abandon()
        if request is None or not whole:
            return
        logger.warning("Training waits for the checkpoint before. Let checkpoints be due less often.")
        try:
            # Chunks that the writer has stored already are found in place, and are not written again.
            write_share(self._share(_DEADLINE_SECONDS), request, self._buffer.tensors, lambda: False, lambda: None)
        except GatehouseError as error:
            logger.warning("%s", error)

    def _replan(self, plan: Plan) -> None:
        self.finish()
        self._plan = plan
        self._buffer = StagingBuffer(plan)
        self._writer = BackgroundWriter(self._share(_PEERS_SECONDS), self._buffer)

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

    def _restore(self, state: TrainingState, store: CheckpointStore, saved: Saved) -> Restored:
        found = read_state(store, saved, state.state_dict(), self._rank)
        same = saved.world_size == self._world
        if not same:
            found.pop(PRIVATE, None)  # Either every rank goes on with what was its own, or none does.
        state.load_state_dict(found)
        self._last_step, self._last_time = saved.step, time.monotonic()
        self._world_sizes = saved.world_sizes if same else (*saved.world_sizes, (saved.step, self._world))
        if self._rank == 0:
            logger.info("Resumed from checkpoint %d after step %d.", saved.sequence, saved.step)
            if not same:
                logger.warning(
                    "The checkpoint was written by %d ranks and is read by %d: no sample is dropped or repeated, but "
                    "the bits of the weights may differ from those of a run on one world size.",
                    saved.world_size,
                    self._world,
                )
        return Restored(saved.step, self._world_sizes, same)

    def _verified(self, sources: list[CheckpointStore], sequence: int, place: int) -> Saved | None:
        """The checkpoint if all of it is whole: each rank reads, and fetches, its share of the files."""
        saved = None
        try:
            saved = sources[place].read(sequence)
            for rank in range(saved.world_size):
                part = sources[place].part(saved, rank)
                if part.bytes and rank % self._world == self._rank:
                    sources[place].file(saved, part, verify=True)
        except TornCheckpointError as error:
            logger.warning("%s", error)
            saved = None
        return saved if self._all(saved is not None) else None

    def _sources(self) -> list[CheckpointStore]:
        far = [CheckpointStore(open_objects(self._far), self._far_prefix)] if self._far else []
        return [near(self._folder), *far]

    def _clear(self) -> bool:
        """Wait for the writers of an attempt that was killed: what they have in their hands is the newest there is.

        What they left half is removed then. Returns whether all have ended.
        """
        deadline = time.monotonic() + _DEADLINE_SECONDS
        gone = all(_is_let_go(path, deadline) for path in self._folder.glob("writer-*.lock"))
        for file in scratch(self._folder).glob("*") if gone else ():
            file.unlink(missing_ok=True)
        return gone

    def _all(self, mine: bool) -> bool:
        """Whether it is so on all ranks."""
        return self._agree(mine)[0]

    def _agree(self, *mine: bool) -> list[bool]:
        """Which of these are so on all ranks."""
        if self._group is None:
            return list(mine)
        answer = torch.tensor(mine, dtype=torch.int32)
        dist.all_reduce(answer, dist.ReduceOp.MIN, group=self._group)
        return [bool(each) for each in answer.tolist()]

    def _from_first(self, mine: Any) -> Any:
        if self._group is None:
            return mine
        box = [mine]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]


def _is_let_go(path: Path, deadline: float) -> bool:
    with open(path, "r+") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.02)
