"""What to train, and how it is run: settings in groups, each of which stands beside the code that reads it.

A neural network and gradient-boosted trees have settings of their own; `model.architecture` tells them apart.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, WrapValidator, model_validator

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.metrics.tasks.found import task_of_loss
from gatehouse.metrics.tasks.task import Task
from gatehouse.store.identity import Spec, operational
from gatehouse.training.checkpointing.spec import CheckpointSpec
from gatehouse.training.compute.spec import ComputeSpec
from gatehouse.training.data.spec import DataSpec
from gatehouse.training.loop.spec import StoppingSpec
from gatehouse.training.loss.spec import BinaryLoss, LossSpec, PairwiseLoss
from gatehouse.training.models.spec import EXPECTED, NETWORKS, BuilderSpec, NetworkSpec, TabularMlpSpec, architecture_of
from gatehouse.training.optimizer.spec import OptimizerSpec
from gatehouse.training.parallel.spec import ParallelismSpec
from gatehouse.training.settings import in_words, owners_of, unknown
from gatehouse.training.trees.spec import BoostingSpec, RoundsSpec, TreesDataSpec, TreesParallelismSpec, XGBoostSpec

_TIMEOUT = "After which the launcher gives up and stops the job."


class OperationSpec(Spec):
    """How a training is run, which changes nothing of the model."""

    timeout_minutes: int = operational(60, ge=1, description=_TIMEOUT)
    prefetch: int = operational(2, ge=0, le=64, description="Steps whose rows a thread loads in advance; 0 for none.")


class TreesOperationSpec(Spec):
    """How a training of trees is run, which changes nothing of the model."""

    timeout_minutes: int = operational(60, ge=1, description=_TIMEOUT)


class NetworkTraining(Spec):
    """One training of a neural network."""

    model: NetworkSpec = Field(TabularMlpSpec(), description="The network; `architecture` says which.")
    loss: LossSpec = Field(BinaryLoss(), description="The loss; `kind` says which.")
    data: DataSpec = Field(DataSpec(), description="The rows of a step, and their order.")
    optimizer: OptimizerSpec = Field(OptimizerSpec(), description="Optimizer, schedule and clipping.")
    stopping: StoppingSpec = Field(StoppingSpec(), description="When training ends.")
    compute: ComputeSpec = Field(ComputeSpec(), description="Device and precision of the computation.")
    parallelism: ParallelismSpec = Field(
        ParallelismSpec(), description="Number of processes, and how they share the work."
    )
    seed: int = Field(7, ge=0, le=2**31, description="Seed of initial weights, order of rows and dropout.")
    checkpoints: CheckpointSpec = Field(CheckpointSpec(), description="When checkpoints are written.")
    operation: OperationSpec = Field(
        OperationSpec(), description="Settings that do not change the model, such as the time limit."
    )

    @model_validator(mode="after")
    def _possible(self) -> "NetworkTraining":
        problems = [*_metric_problems(self.stopping.metric, self.loss), *self._layout_problems()]
        if self.data.shuffle_window and isinstance(self.loss, PairwiseLoss):
            problems.append("data.shuffle_window: groups of a ranking are shuffled whole; set it to 0")
        if (changes := self.optimizer.changes) and changes[-1].epoch >= self.stopping.epochs:
            problems.append(
                f"optimizer.changes: expected epochs below stopping.epochs {self.stopping.epochs}, found "
                f"{changes[-1].epoch}"
            )
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _layout_problems(self) -> list[str]:
        parallel, layers, found = self.parallelism, self.model.layers, []
        pipeline, micro = parallel.pipeline, self.data.accumulation
        if layers is not None and pipeline > layers:
            found.append(f"parallelism.pipeline {pipeline} is more than the model's {layers} blocks")
        if pipeline > 1 and isinstance(self.loss, PairwiseLoss):
            found.append("parallelism.pipeline: micro-batches of a ranking differ in size, and a pipeline's must not")
        if pipeline > 1 and parallel.pipeline_schedule == "1f1b" and micro < pipeline:
            found.append(f"data.accumulation {micro} must be at least parallelism.pipeline {pipeline} for 1f1b")
        return found + self.model.indivisible(parallel.tensor)


class TreesTraining(Spec):
    """One training of gradient-boosted trees."""

    model: XGBoostSpec = Field(description="How each tree grows.")
    loss: LossSpec = Field(BinaryLoss(), description="The loss; `kind` says which.")
    data: TreesDataSpec = Field(TreesDataSpec(), description="The rows that are used.")
    optimizer: BoostingSpec = Field(BoostingSpec(), description="What each round adds.")
    stopping: RoundsSpec = Field(RoundsSpec(), description="When training ends.")
    parallelism: TreesParallelismSpec = Field(TreesParallelismSpec(), description="Processes that share the rows.")
    seed: int = Field(7, ge=0, le=2**31, description="Seed of the sampling of rows and columns.")
    checkpoints: CheckpointSpec = Field(CheckpointSpec(), description="When checkpoints are written.")
    operation: TreesOperationSpec = Field(
        TreesOperationSpec(), description="Settings that do not change the model, such as the time limit."
    )

    @model_validator(mode="after")
    def _possible(self) -> "TreesTraining":
        problems = _metric_problems(self.stopping.metric, self.loss)
        if isinstance(self.loss, PairwiseLoss) and self.loss.sample_weight:
            problems.append("loss.sample_weight: a ranking by xgboost weighs no single rows; remove it")
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _metric_problems(metric: str, loss: LossSpec) -> list[str]:
    task = task_of_loss(loss.kind)
    if metric in ("", task.losses[loss.kind], *task.watched):
        return []
    from gatehouse.metrics.catalogue import aliases, metrics_for

    known = dict.fromkeys([task.losses[loss.kind], *metrics_for(task.name)])
    if metric in known:
        return []
    meant = nearest(metric, known, elsewhere=aliases())
    return [f"stopping.metric: the loss {loss.kind} gives {', '.join(known)}, not {metric}{meant}"]


def _tag(given: Any) -> str:
    """Which of the two `given` is: by its own type, or by the architecture that its JSON names; if neither, that."""
    if isinstance(given, NetworkTraining | TreesTraining):
        return "a neural network" if isinstance(given, NetworkTraining) else "xgboost"
    named = architecture_of(given.get("model") if isinstance(given, Mapping) else None)
    return "a neural network" if named in NETWORKS or ":" in named else named


SETTINGS = owners_of({"a neural network": NetworkTraining, "xgboost": TreesTraining})
"""Which models have which setting, by dotted names such as `optimizer.learning_rate`."""

_TAGS = sorted({owner for owners in SETTINGS.values() for owner in owners})

TrainSpec = Annotated[
    Annotated[NetworkTraining, Tag("a neural network")] | Annotated[TreesTraining, Tag("xgboost")],
    Discriminator(_tag, custom_error_type="model.architecture", custom_error_message=EXPECTED),
    WrapValidator(in_words(SETTINGS, _TAGS)),
]
"""One training: all that decides the bits of a model apart from its data, and how it is run."""

_TRAINING: TypeAdapter[TrainSpec] = TypeAdapter(TrainSpec, config=ConfigDict(hide_input_in_errors=True))


def train_spec(body: Mapping[str, Any]) -> TrainSpec:
    """A training from its JSON.

    Raises:
        ValidationError: naming every setting that is wrong, or that the model does not have.
    """
    return _TRAINING.validate_python(body)


def setting_problem(name: str) -> str:
    """Why there is no setting of this dotted name; empty where some model has it."""
    return "" if name in SETTINGS else unknown(name, "", SETTINGS)


def changed(spec: TrainSpec, values: Mapping[str, Any]) -> TrainSpec:
    """A training with other values, by dotted names such as `optimizer.learning_rate`, or of whole groups.

    Raises:
        ValidationError: as `train_spec`.
    """
    body = spec.model_dump()
    for name, value in values.items():
        *groups, last = name.split(".")
        place = body
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return train_spec(body)


def length_of(spec: TrainSpec) -> int:
    """Epochs, or rounds, after which training ends at the latest."""
    return spec.stopping.epochs if isinstance(spec, NetworkTraining) else spec.stopping.rounds


def beginning(spec: NetworkTraining, epochs: int) -> NetworkTraining:
    """The training of the first epochs of one: with the same bits, where `is_independent_of_length`."""
    changes = tuple(each for each in spec.optimizer.changes if each.epoch < epochs)
    return spec.model_copy(
        update={
            "optimizer": spec.optimizer.model_copy(update={"changes": changes}),
            "stopping": spec.stopping.model_copy(update={"epochs": epochs}),
        }
    )


_HOW_IT_IS_RUN = {"checkpoints", "operation"}


def operation_of(spec: TrainSpec) -> dict[str, Any]:
    """The groups of a training that say how it is run, as JSON: what identity leaves out."""
    return spec.model_dump(mode="json", include=_HOW_IT_IS_RUN)


def settings_of(spec: TrainSpec) -> dict[str, Any]:
    """The groups of a training that decide its model, as JSON; with those of `operation_of` `run_as` reads it."""
    return spec.model_dump(mode="json", exclude=_HOW_IT_IS_RUN)


def run_as(settings: Mapping[str, Any], operation: Mapping[str, Any]) -> TrainSpec:
    """The training of `settings_of` one, run as `operation_of` another says: as far as its model has such settings.

    Raises:
        ValidationError: as `train_spec`.
    """
    tag = _tag(settings)
    kept = {
        group: {name: value for name, value in body.items() if tag in SETTINGS.get(f"{group}.{name}", (tag,))}
        for group, body in operation.items()
    }
    return train_spec({**settings, **kept})


def own_metric(spec: TrainSpec) -> str:
    """The validation metric that decides which epoch, or round, is the best."""
    return spec.stopping.metric or task_of(spec).losses[spec.loss.kind]


def measured_metrics(spec: TrainSpec) -> tuple[str, ...]:
    """Names of what every epoch, or round, measures on the validation part, the loss's mean first."""
    task = task_of(spec)
    return tuple(dict.fromkeys([task.losses[spec.loss.kind], *task.watched, own_metric(spec)]))


def task_of(spec: TrainSpec) -> Task:
    """What kind of answer the model gives."""
    return task_of_loss(spec.loss.kind)


def builder_of(spec: TrainSpec) -> str:
    """`package.module:builder` of a network of one's own; empty for a built-in model."""
    return spec.model.architecture if isinstance(spec.model, BuilderSpec) else ""
