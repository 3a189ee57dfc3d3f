"""Settings of a training, of a network or of gradient-boosted trees: the model, and how it is run.

`model.architecture` chooses between the two; the settings of each model are in `model_spec.py`.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from gatehouse.configuration.strict import models_in
from gatehouse.metrics.catalogue import metric_problem
from gatehouse.metrics.tasks import TASKS, Task, task_of_loss
from gatehouse.store.identity import Spec, operational
from gatehouse.training.model_spec import (
    EXPECTED,
    MODELS,
    NetworkSpec,
    TabularMlpSpec,
    XGBoostSpec,
    architecture_of,
    cutting_problems,
)

_CLASSES = "Weight of each class from class 0, or `balanced`: inverse to how often a class is seen."

ClassWeights = Literal["balanced"] | tuple[Annotated[float, Field(gt=0.0)], ...]


class _Loss(Spec):
    sample_weight: str = Field("", description="Numeric column of the training set that weighs rows; empty for none.")


class BinaryLoss(_Loss):
    """Cross-entropy of one class against the other; labels are 0 and 1."""

    kind: Literal["binary"] = "binary"
    class_weights: ClassWeights = Field((), description=_CLASSES)


class MulticlassLoss(_Loss):
    """Cross-entropy of several classes; labels are whole numbers from 0."""

    kind: Literal["multiclass"] = "multiclass"
    class_weights: ClassWeights = Field((), description=_CLASSES)


class SquaredLoss(_Loss):
    """The mean squared error; labels are numbers."""

    kind: Literal["mse"] = "mse"


class HuberLoss(_Loss):
    """The Huber loss: squared for small errors, linear for large ones; labels are numbers."""

    kind: Literal["huber"] = "huber"
    delta: float = Field(1.0, gt=0.0, description="Error from which the loss grows linearly.")


class PairwiseLoss(_Loss):
    """A ranking: of two rows of a group, the one with the higher label is to have the higher score."""

    kind: Literal["pairwise"] = "pairwise"
    group: str = Field(
        "", description="Column whose value the rows of a group share; empty for the group that the label declares."
    )


LossSpec = Annotated[
    Annotated[BinaryLoss, Tag("binary")]
    | Annotated[MulticlassLoss, Tag("multiclass")]
    | Annotated[SquaredLoss, Tag("mse")]
    | Annotated[HuberLoss, Tag("huber")]
    | Annotated[PairwiseLoss, Tag("pairwise")],
    Discriminator(
        lambda loss: str(loss.get("kind", "binary") if isinstance(loss, dict) else getattr(loss, "kind", "binary")),
        custom_error_type="kind",
        custom_error_message="expected one of binary, multiclass, mse, huber, pairwise",
    ),
]


class TreesDataSpec(Spec):
    """The rows that trees are grown on."""

    train_fraction: float = Field(1.0, gt=0.0, le=1.0, description="Share of the train rows used; below 1 for trials.")


class DataSpec(TreesDataSpec):
    """The rows of a step of a network, and their order."""

    batch_size: int = Field(2048, ge=1, description="Rows of one step over all processes and micro-batches together.")
    accumulation: int = Field(
        1,
        ge=1,
        le=4096,
        description="Micro-batches of a step: gradients are accumulated over them, and pipeline stages work on "
        "several at once.",
    )

    @model_validator(mode="after")
    def _a_row_per_micro_batch(self) -> "DataSpec":
        if self.accumulation > self.batch_size:
            raise ValueError(
                f"accumulation {self.accumulation} is more than the batch_size {self.batch_size} rows of a step"
            )
        return self


class OptimizerChange(Spec):
    """Settings from an epoch on; null keeps a setting as it was."""

    epoch: int = Field(ge=1, le=10_000, description="The first epoch with these settings, counted from 0.")
    learning_rate: float | None = Field(None, gt=0.0, le=1.0, description="Peak learning rate of the schedule.")
    weight_decay: float | None = Field(None, ge=0.0, le=1.0, description="Decoupled weight decay.")
    clip_norm: float | None = Field(None, gt=0.0, description="Largest norm of the gradient.")


CHANGEABLE = tuple(name for name in OptimizerChange.model_fields if name != "epoch")
"""Settings of the optimizer that may change while a network trains."""


class OptimizerSpec(Spec):
    """AdamW, its learning-rate schedule, and the largest gradient."""

    learning_rate: float = Field(2e-3, gt=0.0, le=1.0, description="Peak learning rate of the schedule.")
    schedule: Literal["cosine", "linear", "constant"] = Field(
        "cosine", description="Learning rate schedule after the warm-up."
    )
    warmup: float = Field(0.1, ge=0.0, lt=1.0, description="Share of all steps that the learning rate rises over.")
    weight_decay: float = Field(1e-4, ge=0.0, le=1.0, description="Decoupled weight decay.")
    clip_norm: float = Field(
        1.0, gt=0.0, description="Largest norm of the gradient; a larger one is scaled down to it."
    )
    changes: tuple[OptimizerChange, ...] = Field(
        (), description="Settings that change while the network trains, each from its epoch on, in their order."
    )

    @model_validator(mode="after")
    def _in_order(self) -> "OptimizerSpec":
        epochs = [change.epoch for change in self.changes]
        if epochs != sorted(set(epochs)):
            raise ValueError(f"changes: expected epochs in ascending order, each once, found {epochs}")
        return self

    @property
    def is_independent_of_length(self) -> bool:
        """Whether an epoch's learning rate is the same however many epochs follow."""
        return self.schedule == "constant" and self.warmup == 0.0

    def at(self, epoch: int) -> "OptimizerSpec":
        """The settings of an epoch, after all changes up to it."""
        changed = {
            name: value
            for change in self.changes
            if change.epoch <= epoch
            for name in CHANGEABLE
            if (value := getattr(change, name)) is not None
        }
        return self.model_copy(update=changed) if changed else self


class BoostingSpec(Spec):
    """Boosting: how much each round adds to the trees before it."""

    learning_rate: float = Field(0.1, gt=0.0, le=1.0, description="Share of each tree's values that is added (`eta`).")
    l1: float = Field(0.0, ge=0.0, description="L1 penalty on the leaves' values.")
    l2: float = Field(1.0, ge=0.0, description="L2 penalty on the leaves' values.")
    row_share: float = Field(1.0, gt=0.0, le=1.0, description="Share of the rows that each tree is grown on.")
    column_share: float = Field(1.0, gt=0.0, le=1.0, description="Share of the columns that each tree may split.")


class _EarlyStopping(Spec):
    metric: str = Field(
        "",
        description="Validation metric that early stopping watches, also one of your own, `package.module:name`; "
        "empty for the loss itself.",
    )
    least_gain: float = Field(0.0, ge=0.0, description="Smallest improvement that counts.")
    refit: int = Field(
        0,
        ge=0,
        description="Train on train and validation rows together, for exactly this many epochs or rounds, without "
        "validation metrics; 0 trains on the train rows and watches the validation rows.",
    )

    @model_validator(mode="after")
    def _refit_within(self) -> "_EarlyStopping":
        name = "epochs" if isinstance(self, StoppingSpec) else "rounds"
        if self.refit > getattr(self, name):
            raise ValueError(f"refit: expected at most the {name} {getattr(self, name)}, found {self.refit}")
        return self


class StoppingSpec(_EarlyStopping):
    """The length of a training, and when it ends earlier."""

    epochs: int = Field(10, ge=1, le=10_000, description="Passes over the train rows; early stopping may end before.")
    patience: int = Field(3, ge=1, description="Epochs without a better validation metric after which training stops.")


class RoundsSpec(_EarlyStopping):
    """When no more trees are added."""

    rounds: int = Field(300, ge=1, le=10_000, description="Trees for each output; early stopping may end before.")
    patience: int = Field(20, ge=1, description="Rounds without a better validation metric after which training stops.")


class ComputeSpec(Spec):
    """The arithmetic of every process; all of it may change the bits of a model."""

    device: Literal["cpu", "cuda"] = Field(
        "cpu", description="Device of the computation; processes communicate by gloo (cpu) or NCCL (cuda)."
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="Precision of the computation; weights stay fp32."
    )
    deterministic: bool = Field(
        True, description="Whether the same settings give the same bits again; on a GPU this costs time."
    )
    compile: bool = Field(False, description="Compile the model's blocks with `torch.compile`.")
    activation_checkpointing: bool = Field(
        False,
        description="Activation checkpointing: compute activations again in the backward pass instead of keeping them.",
    )

    @model_validator(mode="after")
    def _compilable(self) -> "ComputeSpec":
        if self.device == "cpu" and self.precision == "fp16" and self.compile:
            raise ValueError("compile: fp16 on a CPU is not compiled; use bf16")
        return self


class ParallelismSpec(Spec):
    """The processes of a run.

    The number of processes and threads changes the order of floating-point sums and so the bits of the weights.
    """

    processes: int = Field(2, ge=1, le=4096, description="Workers that torchrun starts.")
    threads: int = Field(1, ge=1, le=256, description="Threads of each worker.")
    data: Literal["ddp", "fsdp"] = Field(
        "ddp", description="Whether each data-parallel process holds all weights (`ddp`), or a part of each (`fsdp`)."
    )
    tensor: int = Field(1, ge=1, le=64, description="Tensor parallelism: processes that share each matrix product.")
    pipeline: int = Field(
        1, ge=1, le=64, description="Pipeline parallelism: stages that the model's blocks are divided into."
    )
    pipeline_schedule: Literal["1f1b", "gpipe"] = Field("1f1b", description="Order of a pipeline's micro-batches.")

    @property
    def model_size(self) -> int:
        """Processes that share one copy of the model."""
        return self.tensor * self.pipeline

    @property
    def data_size(self) -> int:
        """Processes, or groups of them, that each take a share of the rows."""
        return self.processes // self.model_size

    @model_validator(mode="after")
    def _whole_copies(self) -> "ParallelismSpec":
        if self.processes % self.model_size:
            raise ValueError(
                f"processes {self.processes} must be a multiple of tensor {self.tensor} x pipeline {self.pipeline}"
            )
        return self


class TreesParallelismSpec(Spec):
    """The processes that share the rows. The numbers of processes and threads may change the bits of the trees."""

    processes: int = Field(1, ge=1, le=4096, description="Workers that torchrun starts.")
    threads: int = Field(1, ge=1, le=256, description="Threads of each worker.")


class CheckpointSpec(Spec):
    """When checkpoints are written, besides the one on a new best metric and the one on preemption.

    A run that resumes from any of them ends in the same bits, so the identity of a model leaves these settings out.
    """

    every_steps: int | None = operational(None, ge=1, description="Steps from one checkpoint to the next.")
    every_minutes: float | None = operational(10.0, gt=0.0, description="Minutes from one checkpoint to the next.")
    every_epoch: bool = operational(True, description="Also at the end of every epoch.")
    keep: int = operational(3, ge=1, le=1000, description="Checkpoints kept, besides the best one.")


class TreesOperationSpec(Spec):
    """How a training of trees is run; it does not change the model."""

    timeout_minutes: int = operational(60, ge=1, description="After which the launcher gives up and stops the job.")


class OperationSpec(TreesOperationSpec):
    """How a training is run; it does not change the model."""

    prefetch: int = operational(2, ge=0, le=64, description="Steps whose rows a thread loads in advance; 0 for none.")


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
        problems = _metric_problems(self.stopping.metric, self.loss)
        problems += cutting_problems(self.model, self.parallelism.pipeline, self.parallelism.tensor)
        pipeline, micro = self.parallelism.pipeline, self.data.accumulation
        if pipeline > 1 and isinstance(self.loss, PairwiseLoss):
            problems.append("parallelism.pipeline: micro-batches of a ranking differ in size; expected 1")
        if pipeline > 1 and self.parallelism.pipeline_schedule == "1f1b" and micro < pipeline:
            problems.append(f"data.accumulation {micro} must be at least parallelism.pipeline {pipeline} for 1f1b")
        if (changes := self.optimizer.changes) and changes[-1].epoch >= self.stopping.epochs:
            problems.append(
                f"optimizer.changes: expected epochs below stopping.epochs {self.stopping.epochs}, found "
                f"{changes[-1].epoch}"
            )
        if problems:
            raise ValueError("; ".join(problems))
        return self


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
            problems.append("loss.sample_weight: xgboost does not weigh single rows of a ranking; remove it")
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _metric_problems(metric: str, loss: LossSpec) -> list[str]:
    task = task_of_loss(loss.kind)
    if metric in ("", task.losses[loss.kind], *task.watched):
        return []
    problem = metric_problem(metric, task.name)
    return [f"stopping.metric: the loss {loss.kind} gives {task.losses[loss.kind]}, and {problem}"] if problem else []


def setting_names(group: type[BaseModel]) -> Iterator[str]:
    """Dotted names of the settings of a group, such as `optimizer.learning_rate`, whichever of its forms has them."""
    for name, field in group.model_fields.items():
        yield name
        if get_origin(field.annotation) is not tuple:  # The settings of a list's items have no dotted name.
            for form in models_in(field.annotation):
                yield from (f"{name}.{inner}" for inner in setting_names(form))


def has_setting(architecture: str, name: str) -> bool:
    """Whether trainings of an architecture have the setting of a dotted name."""
    if name.startswith("model.") and (form := MODELS.get("builder" if ":" in architecture else architecture)):
        return name.removeprefix("model.") in setting_names(form)
    return name in setting_names(TreesTraining if architecture == "xgboost" else NetworkTraining)


def setting_problem(name: str) -> str:
    """Why no training has a setting of this dotted name; empty if one has it."""
    names = [*dict.fromkeys(name for kind in (NetworkTraining, TreesTraining) for name in setting_names(kind))]
    if name in names:
        return ""
    last = name.rpartition(".")[2]
    near = [setting for setting in names if setting.rpartition(".")[2] == last]
    near = near or difflib.get_close_matches(name, names, n=1)
    return "there is no such setting" + (f" (did you mean {' or '.join(near)}?)" if near else "")


_TAGS = {"networks", "trees", *MODELS, *(loss for task in TASKS.values() for loss in task.losses)}


def _with_dotted_names(body: Any, validate: Callable[[Any], Any]) -> Any:
    """Validate the union; in its errors, settings have dotted names, and an unknown one names the models that have it.

    Pydantic puts the tags of the unions into the path of an error.
    """
    try:
        return validate(body)
    except ValidationError as error:
        lines, own = [], architecture_of(body.get("model") if isinstance(body, Mapping) else None)
        for line in error.errors():
            path, message = tuple(part for part in line["loc"] if part not in _TAGS), line["msg"]
            if line["type"] == "extra_forbidden":
                name = ".".join(map(str, path))
                owners = [architecture for architecture in MODELS if has_setting(architecture, name)]
                message = f"is a setting of {', '.join(owners)}, and not of {own}; remove it"
                if own in owners:
                    message = f"is no setting of {[part for part in line['loc'] if part in _TAGS][-1]}; remove it"
                elif not owners:
                    message = setting_problem(name)
            kind = PydanticCustomError(line["type"], "{message}", {**line.get("ctx", {}), "message": message})
            lines.append(InitErrorDetails(type=kind, loc=path, input=line["input"]))
        raise ValidationError.from_exception_data(error.title, lines, hide_input=True) from None


def _kind_of(training: Any) -> str:
    """The tag of a spec or of its JSON; for an unknown architecture, its name."""
    model = training.get("model") if isinstance(training, Mapping) else getattr(training, "model", None)
    name = architecture_of(model)
    return "trees" if name == "xgboost" else "networks" if name in MODELS or ":" in name else name


TrainSpec = Annotated[
    Annotated[NetworkTraining, Tag("networks")] | Annotated[TreesTraining, Tag("trees")],
    Discriminator(_kind_of, custom_error_type="model.architecture", custom_error_message=EXPECTED),
    WrapValidator(_with_dotted_names),
]
"""One training: all that decides the bits of a model apart from its data, and how it is run."""
_TRAINING: TypeAdapter[TrainSpec] = TypeAdapter(TrainSpec, config=ConfigDict(hide_input_in_errors=True))


def train_spec(body: Mapping[str, Any]) -> TrainSpec:
    """A training from its JSON; a `ValidationError` names every setting that is wrong or that the model lacks."""
    return _TRAINING.validate_python(body)


def changed(spec: TrainSpec, values: Mapping[str, Any]) -> TrainSpec:
    """A training with new values, by dotted names such as `optimizer.learning_rate`, or of whole groups."""
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
    """The training of the first epochs of a spec; the bits are the same where `is_independent_of_length`."""
    changes = tuple(change for change in spec.optimizer.changes if change.epoch < epochs)
    return spec.model_copy(
        update={
            "optimizer": spec.optimizer.model_copy(update={"changes": changes}),
            "stopping": spec.stopping.model_copy(update={"epochs": epochs}),
        }
    )


_HOW_IT_IS_RUN = {"checkpoints", "operation"}


def operation_of(spec: TrainSpec) -> dict[str, Any]:
    """The groups that say how a training is run, as JSON: what its identity leaves out."""
    return spec.model_dump(mode="json", include=_HOW_IT_IS_RUN)


def settings_of(spec: TrainSpec) -> dict[str, Any]:
    """The groups that decide the model of a training, as JSON; `run_as` joins them with `operation_of`."""
    return spec.model_dump(mode="json", exclude=_HOW_IT_IS_RUN)


def run_as(settings: Mapping[str, Any], operation: Mapping[str, Any]) -> TrainSpec:
    """The training with the `settings_of` a spec, and the `operation_of` another as far as its model has them."""
    architecture = architecture_of(settings.get("model"))
    kept = {
        group: {name: value for name, value in body.items() if has_setting(architecture, f"{group}.{name}")}
        for group, body in operation.items()
    }
    return train_spec({**settings, **kept})


def own_metric(spec: TrainSpec) -> str:
    """The validation metric that decides which epoch, or round, is the best."""
    return spec.stopping.metric or task_of(spec).losses[spec.loss.kind]


def measured_metrics(spec: TrainSpec) -> tuple[str, ...]:
    """Names of the validation metrics of every epoch, or round; the mean loss comes first."""
    task = task_of(spec)
    return tuple(dict.fromkeys([task.losses[spec.loss.kind], *task.watched, own_metric(spec)]))


def task_of(spec: TrainSpec) -> Task:
    """The task of a training's loss."""
    return task_of_loss(spec.loss.kind)


def own_names(spec: TrainSpec) -> tuple[str, ...]:
    """A network and a metric of your own, `package.module:name`, without those of Gatehouse."""
    return tuple(name for name in (spec.model.architecture, spec.stopping.metric) if ":" in name)
