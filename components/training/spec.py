"""What to train: everything that decides the bits of a model, apart from its data."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gatehouse.components.training.checkpointing.spec import CheckpointPolicy
from gatehouse.components.training.trees.spec import READ, ROUNDS, BoostingSpec

BUILT_IN = ("tabular_mlp", "ft_transformer")
TREES = "xgboost"
METRICS = {
    "binary": ("log_loss", "roc_auc"),
    "multiclass": ("log_loss", "accuracy"),
    "mse": ("mse", "mae", "r2"),
    "huber": ("huber", "mae", "mse", "r2"),
    "pairwise": ("pairwise", "ndcg"),
}
_BUILDER = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class TrainSpec(BaseModel):
    """One training run.

    The number of processes and threads is part of it, because both change the order of floating-point sums and so the
    bits of the weights. `processes` is the product of data, tensor and pipeline parallelism.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str = Field(
        "tabular_mlp",
        description="`tabular_mlp`, `ft_transformer`, `xgboost`, or `package.module:builder` for a model of yours.",
    )
    hidden: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = Field(
        (256, 128), min_length=1, max_length=64, description="Width of each hidden layer of `tabular_mlp`."
    )
    dropout: float = Field(0.1, ge=0.0, lt=1.0, description="Share of a hidden layer's outputs dropped in training.")
    embedding_size: int = Field(16, ge=1, le=256, description="Most dimensions that a category's embedding has.")
    token_size: int = Field(64, ge=2, le=8192, description="Dimensions of a feature's token in `ft_transformer`.")
    blocks: int = Field(3, ge=1, le=256, description="Transformer blocks of `ft_transformer`.")
    heads: int = Field(4, ge=1, le=256, description="Attention heads of each of its blocks.")
    feed_forward: int = Field(128, ge=1, le=65_536, description="Hidden width of its feed-forward layers.")
    options: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="What a builder of your own reads; the built-in models read nothing here."
    )
    xgboost: BoostingSpec = Field(BoostingSpec(), description="How the trees of `xgboost` grow.")
    loss: Literal["binary", "multiclass", "mse", "huber", "pairwise"] = Field(
        "binary", description="`pairwise` ranks rows within a group."
    )
    huber_delta: float = Field(1.0, gt=0.0, description="Error from which `huber` grows linearly.")
    sample_weight: str = Field("", description="Numeric column of the training set that weighs rows; empty for none.")
    class_weights: Literal["balanced"] | tuple[Annotated[float, Field(gt=0.0)], ...] = Field(
        (), description="Weight of each class from class 0, or `balanced`: inverse to how often a class is seen."
    )
    group: str = Field("", description="Column of the training set whose value a ranking's rows share; for `pairwise`.")
    epochs: int = Field(
        10,
        ge=1,
        le=10_000,
        description="Passes over the train rows, or rounds of `xgboost` (300); early stopping may end before.",
    )
    batch_size: int = Field(2048, ge=1, description="Rows of one step over all processes and micro-batches together.")
    accumulation: int = Field(1, ge=1, le=4096, description="Micro-batches of a step; a pipeline streams them.")
    shuffle_window: int = Field(
        0,
        ge=0,
        description="Rows shuffled at a time, so that steps read few places of the mapped arrays: for a train part "
        "larger than a worker's memory; 0 shuffles all rows.",
    )
    prefetch: int = Field(2, ge=0, le=64, description="Steps whose rows are gathered ahead, on a thread; 0 for none.")
    learning_rate: float = Field(2e-3, gt=0.0, le=1.0, description="Peak of the schedule; of `xgboost` (0.1).")
    weight_decay: float = Field(1e-4, ge=0.0, le=1.0, description="Decoupled weight decay of AdamW.")
    schedule: Literal["cosine", "linear", "constant"] = Field("cosine", description="What follows the warm-up.")
    warmup: float = Field(0.1, ge=0.0, lt=1.0, description="Share of all steps that the learning rate rises over.")
    clip_norm: float = Field(1.0, gt=0.0, description="Largest norm of the gradient.")
    divergence: float = Field(
        0.0, ge=0.0, description="Halt when an epoch's train loss is over this many times the first's; 0 for never."
    )
    metric: str = Field("", description="Validation metric that early stopping watches; empty for the loss itself.")
    patience: int = Field(3, ge=1, description="Epochs without a better validation metric, or rounds (20).")
    least_gain: float = Field(0.0, ge=0.0, description="A metric is better only if it is so by more than this.")
    train_fraction: float = Field(1.0, gt=0.0, le=1.0, description="Share of the train rows used; below 1 for trials.")
    precision: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="Of the arithmetic; weights stay fp32.")
    seed: int = Field(7, ge=0, le=2**31, description="Of initial weights, order of rows and dropout.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where the arithmetic happens (gloo or NCCL between).")
    deterministic: bool = Field(True, description="The same bits again from the same spec; on a GPU this costs time.")
    processes: int = Field(2, ge=1, le=4096, description="Workers that torchrun starts; 1 for `xgboost`.")
    threads: int = Field(1, ge=1, le=256, description="Threads of each worker.")
    data_parallel: Literal["ddp", "fsdp"] = Field(
        "ddp", description="Processes that share the rows hold all weights (`ddp`), or a part of each (`fsdp`)."
    )
    tensor_parallel: int = Field(1, ge=1, le=64, description="Processes that share each matrix product.")
    pipeline_parallel: int = Field(1, ge=1, le=64, description="Stages that the model's blocks are cut into.")
    pipeline_schedule: Literal["1f1b", "gpipe"] = Field("1f1b", description="Order of a pipeline's micro-batches.")
    activation_checkpointing: bool = Field(False, description="Compute activations twice instead of keeping them.")
    compile: bool = Field(False, description="Compile the model's blocks with `torch.compile`.")
    checkpoints: CheckpointPolicy = Field(CheckpointPolicy(), description="When a run is saved.")
    timeout_minutes: int = Field(60, ge=1, description="After which the launcher gives up and stops the job.")

    @property
    def model_size(self) -> int:
        """Processes that share one copy of the model."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def data_size(self) -> int:
        """Processes, or groups of them, that each take a share of the rows."""
        return self.processes // self.model_size

    def changed(self, values: Mapping[str, Any]) -> "TrainSpec":
        """The spec with other values, by name; `xgboost.max_depth` names a setting of trees."""
        body = self.model_dump()
        for name, value in values.items():
            part, _, inner = name.rpartition(".")
            (body[part] if part else body)[inner] = value
        return TrainSpec.model_validate(body)

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_trees(cls, given: Any) -> Any:
        """A round is a smaller thing than an epoch: trees have other defaults."""
        return ROUNDS | given if isinstance(given, dict) and given.get("architecture") == TREES else given

    @model_validator(mode="after")
    def _possible(self) -> "TrainSpec":
        layout = self._impossible_trees() if self.architecture == TREES else self._impossible_layout()
        problems = [*self._impossible_model(), *layout]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _impossible_model(self) -> list[str]:
        found = []
        if self.architecture not in (*BUILT_IN, TREES) and not _BUILDER.fullmatch(self.architecture):
            found.append(f"architecture: expected {', '.join((*BUILT_IN, TREES))} or package.module:builder")
        if self.architecture == "ft_transformer" and self.token_size % self.heads:
            found.append(f"token_size {self.token_size} must be a multiple of heads {self.heads}")
        if (self.loss == "pairwise") != bool(self.group):
            found.append("group: the loss pairwise needs the column of the groups, and no other loss takes one")
        if self.class_weights and self.loss not in ("binary", "multiclass"):
            found.append(f"class_weights: the loss {self.loss} has no classes")
        if self.metric and self.metric not in METRICS[self.loss]:
            found.append(f"metric: the loss {self.loss} gives {', '.join(METRICS[self.loss])}, not {self.metric}")
        if self.shuffle_window and self.group:
            found.append("shuffle_window: groups of a ranking are shuffled whole; set shuffle_window to 0")
        if self.architecture != TREES and self.xgboost != BoostingSpec():
            found.append(f"xgboost: {self.architecture} does not read what only trees have; remove it")
        return found

    def _impossible_trees(self) -> list[str]:
        found = []
        fields = type(self).model_fields
        changed = [
            name
            for name, field in fields.items()
            if getattr(self, name) != field.get_default(call_default_factory=True)
        ]
        unread = [name for name in changed if name not in READ]
        if unread:
            found.append(f"{', '.join(unread)}: xgboost does not read what only neural networks have; remove it")
        if self.loss == "pairwise" and self.sample_weight:
            found.append("sample_weight: a ranking by xgboost weighs no single rows")
        return found

    def _impossible_layout(self) -> list[str]:
        found = []
        tensor, pipeline = self.tensor_parallel, self.pipeline_parallel
        if self.processes % (tensor * pipeline):
            found.append(
                f"processes {self.processes} must be a multiple of tensor_parallel {tensor} x "
                f"pipeline_parallel {pipeline}"
            )
        layers = len(self.hidden) if self.architecture == "tabular_mlp" else self.blocks
        if self.architecture in BUILT_IN and pipeline > layers:
            found.append(f"pipeline_parallel {pipeline} is more than the model's {layers} blocks")
        if pipeline > 1 and self.loss == "pairwise":
            found.append("pipeline_parallel: micro-batches of a ranking differ in size, and a pipeline's must not")
        if pipeline > 1 and self.pipeline_schedule == "1f1b" and self.accumulation < pipeline:
            found.append(f"accumulation {self.accumulation} must be at least pipeline_parallel {pipeline} for 1f1b")
        if self.accumulation > self.batch_size:
            found.append(
                f"accumulation {self.accumulation} is more than the batch_size {self.batch_size} rows of a step"
            )
        if tensor > 1 and self.architecture == "ft_transformer":
            if self.heads % tensor:
                found.append(f"heads {self.heads} must be a multiple of tensor_parallel {tensor}")
            if self.feed_forward % tensor:
                found.append(f"feed_forward {self.feed_forward} must be a multiple of tensor_parallel {tensor}")
        if tensor > 1 and self.architecture == "tabular_mlp" and any(width % tensor for width in self.hidden):
            found.append(f"hidden {self.hidden} must be multiples of tensor_parallel {tensor}")
        if self.device == "cpu" and self.precision == "fp16" and self.compile:
            found.append("compile: fp16 on a CPU is not compiled; use bf16")
        return found
