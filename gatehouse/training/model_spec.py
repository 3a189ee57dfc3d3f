"""The settings of the models that can be trained: one spec each, told apart by `architecture`."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, model_validator

from gatehouse.store.identity import Spec

Width = Annotated[int, Field(ge=1, le=65_536)]


class _Network(Spec):
    @property
    def layers(self) -> int | None:
        """Blocks that a pipeline may cut between; None before the network is built."""
        return None

    def indivisible(self, tensor: int) -> list[str]:
        """Settings that cannot be divided into `tensor` equal parts, in words."""
        return []


class LinearSpec(_Network):
    """A linear model: one weight per number and one per category for each output."""

    architecture: Literal["linear"] = "linear"

    @property
    def layers(self) -> int | None:
        """Blocks that a pipeline may cut between: one, so no pipeline cuts it."""
        return 1

    def indivisible(self, tensor: int) -> list[str]:
        """Settings that cannot be divided into `tensor` equal parts, in words."""
        return [f"a linear model is not cut; expected parallelism.tensor 1, found {tensor}"] if tensor > 1 else []


class TabularMlpSpec(_Network):
    """A multi-layer perceptron over numbers and embedded categories."""

    architecture: Literal["tabular_mlp"] = "tabular_mlp"
    hidden: tuple[Width, ...] = Field(
        (256, 128), min_length=1, max_length=64, description="Width of each hidden layer."
    )
    dropout: float = Field(0.1, ge=0.0, lt=1.0, description="Share of a hidden layer's outputs dropped in training.")
    embedding_size: int = Field(16, ge=1, le=256, description="Largest number of dimensions of a category's embedding.")

    @property
    def layers(self) -> int | None:
        """Blocks that a pipeline may cut between."""
        return len(self.hidden)

    def indivisible(self, tensor: int) -> list[str]:
        """Settings that cannot be divided into `tensor` equal parts, in words."""
        odd = any(width % tensor for width in self.hidden)
        return [f"model.hidden {self.hidden} must be multiples of parallelism.tensor {tensor}"] if odd else []


class FtTransformerSpec(_Network):
    """FT-Transformer: every feature becomes a token, and a transformer reads the tokens."""

    architecture: Literal["ft_transformer"] = "ft_transformer"
    token_size: int = Field(64, ge=2, le=8192, description="Dimensions of a feature's token.")
    blocks: int = Field(3, ge=1, le=256, description="Transformer blocks.")
    heads: int = Field(4, ge=1, le=256, description="Attention heads of each block; they share the token's dimensions.")
    feed_forward: int = Field(128, ge=1, le=65_536, description="Hidden width of the feed-forward layers.")
    dropout: float = Field(0.1, ge=0.0, lt=1.0, description="Share of a block's outputs dropped in training.")

    @property
    def layers(self) -> int | None:
        """Blocks that a pipeline may cut between."""
        return self.blocks

    def indivisible(self, tensor: int) -> list[str]:
        """Settings that cannot be divided into `tensor` equal parts, in words."""
        return [
            f"model.{name} {value} must be a multiple of parallelism.tensor {tensor}"
            for name, value in {"heads": self.heads, "feed_forward": self.feed_forward}.items()
            if value % tensor
        ]

    @model_validator(mode="after")
    def _heads_share_the_token(self) -> "FtTransformerSpec":
        if self.token_size % self.heads:
            raise ValueError(f"token_size {self.token_size} must be a multiple of heads {self.heads}")
        return self


class BuilderSpec(_Network):
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
"""The built-in networks."""
EXPECTED = "expected one of linear, tabular_mlp, ft_transformer, xgboost, package.module:builder"


def architecture_of(model: Any) -> str:
    """The architecture in the settings of a model or in their JSON; `tabular_mlp` by default."""
    name = model.get("architecture") if isinstance(model, dict) else getattr(model, "architecture", None)
    return "tabular_mlp" if name is None else str(name)


def _tag(model: Any) -> str:
    name = architecture_of(model)
    return "builder" if ":" in name else name


NetworkSpec = Annotated[
    Annotated[LinearSpec, Tag("linear")]
    | Annotated[TabularMlpSpec, Tag("tabular_mlp")]
    | Annotated[FtTransformerSpec, Tag("ft_transformer")]
    | Annotated[BuilderSpec, Tag("builder")],
    Discriminator(_tag, custom_error_type="architecture", custom_error_message=EXPECTED),
]
"""The settings of any network."""
_NETWORK: TypeAdapter[NetworkSpec] = TypeAdapter(NetworkSpec, config=ConfigDict(hide_input_in_errors=True))


def network_spec(body: dict[str, Any]) -> NetworkSpec:
    """The settings of a network from JSON, as `model.json` holds them.

    Raises:
        ValidationError: if they are not the settings of a network.
    """
    return _NETWORK.validate_python(body)


def weights_file(architecture: str) -> str:
    """Name of the weights file of a model; both formats hold data and no code."""
    return "weights.ubj" if architecture == "xgboost" else "weights.safetensors"
