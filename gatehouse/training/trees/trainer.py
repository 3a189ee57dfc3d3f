"""The boosting loop: gradient-boosted trees on the rows of a job, over one process or several.

A round adds one tree (one a class), and its draws are a function of seed and round alone: with trees and history in the
checkpoint, a run that resumes after any round ends in the same bits as one that was never interrupted.
"""

import hashlib
import logging
import math
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import xgboost
from xgboost.collective import CommunicatorContext
from xgboost.tracker import RabitTracker

from gatehouse.errors import ConfigurationError
from gatehouse.launchers.launcher import METRICS, WEIGHTS
from gatehouse.launchers.timeouts import collective_seconds
from gatehouse.launchers.worker.heartbeat import Heartbeat
from gatehouse.launchers.worker.preemption import Preempted
from gatehouse.launchers.worker.step_barrier import Agreement, StepBarrier
from gatehouse.tracking.spool import SpoolWriter
from gatehouse.training import waits
from gatehouse.training.checkpointing.checkpointer import Checkpointer
from gatehouse.training.data.rows import Rows
from gatehouse.training.loop.divergence import DivergedError
from gatehouse.training.loop.metrics import log_epochs, metrics_of, sums_of
from gatehouse.training.loop.stopping import best_epoch, is_over
from gatehouse.training.loss.losses import loss_of
from gatehouse.training.loss.spec import HuberLoss
from gatehouse.training.spec import TreesTraining, measured_metrics
from gatehouse.training.trees.booster import begin_round, parameters
from gatehouse.training.trees.columns import column_types, columns

logger = logging.getLogger(__name__)

CHECKPOINT_ROUNDS = 50
_SHOWN_ROUNDS = 10
_LEAST_BYTES = 1 << 16


class BoostingState:
    """Trees and history: what a checkpoint holds."""

    def __init__(self, settings: dict[str, Any], cached: list[xgboost.DMatrix]) -> None:
        """Begin without a tree; `cached` are the rows whose margins are kept from round to round."""
        self._settings, self._cached = settings, cached
        self.booster = xgboost.Booster(settings, cached)
        self.history: list[dict[str, Any]] = []

    def state_dict(self) -> dict[str, Any]:
        """The same on every process. Trees grow: room for twice as many changes the shape seldom."""
        data = np.frombuffer(self.booster.save_raw("ubj"), np.uint8) if self.history else np.zeros(0, np.uint8)
        room = max(_LEAST_BYTES, 1 << max(0, len(data) - 1).bit_length())
        trees = torch.from_numpy(np.pad(data, (0, room - len(data))))
        return {"model": {"trees": trees}, "progress": {"bytes": len(data), "history": list(self.history)}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        progress = state["progress"]
        data = bytearray(state["model"]["trees"][: progress["bytes"]].numpy().tobytes())
        self.booster = xgboost.Booster(self._settings, self._cached, model_file=data)
        self.history = list(progress["history"])


class BoostingTrainer:
    """Grows the trees of one model on the processes of the current process group."""

    def __init__(
        self, spec: TreesTraining, architecture: dict[str, Any], directory: Path, heartbeat: Heartbeat | None = None
    ) -> None:
        """Read this process's share of the train rows, and all of the validation rows, if any; collective."""
        self.spec, self.directory = spec, directory
        self.loss = loss_of(spec.loss)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        whole = Rows.load(directory / "train")
        self.rows = whole.numbers.shape[0]
        self.train_rows = _share(whole, self.rank, self.world_size)
        held_out = [] if spec.stopping.refit else [Rows.load(directory / "validation")]
        types = column_types(architecture["width"], len(architecture["cardinalities"]))
        given = {"feature_types": types, "enable_categorical": True, "nthread": spec.parallelism.threads}
        self.train_matrix = xgboost.QuantileDMatrix(**_matrix(self.train_rows), max_bin=spec.model.bins, **given)
        self.validation = [(rows, xgboost.DMatrix(**_matrix(rows), **given)) for rows in held_out]
        settings = parameters(spec, architecture["outputs"])
        if isinstance(spec.loss, HuberLoss):
            settings["base_score"] = float(np.median(whole.labels.numpy()))
        self.state = BoostingState(settings, [self.train_matrix, *(matrix for _, matrix in self.validation)])
        self.checkpointer = Checkpointer.of_environment(directory, spec.checkpoints)
        self.barrier = StepBarrier(heartbeat)
        self.metrics = SpoolWriter(directory / METRICS) if self.rank == 0 else None

    def train(self) -> dict[str, Any] | None:
        """Add trees until the last round or until patience ends; see `Trainer.train`.

        Raises:
            DivergedError: if the loss of either part is not finite.
        """
        state = self.state
        self.barrier.beat(0)
        self.checkpointer.load(state)
        log_epochs(self.metrics, state.history)
        self.barrier.beat(len(state.history))
        agreed = Agreement()
        try:
            while len(state.history) < self.spec.stopping.rounds and not is_over(state.history, self.spec):
                number = len(state.history)
                self._round(number)
                done = number + 1
                ended = done % CHECKPOINT_ROUNDS == 0
                self.checkpointer.maybe_save(state, done, due=agreed.due, epoch_ended=ended)
                agreed = self.barrier.agree(done, due=self.checkpointer.due, epoch_ended=number)
                if agreed.preempted:
                    saved = self.checkpointer.save_now(
                        state, done, ("preemption",), agreed.seconds - waits.LAST_SECONDS
                    )
                    self.barrier.report(Preempted(done, saved))
                    return None
            self.checkpointer.finish()
        finally:
            self.checkpointer.let_go()
            if self.metrics:
                self.metrics.close()
        return self._result()

    def _round(self, number: int) -> None:
        """Grow the round's trees, and measure."""
        began = time.monotonic()
        booster, name = self.state.booster, self.loss.name
        begin_round(booster, self.spec, number)
        if isinstance(self.spec.loss, HuberLoss):
            gradients, curvatures = self._huber_gradients(self.spec.loss.delta)
            booster.boost(self.train_matrix, number, grad=gradients, hess=curvatures)
        else:
            booster.update(self.train_matrix, number)
        seconds = time.monotonic() - began
        row = {"epoch": number, f"train_{name}": self._train_loss()}
        for rows, matrix in self.validation:
            row |= metrics_of(self._margins(matrix), rows, self.loss, measured_metrics(self.spec))
        if not all(map(math.isfinite, row.values())):
            raise DivergedError(
                f"The {name} is not finite after round {number}. {self.checkpointer.last} Lower "
                "training.optimizer.learning_rate, or look for extreme values among labels and weights."
            )
        self.state.history.append(row)
        log_epochs(self.metrics, [row])
        if self.metrics:
            self.metrics.log({"samples_per_second": self.rows / max(seconds, 1e-9)}, number)
        if self.rank == 0 and ((number + 1) % _SHOWN_ROUNDS == 0 or number == 0):
            shown = "  ".join(f"{key} {value:.5f}" for key, value in row.items() if key != "epoch")
            logger.info("round %d/%d  %s", number + 1, self.spec.stopping.rounds, shown)

    def _huber_gradients(self, delta: float) -> tuple[Any, Any]:
        """Of each row, with one for the curvature: Huber's own, 0 far away, and XGBoost's for it, make steps too long.

        One is the most that it is anywhere, so that no step makes the loss larger (Hunter and Lange 2004).
        """
        rows = self.train_rows
        weights = np.ones(len(rows)) if rows.weights is None else rows.weights.double().numpy()
        errors = (self._margins(self.train_matrix) - rows.labels.double()).clamp(-delta, delta).numpy()
        return errors * weights, weights

    def _margins(self, matrix: xgboost.DMatrix) -> torch.Tensor:
        return torch.from_numpy(self.state.booster.predict(matrix, output_margin=True)).double()

    def _train_loss(self) -> float:
        sums = torch.tensor(sums_of(self._margins(self.train_matrix), self.train_rows, self.loss), dtype=torch.float64)
        dist.all_reduce(sums)
        total, weight = sums.tolist()
        return total / weight if weight else 0.0

    def _result(self) -> dict[str, Any]:
        history = self.state.history
        best = best_epoch(history, self.spec)
        digest, importance = "", {}
        if self.rank == 0:
            kept = self.state.booster[: best + 1]
            data = bytes(kept.save_raw("ubj"))
            (self.directory / WEIGHTS).write_bytes(data)
            digest = hashlib.sha256(data).hexdigest()
            importance = kept.get_score(importance_type="total_gain")
        dist.barrier()
        return {"history": history, "best_epoch": best, "weights_sha256": digest} | {
            "importance": {int(column.removeprefix("f")): gain for column, gain in sorted(importance.items())},
            "world_sizes": self.checkpointer.world_sizes,
        }


def train(
    spec: TreesTraining, architecture: dict[str, Any], directory: Path, heartbeat: Heartbeat | None = None
) -> dict[str, Any] | None:
    """Train one model on the processes of the current process group; see `BoostingTrainer.train`."""
    with _collective():
        return BoostingTrainer(spec, architecture, directory, heartbeat).train()


@contextmanager
def _collective() -> Iterator[None]:
    """XGBoost's own collective over the processes of the group, by a tracker in rank 0; nothing for one process."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size == 1:
        yield
        return
    box: list[Any] = [None]
    if rank == 0:
        host = socket.gethostbyname(os.environ.get("MASTER_ADDR", "localhost"))
        tracker = RabitTracker(n_workers=world_size, host_ip=host, sortby="task")
        tracker.start()
        box = [tracker.worker_args()]
    dist.broadcast_object_list(box, src=0)
    try:
        with CommunicatorContext(**box[0], **_place(rank)):
            yield
        dist.barrier()  # All have said goodbye to the tracker, which ends with rank 0.
    except xgboost.core.XGBoostError as error:
        # A peer may be gone: what is worth another attempt is a RuntimeError to the program.
        raise RuntimeError(str(error)) from error


def _place(rank: int) -> dict[str, Any]:
    """This process among the others: in the same order as torch's, in which sums are taken, and as patient."""
    return {"dmlc_task_id": f"{rank:06d}", "dmlc_timeout": math.ceil(collective_seconds())}


def _matrix(rows: Rows) -> dict[str, Any]:
    """What XGBoost takes of a part."""
    given = {"data": columns(rows.numbers.numpy(), rows.ids.numpy()), "label": rows.labels.numpy()}
    if rows.weights is not None:
        given["weight"] = rows.weights.numpy()
    if rows.groups is not None:
        given["qid"] = rows.groups.numpy()
    return given


def _share(rows: Rows, rank: int, world_size: int) -> Rows:
    """The rows of one process, one after another; a group stays whole.

    Raises:
        ConfigurationError: if a process would have none: XGBoost's sums over processes need rows on each.
    """
    # Rows of a group stand together, in ascending order of groups.
    starts = torch.arange(len(rows))
    if rows.groups is not None:
        starts = torch.searchsorted(rows.groups, torch.unique_consecutive(rows.groups))
    if len(starts) < world_size:
        what = "rows" if rows.groups is None else "groups"
        raise ConfigurationError(
            f"training.parallelism.processes={world_size} for {len(starts)} {what} of the part train: xgboost needs "
            "some on every process. Give it fewer processes."
        )
    cuts = [0]
    for each in range(1, world_size):
        near = int(torch.searchsorted(starts, len(rows) * each // world_size))
        # At least one for each process before, and for each after.
        cuts.append(min(max(near, cuts[-1] + 1), len(starts) - world_size + each))
    ends = [*(int(starts[cut]) for cut in cuts), len(rows)]
    taken = slice(ends[rank], ends[rank + 1])
    arrays = (rows.numbers, rows.ids, rows.labels, rows.weights, rows.groups)
    return Rows(*(None if each is None else each[taken] for each in arrays))  # type: ignore[arg-type]  # None where it was
