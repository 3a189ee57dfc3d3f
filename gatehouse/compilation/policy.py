"""The policy that every compiled spec keeps: every rule, applied."""

from collections.abc import Iterator

from gatehouse.compilation.rules import portable, running, saying
from gatehouse.compilation.rules.rule import RULES, Rule
from gatehouse.compilation.specification import Compiled

MODULES = (running, saying, portable)


def rules() -> tuple[Rule, ...]:
    """Every rule, in the order in which it is applied."""
    return tuple(RULES.values())


def breaches(compiled: Compiled, *, release: bool = False) -> Iterator[str]:
    """What in a compiled spec breaks the policy, each with the rule and its reason.

    Args:
        compiled: The spec.
        release: Whether it is to be released: then the rules of a release count too.
    """
    for each in rules():
        if release or not each.release:
            yield from (f"{found} [{each.name}: {each.why}]" for found in each.check(compiled))
