"""Age of the feature views: the stale views that the stage `freshness` of the same run found."""

from collections.abc import Sequence

from gatehouse.monitoring.finding import ALARM, FRESHNESS, QUIET, Finding


def freshness(stale: Sequence[str]) -> list[Finding]:
    """One finding for each stale view, or one quiet finding.

    Args:
        stale: For each stale view why it is stale, in words.
    """
    if not stale:
        return [Finding(FRESHNESS, "", QUIET, "no feature view is stale")]
    return [Finding(FRESHNESS, "", ALARM, why) for why in stale]
