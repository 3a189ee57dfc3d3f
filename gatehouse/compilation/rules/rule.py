"""A rule of the policy: a name, a reason, and what in a compiled spec breaks it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gatehouse.compilation.specification import Compiled

Check = Callable[[Compiled], Iterator[str]]


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: What it is called where it is broken.
        why: The reason for it, in one sentence.
        check: What in a spec breaks it: a sentence for each.
        release: Whether only a release has to keep it.
    """

    name: str
    why: str
    check: Check
    release: bool = False


RULES: dict[str, Rule] = {}
"""By name; filled by the modules of this package."""


def rule(name: str, why: str, *, release: bool = False) -> Callable[[Check], Check]:
    """Make a rule of a function."""

    def register(check: Check) -> Check:
        RULES[name] = Rule(name, why, check, release)
        return check

    return register
