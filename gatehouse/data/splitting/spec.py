"""How a training set is divided: one model a strategy, and what is checked afterwards."""

import itertools
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from gatehouse.configuration.strict import Duration, iso
from gatehouse.store.identity import Spec, Unordered

Severity = Literal["fail", "warn", "note"]
CheckName = Literal["time_order", "label_maturity", "group_overlap", "entity_overlap", "duplicates", "availability"]
SEEN_BEFORE: tuple[CheckName, ...] = ("group_overlap", "duplicates")
"""Checks that find rows of test which a model may have seen in training: it then looks better than it is."""


Moment = Annotated[
    datetime,
    AfterValidator(lambda time: time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)),
]


_TIME_OR_DURATION = re.compile(r"P(?=.*[1-9])[T\d]|\d{4}-\d\d-\d\d")


def _in_its_form(value: Any) -> Any:
    """Refuse numbers, and other forms of a duration that pydantic takes, as `81 days`: YAML has one form of each."""
    if isinstance(value, int | float) or (isinstance(value, str) and not _TIME_OR_DURATION.match(value)):
        raise ValueError(f"expected a time such as 2024-07-01, or a duration such as P90D, found {value!r}")
    return value


Boundary = Annotated[Moment | Annotated[Duration, Field(gt=timedelta(0))], BeforeValidator(_in_its_form)]
"""A time, or how long before the newest decision: then it moves along with the rows, as a model that is trained again
needs."""
Columns = tuple[str, ...]
_DAY = timedelta(hours=24)


class Fractions(Spec):
    """Share of the rows, or of the groups, that each part is to have; they sum to one."""

    train: float = Field(0.70, gt=0, lt=1, description="Share of train.")
    validation: float = Field(0.15, gt=0, lt=1, description="Share of validation.")
    test: float = Field(0.15, gt=0, lt=1, description="Share of test.")

    @model_validator(mode="after")
    def _sum_to_one(self) -> "Fractions":
        total = math.fsum((self.train, self.validation, self.test))
        if abs(total - 1) > 1e-9:
            raise ValueError(f"expected fractions that sum to 1, found {total:g}")
        return self


class Checks(Spec):
    """The checks after the rows are divided, and how bad each finding is.

    A check that finds something ends the run (`fail`), is a warning of the run (`warn`) or only stands in the report
    (`note`). A check that could not run ends the run only where its severity is set to `fail` here. By default what the
    strategy promises is `fail`, and so is a part of which more than a fifth repeats features and labels of an earlier
    part; other duplicates are `warn`, and the rest is `note`.
    """

    severity: dict[CheckName, Severity] = Field({}, description="Severity of checks that is not the default one.")
    groups: Unordered = Field((), description="Columns whose values should not occur in two parts, under any strategy.")
    duplicates: float = Field(
        0.01, ge=0, lt=1, description="Largest share of a part's rows with the features of a row of an earlier part."
    )
    availability: dict[str, str] = Field(
        {}, description="For a feature, the timestamp column that says when its value was known."
    )


class _Split(Spec):
    checks: Checks = Field(Checks(), description="The checks of the finished split.")


class _Hashed(_Split):
    seed: int = Field(7, ge=0, description="Seed of the hash; another seed gives another split.")
    null_keys: Literal["refuse", "leave_out"] = Field(
        "refuse", description="Rows without a value in a column of the split: an error, or in no part."
    )


class _InFractions(_Hashed):
    fractions: Fractions = Field(Fractions(), description="Shares of the parts.")


class TimeSplit(_Split):
    """Boundaries in decision time. Every part ends where the next begins; a row exactly on a boundary begins the next.

    Before each boundary a gap is left: a row belongs to the earlier part only if its label was known, and its decision
    made, at least `gap` before the boundary.
    """

    strategy: Literal["time"] = Field("time", description="By decision time.")
    train_from: Moment | None = Field(None, description="First decision time of the train part; null for the earliest.")
    train_until: Boundary = Field(
        description="Where train ends and validation begins: a time, or a duration before the newest decision as P28D."
    )
    validation_until: Boundary = Field(description="Where validation ends and test begins, in the same way.")
    test_until: Moment | None = Field(None, description="Where test ends; null for the latest.")
    gap: Duration = Field(_DAY, ge=timedelta(0), description="Gap before each boundary: rows in it are in no part.")

    @model_validator(mode="after")
    def _in_order(self) -> "TimeSplit":
        bounds = [self.train_from, self.train_until, self.validation_until, self.test_until]
        times = [bound for bound in bounds if isinstance(bound, datetime)]
        if any(earlier >= later for earlier, later in itertools.pairwise(times)):
            bounds_shown = ", ".join(f"{bound:%Y-%m-%d %H:%M}" for bound in times)
            raise ValueError(f"expected train_from < train_until < validation_until < test_until, found {bounds_shown}")
        before = [bound for bound in bounds if isinstance(bound, timedelta)]
        if len(before) == 2 and before[0] <= before[1]:
            raise ValueError(
                "train_until and validation_until count back from the newest decision: expected train_until longer "
                f"than validation_until, found {iso(before[0])} and {iso(before[1])}"
            )
        return self


class RandomSplit(_InFractions):
    """By a seeded hash of each row's key: a row stays where it is when others are added, removed or reordered."""

    strategy: Literal["random"] = Field(description="By row.")
    keys: Columns = Field((), description="Columns of the key; by default entity keys and decision time, or all.")


class StratifiedSplit(_InFractions):
    """As random, but every stratum is divided in the given fractions to within one row.

    The rows of a stratum are taken in order of their hash and cut at its fractions, so the cut depends on how many rows
    there are: of n rows that are added, each cut moves at most n + 1 old rows.
    """

    strategy: Literal["stratified"] = Field(description="By row, evenly in each stratum.")
    strata: Columns = Field((), description="Columns whose values make a stratum; by default the label.")
    keys: Columns = Field((), description="Columns of the key; by default entity keys and decision time, or all.")


class EntitySplit(_InFractions):
    """All rows of an entity are in one part, by a seeded hash of its keys; the fractions are those of entities."""

    strategy: Literal["entity"] = Field(description="By entity.")
    keys: Columns = Field((), description="Entity keys that together make the entity; by default all.")


class GroupSplit(_InFractions):
    """All rows of a group are in one part, by a seeded hash of its values; the fractions are those of groups."""

    strategy: Literal["group"] = Field(description="By group.")
    columns: Columns = Field(min_length=1, description="Columns whose values together are the group.")


class KFoldSplit(_Hashed):
    """Folds by a seeded hash of a unit, beside a test part that is in no fold.

    Fold k is validation once, `<k>/validation.parquet`; its train part is all other folds. The split's own train and
    validation parts are those of the last fold.
    """

    strategy: Literal["k_fold"] = Field(description="In folds, by hash.")
    folds: int = Field(5, ge=2, le=100, description="Number of folds.")
    unit: Literal["row", "entity", "group", "stratified"] = Field(
        "row", description="What stays in one fold (entity, group), or is distributed evenly (stratified)."
    )
    columns: Columns = Field((), description="Columns of the group or of the strata; for entity and row, their keys.")
    test_fraction: float | None = Field(None, gt=0, lt=1, description="Share of the units in the test part, by hash.")
    test_from: Moment | None = Field(None, description="Rows with a decision time from here on are the test part.")
    gap: Duration = Field(_DAY, ge=timedelta(0), description="Gap before `test_from`: rows in it are in no part.")

    @model_validator(mode="after")
    def _one_test(self) -> "KFoldSplit":
        if (self.test_fraction is None) == (self.test_from is None):
            raise ValueError("expected one of test_fraction and test_from")
        if self.unit == "group" and not self.columns:
            raise ValueError("columns: expected the columns of the group, found none")
        return self


class RollingOriginSplit(_Split):
    """Several splits by time, each with an origin: train is before it, validation is the horizon after it.

    The last horizon ends at `test_from`, the one before it a step earlier, and so on. Each origin is divided as `time`
    divides, with the same gap. The split's own train and validation parts are those of the last origin.
    """

    strategy: Literal["rolling_origin"] = Field(description="In folds, by decision time.")
    origins: int = Field(5, ge=1, le=1000, description="Number of origins.")
    horizon: Duration = Field(gt=timedelta(0), description="Length of each validation part.")
    step: Duration | None = Field(None, gt=timedelta(0), description="Time between origins; null for the horizon.")
    window: Duration | None = Field(None, gt=timedelta(0), description="Length of train; null: all before the origin.")
    train_from: Moment | None = Field(None, description="First decision time of any train part; null for the earliest.")
    test_from: Moment = Field(description="Where the last horizon ends and test begins.")
    test_until: Moment | None = Field(None, description="Where test ends; null for the latest.")
    gap: Duration = Field(_DAY, ge=timedelta(0), description="Gap before each boundary: rows in it are in no part.")

    @model_validator(mode="after")
    def _in_order(self) -> "RollingOriginSplit":
        if self.test_until is not None and self.test_until <= self.test_from:
            raise ValueError(f"expected test_from < test_until, found {self.test_from} and {self.test_until}")
        if self.window is not None and self.window <= self.gap:
            raise ValueError("window: expected more than the gap, found a train part without rows")
        if self.train_from is not None and self.train_from >= self.origin(0):
            raise ValueError(f"expected train_from before the first origin, {self.origin(0).isoformat()}")
        return self

    def origin(self, number: int) -> datetime:
        """Where the train part of an origin, from 0, ends."""
        ahead = (self.origins - 1 - number) * (self.step or self.horizon)
        return self.test_from - self.horizon - ahead

    def at(self, number: int) -> TimeSplit:
        """The boundaries of one origin, from 0; the last one's are those of the split."""
        origin = self.origin(number)
        starts = [self.train_from] if self.train_from else []
        starts += [origin - self.window] if self.window else []
        return TimeSplit.model_construct(
            train_from=max(starts, default=None),
            train_until=origin,
            validation_until=origin + self.horizon,
            test_until=self.test_until,
            gap=self.gap,
            checks=self.checks,
        )


SplitSpec = Annotated[
    Annotated[TimeSplit, Tag("time")]
    | Annotated[RandomSplit, Tag("random")]
    | Annotated[StratifiedSplit, Tag("stratified")]
    | Annotated[EntitySplit, Tag("entity")]
    | Annotated[GroupSplit, Tag("group")]
    | Annotated[KFoldSplit, Tag("k_fold")]
    | Annotated[RollingOriginSplit, Tag("rolling_origin")],
    Discriminator(
        lambda value: (value if isinstance(value, dict) else vars(value)).get("strategy", "time"),
        custom_error_type="strategy",
        custom_error_message="expected one of time, random, stratified, entity, group, k_fold, rolling_origin",
    ),
]
STRATEGIES = (
    TimeSplit,
    RandomSplit,
    StratifiedSplit,
    EntitySplit,
    GroupSplit,
    KFoldSplit,
    RollingOriginSplit,
)
