"""What is asked of a candidate before it is judged."""

from collections.abc import Iterable, Mapping, Sequence

from pydantic import Field

from gatehouse.store.identity import Spec

FILE = "integration.json"
"""The file of a suite with its checks."""
PASS, FAIL = "pass", "fail"
GOLDEN = "golden.parquet"
"""The file of a suite with the numbers of the rows that were asked, and their predictions."""
NOT_CHECKED = "not checked"
"""The verdict of what could be checked and was not."""

ONLINE = "online features"
"""The check that online retrieval gives the features that the candidate was trained on."""


def told_of(checks: Iterable[Mapping[str, str]], verdict: str) -> tuple[str, ...]:
    """What the checks of a suite with some verdict found."""
    return tuple(f"{each['check']}: {each['found']}" for each in checks if each["verdict"] == verdict)


def reasons_of(checks: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """The reasons why a suite failed, and as warnings what it did not check."""
    unchecked = (f"{each} ({NOT_CHECKED})" for each in told_of(checks, NOT_CHECKED))
    return {"reasons": told_of(checks, FAIL), "warnings": tuple(unchecked)}


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
