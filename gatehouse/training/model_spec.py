"""The settings that make a model: its transformation, its architecture and its calibration."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, field_validator, model_validator

from gatehouse.errors import GatehouseError
from gatehouse.metrics.tasks import TASKS, Output, Task
from gatehouse.store.identity import Spec

Width = Annotated[int, Field(ge=1, le=65_536)]


class LinearSpec(Spec):
    """A linear model: one weight per number and one per category for each output."""

    architecture: Literal["linear"] = "linear"


class TabularMlpSpec(Spec):
    """A multi-layer perceptron over numbers and embedded categories."""

    architecture: Literal["tabular_mlp"] = "tabular_mlp"
    hidden: tuple[Width, ...] = Field(
        (256, 128), min_length=1, max_length=64, description="Width of each hidden layer."
    )
    dropout: float = Field(0.1, ge=0.0, lt=1.0, description="Share of a hidden layer's outputs dropped in training.")
    embedding_size: int = Field(16, ge=1, le=256, description="Largest number of dimensions of a category's embedding.")


class FtTransformerSpec(Spec):
    """FT-Transformer: every feature becomes a token, and a transformer reads the tokens."""

    architecture: Literal["ft_transformer"] = "ft_transformer"
    token_size: int = Field(64, ge=2, le=8192, description="Dimensions of a feature's token.")
    blocks: int = Field(3, ge=1, le=256, description="Transformer blocks.")
    heads: int = Field(4, ge=1, le=256, description="Attention heads of each block; they share the token's dimensions.")
    feed_forward: int = Field(128, ge=1, le=65_536, description="Hidden width of the feed-forward layers.")
    dropout: float = Field(0.1, ge=0.0, lt=1.0, description="Share of a block's outputs dropped in training.")

    @model_validator(mode="after")
    def _heads_share_the_token(self) -> "FtTransformerSpec":
        if self.token_size % self.heads:
            raise ValueError(f"token_size {self.token_size} must be a multiple of heads {self.heads}")
        return self


class BuilderSpec(Spec):
    """A network of your own, built by a function that the image of every task can import."""

    architecture: str = Field(
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", description="`package.module:builder` of the function."
    )
    options: dict[str, bool | int | float | str] = Field({}, description="Arguments that the builder gets.")


class XGBoostSpec(Spec):
    """Gradient-boosted trees of XGBoost: how each of them grows."""

    architecture: Literal["xgboost"] = "xgboost"
    max_depth: int = Field(6, ge=1, le=32, description="Most splits from the root to a leaf.")
    min_child_weight: float = Field(1.0, ge=0.0, description="Least sum of second derivatives in a leaf.")
    min_split_loss: float = Field(0.0, ge=0.0, description="Least gain of a split.")
    bins: int = Field(256, ge=2, le=65_536, description="Bins of each numeric column's histogram.")
    one_hot_below: int = Field(
        4, ge=1, le=65_536, description="A category with fewer values is split one against the rest."
    )


MODELS: dict[str, type[Spec]] = {
    "linear": LinearSpec,
    "tabular_mlp": TabularMlpSpec,
    "ft_transformer": FtTransformerSpec,
    "builder": BuilderSpec,
    "xgboost": XGBoostSpec,
}
"""The settings of each architecture; `builder` stands for networks of the user's own."""
EXPECTED = "expected one of linear, tabular_mlp, ft_transformer, xgboost, package.module:builder"


def architecture_of(model: Any) -> str:
    """The architecture in the settings of a model or in their JSON; `tabular_mlp` by default."""
    name = model.get("architecture") if isinstance(model, dict) else getattr(model, "architecture", None)
    return "tabular_mlp" if name is None else str(name)


NetworkSpec = Annotated[
    Annotated[LinearSpec, Tag("linear")]
    | Annotated[TabularMlpSpec, Tag("tabular_mlp")]
    | Annotated[FtTransformerSpec, Tag("ft_transformer")]
    | Annotated[BuilderSpec, Tag("builder")],
    Discriminator(
        lambda model: "builder" if ":" in (name := architecture_of(model)) else name,
        custom_error_type="architecture",
        custom_error_message=EXPECTED,
    ),
]
_NETWORK: TypeAdapter[NetworkSpec] = TypeAdapter(NetworkSpec, config=ConfigDict(hide_input_in_errors=True))


def network_spec(body: dict[str, Any]) -> NetworkSpec:
    """The settings of a network from JSON, as `model.json` holds them."""
    return _NETWORK.validate_python(body)


def cutting_problems(model: NetworkSpec, pipeline: int, tensor: int) -> Iterator[str]:
    """Why a network cannot be cut into stages of a pipeline, or divided for tensor parallelism."""
    if isinstance(model, BuilderSpec):
        return
    layers, sizes = 1, {"outputs": 1}
    if isinstance(model, TabularMlpSpec):
        layers, sizes = len(model.hidden), {"hidden": math.gcd(*model.hidden)}
    elif isinstance(model, FtTransformerSpec):
        layers, sizes = model.blocks, {"heads": model.heads, "feed_forward": model.feed_forward}
    if pipeline > layers:
        yield f"parallelism.pipeline {pipeline} is more than the model's {layers} blocks"
    for name, size in sizes.items():
        if size % tensor:
            yield f"model.{name} must be a multiple of parallelism.tensor {tensor}"


def learned_parts(configuration: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of the split whose rows a model was trained on, by its manifest's configuration."""
    return ("train", "validation") if configuration.get("stopping", {}).get("refit") else ("train",)


def weights_file(architecture: str) -> str:
    """Name of the weights file of a model; both formats hold data and no code."""
    return "weights.ubj" if architecture == "xgboost" else "weights.safetensors"


Normalisation = Literal["standard", "min_max", "quantile", "none"]


class NumericSpec(Spec):
    """Transformation of a number: it is clipped, imputed where it is missing, then normalised."""

    clip: tuple[float, float] | None = Field(
        (0.001, 0.999), description="Quantiles of the train part beyond which values are clipped; null for none."
    )
    imputation: Literal["median", "mean", "constant"] = Field(
        "median", description="What replaces a missing value: a statistic of the train part, or `constant`."
    )
    constant: float = Field(
        0.0, allow_inf_nan=False, description="Replaces a missing value if `imputation` is `constant`."
    )
    normalisation: Normalisation = Field(
        "standard",
        description="To mean 0 and standard deviation 1; to the range 0 to 1 by minimum and maximum; to the "
        "rank among the train rows, from 0 to 1; or unchanged.",
    )
    indicator: Literal["when_missing", "always", "never"] = Field(
        "when_missing",
        description="Add a column that is 1 if the value is missing; by default if the train part has missing values.",
    )

    @field_validator("clip")
    @classmethod
    def _ascending(cls, clip: tuple[float, float] | None) -> tuple[float, float] | None:
        if clip is not None and not 0.0 <= clip[0] < clip[1] <= 1.0:
            raise ValueError("expected two ascending quantiles from 0 to 1")
        return clip


class CategoricalSpec(Spec):
    """Which categories have an id of their own. Missing values have the id 0, unknown values 1."""

    min_count: int = Field(20, ge=1, description="Smallest number of train rows of a category; rarer ones are unknown.")
    max_size: int = Field(
        0, ge=0, description="Largest number of categories; the most frequent are kept; 0 for no limit."
    )


class TransformationSpec(Spec):
    """How the feature columns of a model are transformed; all is fitted on the train part only."""

    numeric: NumericSpec = Field(NumericSpec(), description="What is done to numeric features.")
    categorical: CategoricalSpec = Field(CategoricalSpec(), description="What is done to categorical features.")
    columns: dict[str, NumericSpec | CategoricalSpec] = Field(
        {}, description="Settings of single features, in place of all those above."
    )

    def of_numeric(self, name: str) -> NumericSpec:
        """The settings of a numeric feature."""
        own = self.columns.get(name)
        return own if isinstance(own, NumericSpec) else self.numeric

    def of_categorical(self, name: str) -> CategoricalSpec:
        """The settings of a categorical feature."""
        own = self.columns.get(name)
        return own if isinstance(own, CategoricalSpec) else self.categorical

    def misplaced(self, numeric: Sequence[str], categorical: Sequence[str]) -> list[str]:
        """The names in `columns` that are no feature, or have the settings of the other kind of features."""
        kinds = dict.fromkeys(numeric, NumericSpec) | dict.fromkeys(categorical, CategoricalSpec)
        return [name for name, own in self.columns.items() if type(own) is not kinds.get(name)]


Cost = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class CalibrationError(GatehouseError):
    """The validation rows cannot decide how a model is calibrated, or which threshold to take."""

    permanent = True


class FixedThreshold(Spec):
    """A threshold that is stated."""

    rule: Literal["fixed"] = "fixed"
    at: float = Field(0.5, ge=0.0, le=1.0, description="The threshold.")


class FBetaThreshold(Spec):
    """The threshold with the highest F-beta: recall counts `beta` times as much as precision."""

    rule: Literal["f_beta"]
    beta: float = Field(1.0, gt=0.0, le=100.0)


class CostThreshold(Spec):
    """The threshold with the least total cost: a price for each of the four outcomes."""

    rule: Literal["cost"]
    false_positive: Cost = Field(description="Cost of a negative row that is predicted as positive (false positive).")
    false_negative: Cost = Field(description="Cost of a positive row that is predicted as negative (false negative).")
    true_positive: Cost = 0.0
    true_negative: Cost = 0.0


class PrecisionThreshold(Spec):
    """The threshold with the highest recall whose precision is at least `at_least`."""

    rule: Literal["precision"]
    at_least: float = Field(gt=0.0, le=1.0, description="Least precision.")


ThresholdSpec = Annotated[
    FixedThreshold | FBetaThreshold | CostThreshold | PrecisionThreshold, Field(discriminator="rule")
]
Method = Literal["platt", "isotonic", "temperature", "none"]

_METHODS: dict[Output, tuple[Method, ...]] = {
    "probability": ("platt", "isotonic", "none"),
    "probabilities": ("temperature",),
}


class CalibrationSpec(Spec):
    """Calibration of a model: it is fitted on the validation part after training, and travels with the model."""

    method: Method | None = Field(
        None, description="How probabilities are corrected; null for `platt` of two classes, `temperature` of several."
    )
    threshold: ThresholdSpec = Field(
        FixedThreshold(),
        description="How the probability is chosen from which a row of two classes counts as positive; "
        "`rule` names the method.",
    )
    min_rows: int = Field(500, ge=20, description="Fewest validation rows to fit on.")

    def resolved(self, task: Task) -> Method:
        """The method, with the task's own in place of null."""
        return self.method or _METHODS[task.output][0]

    def problems(self, task: Task) -> Iterator[str]:
        """Settings that do not fit a task."""
        if not task.has_classes:
            expected = " or ".join(other.name for other in TASKS.values() if other.has_classes)
            yield f"expected a task with probabilities ({expected}), found {task.name}; remove it"
            return
        if self.method and self.method not in (offered := _METHODS[task.output]):
            yield f"method: expected {' or '.join(offered)} for the task {task.name}, found {self.method}"
        usual = self.threshold == FixedThreshold()
        if task.output != "probability" and not usual:
            yield f"threshold: only two classes have one, found the task {task.name}; remove it"
        if self.method == "none" and usual:
            yield "method: none, with the usual threshold, does nothing: state a method or a threshold, or remove both"
