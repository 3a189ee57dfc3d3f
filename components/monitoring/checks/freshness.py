"""Age of the feature views: what the stage `freshness` of the same run found stale."""

from collections.abc import Sequence

from gatehouse.components.monitoring.finding import ALARM, FRESHNESS, QUIET, Finding


def freshness(stale: Sequence[str]) -> list[Finding]:
    """Each stale view; one quiet finding where there is none.

    Args:
        stale: Why each stale view is, in words.
    """
    if not stale:
        return [Finding(FRESHNESS, "", QUIET, "no feature view is stale")]
    return [Finding(FRESHNESS, "", ALARM, why) for why in stale]
