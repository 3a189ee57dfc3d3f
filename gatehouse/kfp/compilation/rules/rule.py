"""A rule of the policy: a name, a reason, and a check that finds its breaches in a compiled spec."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gatehouse.kfp.compilation.specification import Compiled

Check = Callable[[Compiled], Iterator[str]]


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: Its name in messages.
        why: The reason for it, in one sentence.
        check: Finds breaches in a spec, one sentence each.
        release: Whether it applies only to a release.
    """

    name: str
    why: str
    check: Check
    release: bool = False


RULES: dict[str, Rule] = {}
"""The rules by name; the modules of this package fill it."""


def rule(name: str, why: str, *, release: bool = False) -> Callable[[Check], Check]:
    """Decorator that registers a check as a rule."""

    def register(check: Check) -> Check:
        RULES[name] = Rule(name, why, check, release)
        return check

    return register
