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
        32, ge=1, le=10_000, description="Test rows of the golden batch, evenly spaced; of rankings whole groups."
    )
    latency_ms: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Milliseconds in which 95 of 100 single rows are scored, in a process that serves; null for any.",
    )
    memory_mb: float | None = Field(
        None, gt=0.0, allow_inf_nan=False, description="Megabytes that this process holds at most; null for any."
    )
