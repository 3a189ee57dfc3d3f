"""How a training set is divided by time."""

import itertools
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class SplitSpec(BaseModel):
    """Boundaries in decision time. Every part ends where the next begins; a row exactly on a boundary begins the next.

    Before each boundary a gap is left: a row belongs to the earlier part only if its label was known, and its decision
    made, at least `gap` before the boundary.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    train_from: datetime | None = Field(
        None, description="First decision time of the train part; null for the earliest."
    )
    train_until: datetime = Field(description="Where train ends and validation begins.")
    validation_until: datetime = Field(description="Where validation ends and test begins.")
    test_until: datetime | None = Field(None, description="Where test ends; null for the latest.")
    gap: timedelta = Field(timedelta(hours=24), ge=timedelta(0), description="Kept free before each boundary.")

    @field_validator("train_from", "train_until", "validation_until", "test_until")
    @classmethod
    def _in_utc(cls, moment: datetime | None) -> datetime | None:
        if moment is None:
            return None
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)

    @model_validator(mode="after")
    def _in_order(self) -> "SplitSpec":
        bounds = [self.train_from, self.train_until, self.validation_until, self.test_until]
        given = [bound for bound in bounds if bound is not None]
        if any(earlier >= later for earlier, later in itertools.pairwise(given)):
            raise ValueError("expected train_from < train_until < validation_until < test_until")
        return self
