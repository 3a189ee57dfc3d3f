"""The boosting loop: gradient-boosted trees on the rows of a job, over one process or several.

A round adds one tree (one per class), and its draws are a function of seed and round alone. With trees and history in
the checkpoint, a run that resumes after any round ends in the same bits as one that was never interrupted.
"""

import hashlib
import logging
import math
import os
import socket
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import xgboost
from xgboost.collective import CommunicatorContext
from xgboost.tracker import RabitTracker

from gatehouse.launchers.launcher import METRICS, WEIGHTS, collective_seconds
from gatehouse.launchers.ranks import Agreement, Heartbeat, Preempted, StepBarrier
from gatehouse.tracking.metrics_file import MetricsFile
from gatehouse.training.batches import Rows
from gatehouse.training.checkpointing.checkpointer import LAST_SECONDS, Checkpointer
from gatehouse.training.compute import DivergedError
from gatehouse.training.loss import loss_of
from gatehouse.training.predictor import tree_columns
from gatehouse.training.shards import SIZES
from gatehouse.training.spec import HuberLoss, TreesTraining, measured_metrics
from gatehouse.training.validation import best_epoch, gathered, is_over, log_epochs, metrics_of, sums_of

logger = logging.getLogger(__name__)

CHECKPOINT_ROUNDS = 50
_SHOWN_ROUNDS = 10
_LEAST_BYTES = 1 << 16
_OBJECTIVES = {
    "binary": "binary:logistic",
    "multiclass": "multi:softprob",
    "mse": "reg:squarederror",
    "huber": "reg:squarederror",  # For its margins; the gradients are computed here.
    "pairwise": "rank:pairwise",
}


def parameters(spec: TreesTraining, outputs: int) -> dict[str, Any]:
    """XGBoost's parameters for a model of `outputs` scores per row; `begin_round` seeds each round anew."""
    tree, boosting = spec.model, spec.optimizer
    settings: dict[str, Any] = {
        "objective": _OBJECTIVES[spec.loss.kind],
        "disable_default_eval_metric": 1,
        "tree_method": "hist",
        "nthread": spec.parallelism.threads,
        "seed": spec.seed,
        "eta": boosting.learning_rate,
        "max_depth": tree.max_depth,
        "min_child_weight": tree.min_child_weight,
        "min_split_loss": tree.min_split_loss,
        "alpha": boosting.l1,
        "lambda": boosting.l2,
        "subsample": boosting.row_share,
        "colsample_bytree": boosting.column_share,
        "max_bin": tree.bins,
        "max_cat_to_onehot": tree.one_hot_below,
    }
    return settings | ({"num_class": outputs} if outputs > 1 else {})


def begin_round(booster: xgboost.Booster, spec: TreesTraining, number: int) -> None:
    """Make the draws of a round a function of seed and round, so that a resumed run draws the same.

    XGBoost applies a new seed at once, but the sampler of columns keeps its state as long as the tree method stays: the
    method is exchanged for another and back.
    """
    booster.set_param({"seed": spec.seed * 1_000_003 + number, "tree_method": "approx"})
    booster.num_features()  # Parameters are applied when they are next needed.
    booster.set_param({"tree_method": "hist"})


class BoostingState:
    """Trees and history: what a checkpoint holds."""

    def __init__(self, settings: dict[str, Any], cached: list[xgboost.DMatrix]) -> None:
        """Begin without a tree; XGBoost keeps the margins of the `cached` rows from round to round."""
        self._settings, self._cached = settings, cached
        self.booster = xgboost.Booster(settings, cached)
        self.history: list[dict[str, Any]] = []

    def state_dict(self) -> dict[str, Any]:
        """The same on every process. Trees grow: padding to a power of two changes the shape seldom."""
        data = np.frombuffer(self.booster.save_raw("ubj"), np.uint8) if self.history else np.zeros(0, np.uint8)
        room = max(_LEAST_BYTES, 1 << max(0, len(data) - 1).bit_length())
        trees = torch.from_numpy(np.pad(data, (0, room - len(data))))
        return {"model": {"trees": trees}, "progress": {"bytes": len(data), "history": list(self.history)}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        progress = state["progress"]
        data = bytearray(state["model"]["trees"][: progress["bytes"]].numpy().tobytes())
        self.booster = xgboost.Booster(self._settings, self._cached, model_file=data)
        self.history = list(progress["history"])


class BoostingTrainer:
    """Grows the trees of one model on the processes of the current process group."""

    def __init__(
        self, spec: TreesTraining, architecture: dict[str, Any], directory: Path, heartbeat: Heartbeat | None = None
    ) -> None:
        """Read this process's shards of the train rows and of the validation rows, if any; collective."""
        self.spec, self.directory = spec, directory
        self.loss = loss_of(spec.loss)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        shard = self.rank if self.world_size > 1 else None
        self.train_rows = Rows.load(directory / "train", shard)
        self.rows = len(self.train_rows) if shard is None else int(np.load(directory / "train" / SIZES).sum())
        held_out = [] if spec.stopping.refit else [Rows.load(directory / "validation", shard)]
        types = ["q"] * architecture["width"] + ["c"] * len(architecture["cardinalities"])
        options = {"feature_types": types, "enable_categorical": True, "nthread": spec.parallelism.threads}
        self.train_matrix = xgboost.QuantileDMatrix(**_matrix(self.train_rows), max_bin=spec.model.bins, **options)
        # Labels stay outside: they are those of all rows, also where this process has a shard of the numbers.
        self.validation = [(rows, xgboost.DMatrix(_columns(rows), **options)) for rows in held_out]
        settings = parameters(spec, architecture["outputs"])
        if isinstance(spec.loss, HuberLoss):
            labels: list[Any] = [None] * self.world_size
            dist.all_gather_object(labels, self.train_rows.labels.numpy())
            settings["base_score"] = float(np.median(np.concatenate(labels)))
        self.state = BoostingState(settings, [self.train_matrix, *(matrix for _, matrix in self.validation)])
        self.checkpointer = Checkpointer.of_environment(directory, spec.checkpoints)
        self.barrier = StepBarrier(heartbeat)
        self.metrics = MetricsFile(directory / METRICS) if self.rank == 0 else None

    def train(self) -> dict[str, Any] | None:
        """Add trees until the last round or until patience ends; see `Trainer.train`."""
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
                self.checkpointer.maybe_save(state, done, due=agreed.due, epoch_ended=done % CHECKPOINT_ROUNDS == 0)
                agreed = self.barrier.agree(done, due=self.checkpointer.due, epoch_ended=number)
                if agreed.preempted:
                    saved = self.checkpointer.save_now(state, done, ("preemption",), agreed.seconds - LAST_SECONDS)
                    self.barrier.report(Preempted(done, saved))
                    return None
            self.checkpointer.finish()
        finally:
            self.checkpointer.let_go()
            if self.metrics:
                self.metrics.close()
        best, digest, importance = best_epoch(state.history, self.spec), "", {}
        if self.rank == 0:
            kept = state.booster[: best + 1]
            data = bytes(kept.save_raw("ubj"))
            (self.directory / WEIGHTS).write_bytes(data)
            digest = hashlib.sha256(data).hexdigest()
            importance = kept.get_score(importance_type="total_gain")
        dist.barrier()
        return {
            "history": state.history,
            "best_epoch": best,
            "weights_sha256": digest,
            "importance": {int(column.removeprefix("f")): gain for column, gain in sorted(importance.items())},
        }

    def _round(self, number: int) -> None:
        """Grow the round's trees, and measure."""
        began = time.monotonic()
        booster, name = self.state.booster, self.loss.name
        begin_round(booster, self.spec, number)
        if isinstance(self.spec.loss, HuberLoss):
            # Curvature 1 is the most that it is anywhere, so that no step makes the loss larger (Hunter and Lange
            # 2004). Huber's own, which is 0 far away, and XGBoost's for it make steps too long.
            rows, delta = self.train_rows, self.spec.loss.delta
            weights = np.ones(len(rows)) if rows.weights is None else rows.weights.double().numpy()
            errors = (self._margins(self.train_matrix) - rows.labels.double()).clamp(-delta, delta).numpy()
            booster.boost(self.train_matrix, number, grad=errors * weights, hess=weights)
        else:
            booster.update(self.train_matrix, number)
        seconds = time.monotonic() - began
        sums = torch.tensor(sums_of(self._margins(self.train_matrix), self.train_rows, self.loss), dtype=torch.float64)
        dist.all_reduce(sums)
        total, weight = sums.tolist()
        row = {"epoch": number, f"train_{name}": total / weight if weight else 0.0}
        for rows, matrix in self.validation:
            own = self._margins(matrix)
            margins = gathered(own, self.rank * len(own), len(rows))
            row |= metrics_of(margins, rows, self.loss, measured_metrics(self.spec))
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

    def _margins(self, matrix: xgboost.DMatrix) -> torch.Tensor:
        return torch.from_numpy(self.state.booster.predict(matrix, output_margin=True)).double()


def train(
    spec: TreesTraining, architecture: dict[str, Any], directory: Path, heartbeat: Heartbeat | None = None
) -> dict[str, Any] | None:
    """Train one model on the processes of the current process group; see `BoostingTrainer.train`.

    Several processes use XGBoost's own collective, whose tracker runs in rank 0.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    context: Any = nullcontext()
    if world_size > 1:
        box: list[Any] = [None]
        if rank == 0:
            host = socket.gethostbyname(os.environ.get("MASTER_ADDR", "localhost"))
            tracker = RabitTracker(n_workers=world_size, host_ip=host, sortby="task")
            tracker.start()
            box = [tracker.worker_args()]
        dist.broadcast_object_list(box, src=0)
        # Ranks as torch has them, which decide the order of sums, and torch's patience.
        place: dict[str, Any] = {"dmlc_task_id": f"{rank:06d}", "dmlc_timeout": math.ceil(collective_seconds())}
        context = CommunicatorContext(**box[0], **place)
    try:
        with context:
            result = BoostingTrainer(spec, architecture, directory, heartbeat).train()
        if world_size > 1:
            dist.barrier()  # All have said goodbye to the tracker, which ends with rank 0.
    except xgboost.core.XGBoostError as error:
        if world_size == 1:
            raise
        # A peer may be gone: the program retries after a RuntimeError.
        raise RuntimeError(str(error)) from error
    return result


def _columns(rows: Rows) -> Any:
    return tree_columns(rows.numbers.numpy(), rows.ids.numpy())


def _matrix(rows: Rows) -> dict[str, Any]:
    """The arguments of a DMatrix for the rows of a part."""
    arrays = {"data": _columns(rows), "label": rows.labels.numpy()}
    if rows.weights is not None:
        arrays["weight"] = rows.weights.numpy()
    if rows.groups is not None:
        arrays["qid"] = rows.groups.numpy()
    return arrays
