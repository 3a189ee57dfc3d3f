"""What a look at one thing found, and what is to be done about it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gatehouse.errors import GatehouseError

Outcome = Literal["passed", "failed", "not checked"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: What.
        outcome: How it is.
        found: What was seen, or why nothing was.
        advice: What to do; empty where it passed.
        needed: Whether the pipelines need it. What is not needed and was not checked is no reason to worry.
    """

    check: str
    outcome: Outcome
    found: str
    advice: str = ""
    needed: bool = True

    @property
    def well(self) -> bool:
        """Whether nothing has to be done."""
        return self.outcome == "passed" or (self.outcome == "not checked" and not self.needed)


def passed(check: str, found: str) -> Finding:
    """That it is as it must be."""
    return Finding(check, "passed", found)


def failed(check: str, found: str, advice: str) -> Finding:
    """That it is not."""
    return Finding(check, "failed", found, advice)


def unchecked(check: str, why: str, advice: str = "", *, needed: bool = True) -> Finding:
    """That nobody could see."""
    return Finding(check, "not checked", why, advice, needed)


def looked(check: str, look: Callable[[], str], advice: str) -> Finding:
    """What `look` says it found; an error of ours is a failure with its first line."""
    try:
        return passed(check, look())
    except GatehouseError as error:
        return failed(check, " ".join(str(error).split())[:400], advice)
