"""The age of the training data: how much older its newest decision is than the newest of the test rows."""

from collections.abc import Iterator
from datetime import timedelta

from pydantic import Field

from gatehouse.configuration.strict import Duration
from gatehouse.evaluation.gate import Evidence, Rule, family
from gatehouse.store.identity import Spec

_DAY = timedelta(days=1)


class TrainingAge(Spec):
    """The limit of the age."""

    max_training_age: Duration | None = Field(
        None,
        ge=timedelta(0),
        description="Longest time from the newest decision that the model was trained on (after a refit, also of the "
        "validation part) to the newest decision of the test part; null for no limit. The clock is not used: an "
        "evaluation must give the same result whenever it runs.",
    )


@family(TrainingAge, of_rows=False)
def training_age(policy: TrainingAge, evidence: Evidence) -> Iterator[Rule]:
    """The newest row that the candidate was trained on is not too old."""
    if (most := policy.max_training_age) is None:
        return
    days = evidence.origins.age_days if evidence.origins else None
    lacking = evidence.origins.lacking or "the rows have no decision times" if evidence.origins else "nobody told"
    age = f"{days:.2f} days" if days is not None else f"not measured: {lacking}"
    expected = f"at most {most / _DAY:g} days before the newest test row"
    yield Rule("training age", expected, age, days is not None and days <= most / _DAY)
