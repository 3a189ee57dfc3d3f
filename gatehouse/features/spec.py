"""A project's settings for features: where they are defined, and which service a model reads."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from gatehouse.store.identity import Spec

Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
"""A person's reason for accepting something; it may not be blank."""


class FeaturesSpec(Spec):
    """Where the project's feature definitions are, and which service a model reads."""

    repo: str = Field(description="Folder of the Feast repository, relative to this file.")
    service: str = Field(description="Feature service that the training set is retrieved through.")
    leakage_alarm: float | None = Field(
        None,
        gt=0.5,
        le=1.0,
        description="ROC AUC above which a single feature counts as a leak; by default 0.95, and 0.995 for the tasks "
        "multiclass, where the class that it predicts best counts, and regression and ranking, where it is measured "
        "on labels above their median (of all rows, or of the rows of the group) against the others.",
    )
    unchecked: dict[str, Reason] = Field(
        default_factory=dict,
        description="Views that the leakage check cannot check, with the reason why that is accepted: it is not "
        "declared when rows of their tables became known, or `known/TABLE.sql` takes nothing away. The check warns "
        "about them and fails for any other such view.",
    )
    freshness_against: Literal["as_of", "clock"] = Field(
        "clock",
        description="What the age of a view's newest event is measured from: `clock`, the time of the measurement, "
        "or `as_of`, the time at which the newest row of the sources is known. Use as_of for sources that end in the "
        "past; measured like this, a source that stopped looks fresh.",
    )
    max_skew: float = Field(
        0.0, ge=0.0, le=1.0, description="Share of values read back online that may differ from the offline ones."
    )
