"""The section of a comparison of serving with training: thresholds and columns left out."""

from typing import Literal

from pydantic import Field

from gatehouse.store.identity import Spec, Unordered


class SkewSpec(Spec):
    """What counts as skew between the features that a model was trained on and those that it was asked about."""

    psi: float | None = Field(0.2, gt=0, description="Greatest population stability index of a feature.")
    js: float | None = Field(0.1, gt=0, le=1, description="Greatest Jensen-Shannon divergence of a feature, in bits.")
    linf: float | None = Field(
        None, gt=0, le=1, description="Greatest difference of the share of any bin or value of a feature."
    )
    nulls: float = Field(0.05, ge=0, le=1, description="Largest increase of the share of nulls, NaN and infinities.")
    new_features: Literal["fail", "warn", "allow"] = Field(
        "warn", description="Severity for columns that are not in the training set."
    )
    ignore: Unordered = Field((), description="Columns that are not compared, e.g. request ids.")
    sensitive: Unordered = Field(
        (), description="Columns of which no value may be kept: only their types and nulls are compared."
    )
    min_rows: int = Field(1000, ge=1, description="With fewer logged rows nothing is judged.")
