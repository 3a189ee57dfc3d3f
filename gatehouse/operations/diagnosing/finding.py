"""The result of one check, and what to do about it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gatehouse.errors import GatehouseError

Outcome = Literal["passed", "failed", "not checked"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        check: Name of the check.
        outcome: Its outcome.
        found: What was found, or why nothing could be found.
        advice: What to do; empty if the check passed.
        needed: Whether the pipelines need it. If not, an unchecked result is no problem.
    """

    check: str
    outcome: Outcome
    found: str
    advice: str = ""
    needed: bool = True

    @property
    def well(self) -> bool:
        """Whether nothing needs to be done."""
        return self.outcome == "passed" or (self.outcome == "not checked" and not self.needed)


def passed(check: str, found: str) -> Finding:
    """The result of a check that passed."""
    return Finding(check, "passed", found)


def failed(check: str, found: str, advice: str) -> Finding:
    """The result of a check that failed."""
    return Finding(check, "failed", found, advice)


def unchecked(check: str, why: str, advice: str = "", *, needed: bool = True) -> Finding:
    """The result of a check that could not be made."""
    return Finding(check, "not checked", why, advice, needed)


def looked(check: str, look: Callable[[], str], advice: str) -> Finding:
    """The result of `look`, which returns what it found; a GatehouseError is a failure with its first line."""
    try:
        return passed(check, look())
    except GatehouseError as error:
        return failed(check, " ".join(str(error).split())[:400], advice)
