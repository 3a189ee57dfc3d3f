"""The training loop, to be read from top to bottom; each concern stands in a file beside it.

Every random choice is a pure function of seed, epoch and place, and everything that is not is in `TrainState`: a run
that resumes at any step ends in the same bits as one that was never interrupted.
"""

import hashlib
import logging
import math
import time
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from gatehouse.launchers.launcher import METRICS, WEIGHTS
from gatehouse.launchers.worker.heartbeat import Heartbeat
from gatehouse.launchers.worker.preemption import Preempted
from gatehouse.launchers.worker.step_barrier import Agreement, StepBarrier
from gatehouse.tracking.spool import SpoolWriter
from gatehouse.training import waits
from gatehouse.training.checkpointing.checkpointer import Checkpointer
from gatehouse.training.compute.precision import LossScaler
from gatehouse.training.data.batches import Batch, Loader, Step
from gatehouse.training.data.rows import Rows
from gatehouse.training.data.sampler import Position
from gatehouse.training.loop.divergence import ROWS, DivergedError, origin
from gatehouse.training.loop.metrics import log_epochs
from gatehouse.training.loop.rng import draw_again, drawn, seed_all
from gatehouse.training.loop.state import Progress, TrainState, copy_of
from gatehouse.training.loop.stopping import best_epoch, is_over
from gatehouse.training.loop.validation import validate
from gatehouse.training.loop.weights import save_weights
from gatehouse.training.loss.losses import loss_of
from gatehouse.training.models.building import build_model, require_logits
from gatehouse.training.optimizer.adamw import build_optimizer
from gatehouse.training.optimizer.clipping import gradient_norm, scale_gradients
from gatehouse.training.optimizer.schedule import learning_rate, set_rates
from gatehouse.training.parallel.mesh import lay_out
from gatehouse.training.parallel.parallelize import parallelize
from gatehouse.training.spec import NetworkTraining, measured_metrics

logger = logging.getLogger(__name__)

_ADVICE = "Lower training.optimizer.learning_rate, or look for extreme values among the features."
_ROWS_ADVICE = "Look for values of the training set that no 32-bit number holds."


class Trainer:
    """Trains one model on the processes of the current process group; every process has a Trainer of its own."""

    def __init__(
        self, spec: NetworkTraining, architecture: dict[str, Any], directory: Path, heartbeat: Heartbeat | None = None
    ) -> None:
        """Build everything from the job's files.

        Args:
            spec: What to train.
            architecture: What `build_model` takes.
            directory: Holds the data of both parts, or of `train` alone for a refit; takes metrics, checkpoints and
                weights.
            heartbeat: Told of every step.
        """
        self.spec, self.directory = spec, directory
        self.outputs: int = architecture["outputs"]
        kind = spec.compute.device
        self.device = torch.device("cpu") if kind == "cpu" else torch.device("cuda", torch.cuda.current_device())
        self.layout = lay_out(spec.parallelism, kind)
        self.loss = loss_of(spec.loss)
        parts = ("train",) if spec.stopping.refit else ("train", "validation")
        self.data = {part: Rows.load(directory / part) for part in parts}
        self.loader = Loader(self.data["train"], spec, self.layout.data_rank, self.layout.data_size)
        seed_all(spec.seed)
        rows = math.ceil(spec.data.batch_size / (self.layout.data_size * spec.data.accumulation))
        model = build_model(architecture)
        require_logits(model, architecture)
        self.execution = parallelize(model, spec, self.layout, self.loss, self.device, rows)
        part = self.execution.part
        self.parameters = list(part.parameters())
        self.optimizer = build_optimizer(part, spec.optimizer)
        self.state = TrainState(
            part, self.optimizer, LossScaler(spec.compute), Position(), Progress(), copy_of(part), self.device
        )
        self.checkpointer = Checkpointer.of_environment(directory, spec.checkpoints)
        self.barrier = StepBarrier(heartbeat)
        self.metrics = SpoolWriter(directory / METRICS) if self.layout.leads else None
        self.began = 0, time.monotonic()

    def train(self) -> dict[str, Any] | None:
        """Train until the last epoch or until patience ends; write the best epoch's weights; return the result.

        Returns None where the run is preempted: its checkpoint is written then.

        Raises:
            DivergedError: if a gradient or the validation loss is not finite; names step and tensor.
        """
        state, position = self.state, self.state.position
        self.barrier.beat(0)
        restored = self.checkpointer.load(state)
        self.barrier.beat(state.progress.step)
        if restored is not None and not restored.same_world_size:
            self._seed(position.epoch)
        log_epochs(self.metrics, state.progress.history)
        self.began = state.progress.step, time.monotonic()
        agreed = Agreement()
        steps = self.loader.from_position(position)
        try:
            while not is_over(state.progress.history, self.spec) and (step := next(steps, None)):
                if step.index == 0:
                    self._seed(step.epoch)
                    self.began = state.progress.step, time.monotonic()
                self._step(step)
                state.progress.step += 1
                position.epoch, position.step = step.epoch, step.index + 1
                if step.last:
                    self._end_epoch(step.epoch)
                    position.epoch, position.step = step.epoch + 1, 0
                ended = step.epoch if step.last else None
                best = step.last and best_epoch(state.progress.history, self.spec) == step.epoch
                self.checkpointer.maybe_save(
                    state, state.progress.step, due=agreed.due, epoch_ended=step.last, best=best
                )
                agreed = self.barrier.agree(state.progress.step, due=self.checkpointer.due, epoch_ended=ended)
                if agreed.preempted:
                    self._end_preempted(agreed.seconds)
                    return None
            self.checkpointer.finish()
        finally:
            steps.close()
            self.checkpointer.let_go()
            if self.metrics:
                self.metrics.close()
        return self._result()

    def _end_preempted(self, seconds: float) -> None:
        step = self.state.progress.step
        saved = self.checkpointer.save_now(self.state, step, ("preemption",), seconds - waits.LAST_SECONDS)
        self.barrier.report(Preempted(step, saved))

    def _seed(self, epoch: int) -> None:
        """Dropout follows from seed, epoch and place; tensor neighbours, who hold the same activations, draw alike.

        So tensor parallelism drops what one process drops; replicas and stages of a pipeline draw independently.
        """
        place = self.layout.pipeline_rank * self.layout.data_size + self.layout.data_rank
        seed_all(self.spec.seed * 1_000_003 + epoch * 1_009 + place)

    def _step(self, step: Step) -> None:
        """One optimizer step: the mean loss of the global batch, its gradient, clipped, applied."""
        progress = self.state.progress
        own, weight = self._weights_of(step)
        if not weight:
            return  # No row counts: there is nothing to learn, and nothing to divide by.
        batch = step.batch if self.device.type == "cpu" else step.batch.to(self.device)
        settings = self.spec.optimizer.at(step.epoch)
        rate = learning_rate(progress.step, self.loader.steps * self.spec.stopping.epochs, settings)
        set_rates(self.optimizer, rate, settings.weight_decay)
        # Gradients are averaged over the data axis: times its size, their sum is divided by the whole batch's weight.
        factor = self.layout.data_size / weight
        loss, norm, scale = self._gradient(step, batch, factor)
        scale_gradients(self.parameters, norm, settings.clip_norm, scale)
        self.optimizer.step()
        progress.loss += loss
        progress.weight += weight
        if self.metrics:
            logged = {"grad_norm": float(norm) / scale, "learning_rate": rate}
            # The mean over the rows of this process: that over all of them would cost an exchange a step.
            self.metrics.log(({"step_loss": loss / own} if own else {}) | logged, progress.step)

    def _gradient(self, step: Step, batch: Batch, factor: float) -> tuple[float, Tensor, float]:
        """Make the gradient, again with half the scale where it is too large for fp16: no batch is left out.

        Returns:
            The loss, the norm of the gradient, and the scale that is in both gradient and norm.
        """
        scaler = self.state.scaler
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            scale, before = scaler.scale, drawn(self.device)
            loss = self.execution.backward(batch, factor * scale)
            norm = gradient_norm(self.parameters, self.layout)
            if torch.isfinite(norm):
                scaler.grow()
                return float(loss), norm, scale
            if not self._finite_everywhere(loss) or not scaler.shrink():
                self._halt(step, batch, loss, before)

    def _finite_everywhere(self, loss: Tensor) -> bool:
        finite = torch.isfinite(loss).to(torch.int32)
        dist.all_reduce(finite, dist.ReduceOp.MIN)
        return bool(finite)

    def _weights_of(self, step: Step) -> tuple[float, float]:
        """What the loss of this process is divided by, and those of all; without talking where every row weighs one."""
        if self.loss.by_rows and self.data["train"].weights is None:
            # Here only padding rows have weight 0. Only the log needs this process's own number of rows.
            return float(step.batch.weights.sum()) if self.metrics else 0.0, float(step.rows)
        parts = step.batch.split(self.spec.data.accumulation)
        own = float(sum(self.loss.weight(part.labels, part.weights, part.groups) for part in parts))
        total = torch.tensor(own, dtype=torch.float64, device=self.device)
        # Neighbours along tensor and pipeline have the same rows.
        dist.all_reduce(total)
        return own, float(total) / (self.layout.tensor_size * self.layout.pipeline_size)

    def _halt(self, step: Step, batch: Batch, loss: Tensor, before: list[Tensor]) -> NoReturn:
        began = origin(self.execution, batch, loss, self.layout, lambda: draw_again(before, self.device))
        raise DivergedError(
            f"The gradient is not finite in epoch {step.epoch}, step {self.state.progress.step}: it began in {began}. "
            f"{self.checkpointer.last} {_ROWS_ADVICE if began.startswith(ROWS) else _ADVICE}"
        )

    def _end_epoch(self, epoch: int) -> None:
        """Validate, and keep the weights where they are the best so far."""
        progress = self.state.progress
        self._log_speed()
        name = self.loss.name
        row = {"epoch": epoch, f"train_{name}": self._train_loss()}
        if "validation" in self.data:
            row |= validate(
                self.execution,
                self.data["validation"],
                self.layout,
                self.loss,
                measured_metrics(self.spec),
                self.outputs,
                self.device,
                lambda: self.barrier.beat(progress.step),
            )
        self._require_sound(row)
        progress.history.append(row)
        log_epochs(self.metrics, [row])
        progress.loss = progress.weight = 0.0
        if best_epoch(progress.history, self.spec) == epoch:
            self.state.keep_best()
        if dist.get_rank() == 0:
            shown = "  ".join(f"{key} {value:.5f}" for key, value in row.items() if key != "epoch")
            logger.info("epoch %d/%d  %s", epoch + 1, self.spec.stopping.epochs, shown)

    def _log_speed(self) -> None:
        """Of the epoch, without its validation; of what is left of it after a checkpoint."""
        steps = self.state.progress.step - self.began[0]
        if self.metrics and steps:
            rows = steps / self.loader.steps * len(self.data["train"])
            speed = rows / max(time.monotonic() - self.began[1], 1e-9)
            self.metrics.log({"samples_per_second": speed}, self.state.progress.step)

    def _train_loss(self) -> float:
        progress = self.state.progress
        total = torch.tensor(progress.loss if self.layout.leads_data else 0.0, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return float(total) / progress.weight if progress.weight else 0.0

    def _require_sound(self, row: dict[str, Any]) -> None:
        name, epoch = self.loss.name, row["epoch"]
        part = "validation" if name in row else "train"
        if not math.isfinite(row.get(name, row[f"train_{name}"])):
            raise DivergedError(
                f"The {part} {name} is not finite after epoch {epoch}. {self.checkpointer.last} {_ADVICE}"
            )
        history, most = self.state.progress.history, self.spec.stopping.divergence
        if most and history and row[f"train_{name}"] > most * history[0][f"train_{name}"]:
            raise DivergedError(
                f"The train {name} of epoch {epoch} is {row[f'train_{name}']:.6g}: over "
                f"training.stopping.divergence={most:g} times that of the first epoch, "
                f"{history[0][f'train_{name}']:.6g}. {self.checkpointer.last} {_ADVICE}"
            )

    def _result(self) -> dict[str, Any]:
        path = self.directory / WEIGHTS
        save_weights(self.state.best, path, self.layout)
        history = self.state.progress.history
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if dist.get_rank() == 0 else ""
        return {"history": history, "best_epoch": best_epoch(history, self.spec), "weights_sha256": digest} | {
            "world_sizes": self.checkpointer.world_sizes
        }
