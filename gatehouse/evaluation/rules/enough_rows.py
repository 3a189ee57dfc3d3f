"""Enough rows: as many test rows as a verdict needs."""

from collections.abc import Iterator

from pydantic import Field

from gatehouse.evaluation.gate import ENOUGH, Evidence, Rule, family
from gatehouse.store.identity import Spec

LEAST_TEST_ROWS = 100


class EnoughRows(Spec):
    """How many test rows a verdict needs."""

    least_test_rows: int = Field(
        LEAST_TEST_ROWS,
        ge=1,
        description="If the models are measured on fewer test rows than this, the verdict is inconclusive.",
    )
    least_test_groups: int = Field(
        20, ge=1, description="For a ranking, in place of `least_test_rows`: the same for groups."
    )
    least_rarer_rows: int = Field(
        20,
        ge=1,
        description="For classes: if fewer test rows than this are outside of the most frequent class (for `binary`, "
        "in the rarer class), the verdict is inconclusive.",
    )


@family(EnoughRows, ENOUGH, of_rows=False)
def enough_rows(policy: EnoughRows, evidence: Evidence) -> Iterator[Rule]:
    """That enough rows were measured and, for classes, enough of them outside of the most frequent class."""
    if (counted := evidence.counted) is None:
        return
    asked = [(policy.least_test_rows, counted.units, "test rows")]
    if counted.groups:
        asked = [(policy.least_test_groups, counted.units, "groups of test rows")]
    if counted.rarer is not None:
        asked.append((policy.least_rarer_rows, counted.rarer, "rows outside of the most frequent class"))
    enough = all(found >= least for least, found, _ in asked)
    expected = " and ".join(f"{least:,} {of}" for least, _, of in asked)
    found = " and ".join(f"{found:,}" for _, found, _ in asked)
    yield Rule(ENOUGH, f"at least {expected}", found, enough, inconclusive=not enough)
