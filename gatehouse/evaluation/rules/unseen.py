"""Unseen rows: enough test rows are left that neither candidate nor champion was fitted on."""

from collections.abc import Iterator

from pydantic import Field

from gatehouse.evaluation.gate import UNSEEN, Evidence, Rule, family
from gatehouse.store.identity import Spec


class Unseen(Spec):
    """Number of test rows that must be left."""

    least_unseen_rows: int = Field(
        100,
        ge=1,
        description="Test rows that the candidate or the champion was fitted on are removed. If fewer rows than this "
        "are left, the verdict is inconclusive.",
    )


@family(Unseen, UNSEEN, of_rows=False)
def unseen(policy: Unseen, evidence: Evidence) -> Iterator[Rule]:
    """The lineage of both models can be read, and enough rows are left."""
    if (seen := evidence.seen) is None:
        return
    expected = "that each model tells which rows it was fitted on"
    if seen.unread:
        yield Rule(UNSEEN, expected, "; ".join(seen.unread), False)
        return
    enough = seen.left >= policy.least_unseen_rows and not seen.lacking
    if any(seen.rows.values()):
        expected = f"at least {policy.least_unseen_rows:,} test rows that no model was fitted on"
    yield Rule(UNSEEN, expected, str(seen), enough or seen.left == seen.of, inconclusive=not enough)
