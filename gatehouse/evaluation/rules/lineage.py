"""Lineage: all artifacts that a model was made from are in the store."""

from collections.abc import Iterator

from pydantic import Field

from gatehouse.evaluation.gate import Evidence, Rule, family
from gatehouse.store.identity import Spec


class Lineage(Spec):
    """Whether the lineage must be complete."""

    complete_lineage: bool = Field(
        False,
        description="Refuse a candidate whose manifests do not lead to a snapshot, its configuration, feature tables, "
        "training set and split that are in the store; registration always requires that, and also who trained it and "
        "how.",
    )


@family(Lineage, of_rows=False)
def lineage(policy: Lineage, evidence: Evidence) -> Iterator[Rule]:
    """Nothing is missing in the lineage of the candidate."""
    if policy.complete_lineage:
        missing = evidence.origins.missing if evidence.origins else ("not checked",)
        expected = "snapshot, configuration, feature tables, training set and split in the store"
        yield Rule("lineage", expected, "; ".join(missing) or "all of them", not missing)
