"""The settings and the checks of a candidate before it is judged."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from gatehouse.errors import GatehouseError
from gatehouse.store.identity import Spec

FILE, GOLDEN = "integration.json", "golden.parquet"
"""The files of a suite: its checks; and the numbers of the golden rows with their predictions."""
PASS, FAIL, NOT_CHECKED = "pass", "fail", "not checked"
ONLINE = "online features"
"""The check that online retrieval returns the features that the candidate was trained on."""
Check = dict[str, str]
"""`check` (its name), `verdict` and `observed` of one check."""


def reasons_of(checks: Sequence[Check]) -> dict[str, tuple[str, ...]]:
    """The reasons why a suite failed, and as warnings what it did not check."""
    shown = [(check["verdict"], f"{check['check']}: {check['observed']}") for check in checks]
    unchecked = (f"{text} ({NOT_CHECKED})" for verdict, text in shown if verdict == NOT_CHECKED)
    return {"reasons": tuple(text for verdict, text in shown if verdict == FAIL), "warnings": tuple(unchecked)}


def described(error: GatehouseError) -> dict[str, Any]:
    """An error as a program of the suite writes it down."""
    return {"name": type(error).__name__, "permanent": error.permanent, "message": str(error)}


def is_test_file(path: str) -> bool:
    """Whether pytest looks for tests in a file of this path."""
    name = path.rpartition("/")[2]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


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
        "null for no limit.",
    )
    memory_mb: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Largest memory of this process, in megabytes; null for no limit.",
    )
