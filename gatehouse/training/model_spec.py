"""The settings of the models that can be trained: one spec each, told apart by `architecture`."""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, model_validator

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


NETWORKS = ("linear", "tabular_mlp", "ft_transformer")
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
