"""Enough rows: a verdict needs a number of test rows."""

from collections.abc import Iterator

from pydantic import Field

from gatehouse.evaluation.gate import ENOUGH, Evidence, Rule, family
from gatehouse.store.identity import Spec

LEAST_TEST_ROWS = 100


class EnoughRows(Spec):
    """Numbers of test rows that a verdict needs."""

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
    """Enough rows were measured and, for classes, enough of them outside of the most frequent class."""
    if (counted := evidence.counted) is None:
        return
    needed = [(policy.least_test_rows, counted.units, "test rows")]
    if counted.groups:
        needed = [(policy.least_test_groups, counted.units, "groups of test rows")]
    if counted.rarer is not None:
        needed.append((policy.least_rarer_rows, counted.rarer, "rows outside of the most frequent class"))
    enough = all(rows >= least for least, rows, _ in needed)
    expected = " and ".join(f"{least:,} {of}" for least, _, of in needed)
    counts = " and ".join(f"{rows:,}" for _, rows, _ in needed)
    yield Rule(ENOUGH, f"at least {expected}", counts, enough, inconclusive=not enough)
