"""What a model learns to do: the loss, its settings, and the columns that weigh or group rows."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from gatehouse.store.identity import Spec

_WEIGHT = "Numeric column of the training set that weighs rows; empty for none."
_CLASSES = "Weight of each class from class 0, or `balanced`: inverse to how often a class is seen."

ClassWeights = Literal["balanced"] | tuple[Annotated[float, Field(gt=0.0)], ...]


class BinaryLoss(Spec):
    """Cross-entropy of one class against the other; labels are 0 and 1."""

    kind: Literal["binary"] = "binary"
    sample_weight: str = Field("", description=_WEIGHT)
    class_weights: ClassWeights = Field((), description=_CLASSES)


class MulticlassLoss(Spec):
    """Cross-entropy of several classes; labels are whole numbers from 0."""

    kind: Literal["multiclass"] = "multiclass"
    sample_weight: str = Field("", description=_WEIGHT)
    class_weights: ClassWeights = Field((), description=_CLASSES)


class SquaredLoss(Spec):
    """The mean squared error; labels are numbers."""

    kind: Literal["mse"] = "mse"
    sample_weight: str = Field("", description=_WEIGHT)


class HuberLoss(Spec):
    """The Huber loss: squared for small errors, linear for large ones; labels are numbers."""

    kind: Literal["huber"] = "huber"
    sample_weight: str = Field("", description=_WEIGHT)
    delta: float = Field(1.0, gt=0.0, description="Error from which the loss grows linearly.")


class PairwiseLoss(Spec):
    """A ranking: of two rows of a group, the one with the higher label is to have the higher score."""

    kind: Literal["pairwise"] = "pairwise"
    group: str = Field(
        "", description="Column whose value the rows of a group share; empty for the group that the label declares."
    )
    sample_weight: str = Field("", description=_WEIGHT)


def _tag(given: Any) -> str:
    return str(given.get("kind", "binary") if isinstance(given, dict) else getattr(given, "kind", "binary"))


LossSpec = Annotated[
    Annotated[BinaryLoss, Tag("binary")]
    | Annotated[MulticlassLoss, Tag("multiclass")]
    | Annotated[SquaredLoss, Tag("mse")]
    | Annotated[HuberLoss, Tag("huber")]
    | Annotated[PairwiseLoss, Tag("pairwise")],
    Discriminator(
        _tag,
        custom_error_type="kind",
        custom_error_message="expected one of binary, multiclass, mse, huber, pairwise",
    ),
]
"""Any loss."""
