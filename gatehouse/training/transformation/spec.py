"""How feature columns are transformed: clipping, imputation and normalisation of numbers, ids of categories."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from gatehouse.store.identity import Spec

Normalisation = Literal["standard", "min_max", "quantile", "none"]


class NumericSpec(Spec):
    """What is done to a number: it is clipped, imputed where it is missing, then normalised."""

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
