"""Applies all rules of the policy to a compiled spec."""

from collections.abc import Iterator

from gatehouse.kfp.compilation.rules import portable, running, saying
from gatehouse.kfp.compilation.rules.rule import RULES, Rule
from gatehouse.kfp.compilation.specification import Compiled

MODULES = (running, saying, portable)


def rules() -> tuple[Rule, ...]:
    """All rules, in the order in which they are applied."""
    return tuple(RULES.values())


def breaches(compiled: Compiled, *, release: bool = False) -> Iterator[str]:
    """Breaches of the policy in a compiled spec, each with the rule and its reason.

    Args:
        compiled: The spec.
        release: Whether it is to be released: then the rules of a release apply too.
    """
    for each in rules():
        if release or not each.release:
            yield from (f"{found} [{each.name}: {each.why}]" for found in each.check(compiled))
