"""The run's parameter `rerun`: the stages that run whatever the memo holds."""

from collections.abc import Collection

from gatehouse.errors import ConfigurationError
from gatehouse.store.forms import given


def nonces_of(rerun: str) -> dict[str, str]:
    """The nonce of each stage that runs again.

    Args:
        rerun: `stage[,stage…]` with an optional `@nonce`, e.g. `train,evaluate@2`. Two runs with the same nonce run the
            stages once. Empty, or the form of the parameter, for none.
    """
    names, _, nonce = given(rerun).partition("@")
    return {name.strip(): nonce or "forced" for name in names.split(",") if name.strip()}


def require_known(rerun: str, stages: Collection[str]) -> None:
    """Refuse a stage that a run cannot force.

    Args:
        rerun: The parameter.
        stages: The stages that have a memo.

    Raises:
        ConfigurationError: naming the stages that are none of them.
    """
    if wrong := [name for name in nonces_of(rerun) if name not in stages]:
        raise ConfigurationError(
            f"rerun: expected stages among {', '.join(sorted(stages))}, found "
            f"{', '.join(repr(name) for name in wrong)}."
        )
