"""The training loop of networks, to be read from top to bottom; each concern is in a module beside it.

Every random choice is a pure function of seed, epoch and place; everything else that changes is in `TrainState`. So a
run that resumes at any step ends in the same bits as one that was never interrupted.
"""

import hashlib
import logging
import math
import random
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn

from gatehouse.launchers.launcher import METRICS, WEIGHTS
from gatehouse.launchers.ranks import Agreement, Heartbeat, Preempted, StepBarrier
from gatehouse.tracking.metrics_file import MetricsFile
from gatehouse.training.batches import Batch, Loader, Position, Rows, Step
from gatehouse.training.checkpointing.checkpointer import LAST_SECONDS, Checkpointer
from gatehouse.training.compute import DivergedError, LossScaler
from gatehouse.training.loss import loss_of
from gatehouse.training.models import build_model, require_logits
from gatehouse.training.optimizer import build_optimizer, gradient_norm, learning_rate, optimizer_state, scale_gradients
from gatehouse.training.parallel.mesh import Layout, is_spread, lay_out, local, whole
from gatehouse.training.parallel.parallelize import parallelize
from gatehouse.training.shards import shard_count
from gatehouse.training.spec import NetworkTraining, measured_metrics
from gatehouse.training.validation import best_epoch, is_over, log_epochs, metrics_of, validation_scores

logger = logging.getLogger(__name__)

_ADVICE = "Lower training.optimizer.learning_rate, or look for extreme values in the training set."


class Trainer:
    """Trains one model on the processes of the current process group; every process has a Trainer of its own."""

    def __init__(
        self, spec: NetworkTraining, architecture: dict[str, Any], directory: Path, heartbeat: Heartbeat | None = None
    ) -> None:
        """Build everything from the files of the job's directory, which also receives checkpoints and weights."""
        self.spec, self.directory = spec, directory
        self.outputs: int = architecture["outputs"]
        kind = spec.compute.device
        self.device = torch.device("cpu") if kind == "cpu" else torch.device("cuda", torch.cuda.current_device())
        self.layout = lay_out(spec.parallelism, kind)
        self.loss = loss_of(spec.loss)
        parts = ("train",) if spec.stopping.refit else ("train", "validation")
        shard = self.layout.data_rank if shard_count(spec) > 1 else None
        self.data = {part: Rows.load(directory / part, shard) for part in parts}
        place, places = self.layout.data_rank, self.layout.data_size
        self.loader = Loader(self.data["train"], spec, place, places, directory / "train")
        seed_all(spec.seed)
        model = build_model(architecture)
        require_logits(model, architecture)
        rows = math.ceil(spec.data.batch_size / (self.layout.data_size * spec.data.accumulation))
        self.execution = parallelize(model, spec, self.layout, self.loss, self.device, rows)
        part = self.execution.part
        self.parameters = list(part.parameters())
        self.optimizer = build_optimizer(part, spec.optimizer)
        best = {name: tensor.detach().clone() for name, tensor in part.state_dict().items()}
        self.state = TrainState(
            part, self.optimizer, LossScaler(spec.compute), Position(), Progress(), best, self.device
        )
        self.checkpointer = Checkpointer.of_environment(directory, spec.checkpoints)
        self.barrier = StepBarrier(heartbeat)
        self.metrics = MetricsFile(directory / METRICS) if self.layout.leads else None
        self.began = 0, time.monotonic()

    def train(self) -> dict[str, Any] | None:
        """Train until the last epoch or until patience ends; write the best epoch's weights; return the result.

        Returns None where the run is preempted: its checkpoint is written then.

        Raises:
            DivergedError: if a gradient or the validation loss is not finite; names step and tensor.
        """
        state, position = self.state, self.state.position
        self.barrier.beat(0)
        self.checkpointer.load(state)
        self.barrier.beat(state.progress.step)
        log_epochs(self.metrics, state.progress.history)
        self.began = state.progress.step, time.monotonic()
        agreed = Agreement()
        steps = self.loader.from_position(position)
        try:
            while not is_over(state.progress.history, self.spec) and (step := next(steps, None)):
                if step.index == 0:
                    # Dropout draws by seed, epoch and place. Tensor neighbours hold the same activations and draw
                    # alike; replicas and stages of a pipeline draw independently.
                    place = self.layout.pipeline_rank * self.layout.data_size + self.layout.data_rank
                    seed_all(self.spec.seed * 1_000_003 + step.epoch * 1_009 + place)
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
                    done, seconds = state.progress.step, agreed.seconds - LAST_SECONDS
                    saved = self.checkpointer.save_now(state, done, ("preemption",), seconds)
                    self.barrier.report(Preempted(done, saved))
                    return None
            self.checkpointer.finish()
        finally:
            steps.close()
            self.checkpointer.let_go()
            if self.metrics:
                self.metrics.close()
        path, history = self.directory / WEIGHTS, state.progress.history
        save_weights(state.best, path, self.layout)
        return {
            "history": history,
            "best_epoch": best_epoch(history, self.spec),
            "weights_sha256": hashlib.sha256(path.read_bytes()).hexdigest() if dist.get_rank() == 0 else "",
        }

    def _step(self, step: Step) -> None:
        """One optimizer step: the mean loss of the global batch, its gradient, clipped, applied."""
        progress = self.state.progress
        # `own` is the weight of this process's rows, `weight` that of the global batch.
        if self.loss.by_rows and self.data["train"].weights is None:
            # Only padding rows have weight 0, so nothing is exchanged. Only the log needs `own`.
            own, weight = float(step.batch.weights.sum()) if self.metrics else 0.0, float(step.rows)
        else:
            parts = step.batch.split(self.spec.data.accumulation)
            own = float(sum(self.loss.weight(part.labels, part.weights, part.groups) for part in parts))
            total = torch.tensor(own, dtype=torch.float64, device=self.device)
            dist.all_reduce(total)  # Neighbours along tensor and pipeline have the same rows.
            weight = float(total) / (self.layout.tensor_size * self.layout.pipeline_size)
        if not weight:
            return  # No row counts: there is nothing to learn, and nothing to divide by.
        batch = step.batch if self.device.type == "cpu" else step.batch.to(self.device)
        settings = self.spec.optimizer.at(step.epoch)
        rate = learning_rate(progress.step, self.loader.steps * self.spec.stopping.epochs, settings)
        for group in self.optimizer.param_groups:
            group["lr"], group["weight_decay"] = rate, settings.weight_decay
        # Gradients are averaged over the data axis: times its size, their sum is divided by the whole batch's weight.
        factor = self.layout.data_size / weight
        loss, norm, scale = self._gradient(step, batch, factor)
        scale_gradients(self.parameters, norm, settings.clip_norm, scale)
        self.optimizer.step()
        progress.loss += loss
        progress.weight += weight
        if self.metrics:
            logged = {"grad_norm": float(norm) / scale, "learning_rate": rate}
            # The mean over the rows of this process: the mean over all rows would cost an exchange per step.
            self.metrics.log(({"step_loss": loss / own} if own else {}) | logged, progress.step)

    def _gradient(self, step: Step, batch: Batch, factor: float) -> tuple[float, Tensor, float]:
        """The loss, the norm of the gradient, and the scale that is in gradient and norm.

        Where the gradient is too large for fp16, it is computed again with half the scale: no batch is left out.
        """
        scaler = self.state.scaler
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            scale = scaler.scale
            loss = self.execution.backward(batch, factor * scale)
            norm = gradient_norm(self.parameters, self.layout)
            if torch.isfinite(norm):
                scaler.grow()
                return float(loss), norm, scale
            finite = torch.isfinite(loss).to(torch.int32)
            dist.all_reduce(finite, dist.ReduceOp.MIN)
            if finite and scaler.shrink():
                continue
            raise DivergedError(
                f"The gradient is not finite in epoch {step.epoch}, step {self.state.progress.step}: it began in "
                f"{_origin(self.execution.part, batch, loss)}. {self.checkpointer.last} {_ADVICE}"
            )

    def _end_epoch(self, epoch: int) -> None:
        """Log the epoch, validate, and keep the weights where they are the best so far."""
        progress, name = self.state.progress, self.loss.name
        if self.metrics and (steps := progress.step - self.began[0]):  # After a resume, the rest of the epoch.
            rows = steps / self.loader.steps * self.loader.rows
            speed = rows / max(time.monotonic() - self.began[1], 1e-9)
            self.metrics.log({"samples_per_second": speed}, progress.step)
        total = torch.tensor(progress.loss if self.layout.leads_data else 0.0, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        train_loss = float(total) / progress.weight if progress.weight else 0.0
        row: dict[str, Any] = {"epoch": epoch, f"train_{name}": train_loss}
        if "validation" in self.data:
            held_out, beat = self.data["validation"], lambda: self.barrier.beat(progress.step)
            scores = validation_scores(self.execution, held_out, self.layout, self.outputs, self.device, beat)
            row |= metrics_of(scores, held_out, self.loss, measured_metrics(self.spec))
        if not math.isfinite(row.get(name, train_loss)):
            part = "validation" if name in row else "train"
            raise DivergedError(
                f"The {part} {name} is not finite after epoch {epoch}. {self.checkpointer.last} {_ADVICE}"
            )
        progress.history.append(row)
        log_epochs(self.metrics, [row])
        progress.loss = progress.weight = 0.0
        if best_epoch(progress.history, self.spec) == epoch:
            self.state.keep_best()
        if dist.get_rank() == 0:
            shown = "  ".join(f"{key} {value:.5f}" for key, value in row.items() if key != "epoch")
            logger.info("epoch %d/%d  %s", epoch + 1, self.spec.stopping.epochs, shown)


def _origin(part: nn.Module, batch: Batch, loss: Tensor) -> str:
    """The first values that are not finite on any process: rows of the batch, its loss, or a gradient. Collective."""
    candidates: list[tuple[int, str]] = []
    for name in ("numbers", "labels", "weights"):
        tensor = getattr(batch, name)
        if not tensor.isfinite().all():
            place = (~tensor.isfinite()).nonzero()[0].tolist()
            candidates.append((0, f"the rows' {name}" + (f", column {place[1]}" if len(place) > 1 else "")))
    if not loss.isfinite():
        candidates.append((1, "the loss"))
    # The backward pass starts at the last parameter.
    for name, parameter in reversed(list(part.named_parameters())):
        if parameter.grad is not None and not torch.isfinite(local(parameter.grad)).all():
            candidates.append((2, f"the gradient of {name}"))
            break
    gathered: list[list[tuple[int, str]]] = [[]] * dist.get_world_size()
    dist.all_gather_object(gathered, candidates)
    everywhere = [candidate for own in gathered for candidate in own]
    return min(everywhere)[1] if everywhere else "a sum over finite tensors"


def save_weights(weights: dict[str, Tensor], path: Path, layout: Layout) -> None:
    """Gather the weights of all processes in their global shapes, and write them on rank 0; collective."""
    gathered = {name: whole(tensor).cpu() for name, tensor in weights.items()}
    if layout.pipeline_size > 1:
        assert layout.mesh is not None
        stages: list[dict[str, Tensor]] | None = [{}] * layout.pipeline_size if layout.pipeline_rank == 0 else None
        dist.gather_object(gathered, stages, group=layout.mesh["pipeline"].get_group(), group_dst=0)
        gathered = {name: tensor for stage in stages or [gathered] for name, tensor in stage.items()}
    if dist.get_rank() == 0:
        save_file({name: tensor.contiguous() for name, tensor in gathered.items()}, path)
    dist.barrier()


@dataclass
class Progress:
    """The plain numbers of a run."""

    step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    loss: float = 0.0
    weight: float = 0.0


@dataclass
class TrainState:
    """Model, optimizer, scaler, generators, position and progress of one process.

    The schedule is a pure function of the step, and the order of rows of the position, so neither has a state. `part`
    is the module with this process's weights, and `best` a copy of the weights of the best epoch so far.
    """

    part: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: LossScaler
    position: Position
    progress: Progress
    best: dict[str, Tensor]
    device: torch.device

    def keep_best(self) -> None:
        """Copy the current weights as the best ones."""
        for name, tensor in self.part.state_dict().items():
            local(self.best[name]).copy_(local(tensor))

    def state_dict(self) -> dict[str, Any]:
        """The state, tensors by reference, of the same names and shapes from the first step to the last.

        `model`, `optimizer` and `best` are tensors by name (DTensor where a process has a part of one). `rank` belongs
        to this process alone; `progress` is JSON that is the same on every process.
        """
        common = {name: value for name, value in asdict(self.progress).items() if name != "loss"}
        return {
            "model": dict(self.part.state_dict()),
            "optimizer": optimizer_state(self.part, self.optimizer),
            "best": dict(self.best),
            "rank": {"generators": random_state(self.device), "loss": self.progress.loss},
            "progress": common | {"position": asdict(self.position), "scaler": self.scaler.state_dict()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; tensors are copied in place."""
        own = {"model": dict(self.part.state_dict()), "best": self.best}
        own["optimizer"] = optimizer_state(self.part, self.optimizer)
        with torch.no_grad():
            for kind, tensors in own.items():
                for name, target in tensors.items():
                    source = state[kind][name]
                    if source is not target:
                        (local(target) if is_spread(target) and not is_spread(source) else target).copy_(source)
        progress = dict(state["progress"])
        position = progress.pop("position")
        self.position.epoch, self.position.step = position["epoch"], position["step"]
        self.scaler.load_state_dict(progress.pop("scaler"))
        for name, value in progress.items():
            setattr(self.progress, name, value)
        self.progress.loss = state["rank"]["loss"]
        set_random_state(state["rank"]["generators"], self.device)


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of the generators of Python, NumPy, torch and this rank's GPU: plain values and flat tensors.

    Other GPUs belong to other ranks. The number of GPUs, and the GPU of this rank, may change between attempts.
    """
    legacy = np.random.get_state(legacy=False)
    assert isinstance(legacy, dict)
    return {
        "python": random.getstate(),
        "numpy": {
            "key": torch.from_numpy(np.asarray(legacy["state"]["key"]).astype(np.int64)),
            "pos": int(legacy["state"]["pos"]),
            "has_gauss": int(legacy["has_gauss"]),
            "gauss": float(legacy["gauss"]),
        },
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Continue where `random_state` was taken, on the same GPU or another one."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    numpy = state["numpy"]
    np.random.set_state(
        {
            "bit_generator": "MT19937",
            "state": {"key": numpy["key"].numpy().astype(np.uint32), "pos": numpy["pos"]},
            "has_gauss": numpy["has_gauss"],
            "gauss": numpy["gauss"],
        }
    )
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)


def seed_all(seed: int) -> None:
    """Seed all generators, so that a builder or a layer of your own that draws from them is repeatable too."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
