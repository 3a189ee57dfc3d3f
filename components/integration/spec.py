"""What is asked of a candidate before it is judged."""

from pydantic import Field

from gatehouse.components.artifacts.identity import Spec

GOLDEN = "golden.parquet"
"""The file of a suite with the numbers of the rows that were asked, and their predictions."""
NOT_CHECKED = "not checked"
"""The verdict of what could be checked and was not."""

ONLINE = "online features"
"""The check that online retrieval gives the features that the candidate was trained on."""


class IntegrationSpec(Spec):
    """How a candidate is tried. The project's own tests are the files of its folder `integration/`."""

    rows: int = Field(
        32,
        ge=1,
        le=10_000,
        description="Number of test rows in the golden batch, evenly spaced; a ranking takes whole groups.",
    )
    latency_ms: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Largest 95th percentile of the time to score one row in a serving process, in milliseconds; "
        "null for no "
        "limit.",
    )
    memory_mb: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Largest memory of this process, in megabytes; null for no limit.",
    )
