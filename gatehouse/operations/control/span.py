"""The time span of a run: its parameters `since` and `until`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gatehouse.errors import ConfigurationError


def require_span(parameters: Mapping[str, Any]) -> None:
    """Refuse a run whose `since` or `until` is not a time with a zone, or whose span is empty.

    Raises:
        ConfigurationError: naming the parameter.
    """
    found: list[datetime] = []
    for name in ("since", "until"):
        if text := str(parameters.get(name) or ""):
            try:
                found.append(datetime.fromisoformat(text))
            except ValueError:
                found.append(datetime.min)
            if found[-1].tzinfo is None:
                raise ConfigurationError(
                    f"{name}: expected a time with its zone, as 2013-11-01T00:00:00Z, found {text}."
                )
    if len(found) == 2 and found[0] >= found[1]:
        raise ConfigurationError(
            f"since: expected a time before until ({parameters['until']}), found {parameters['since']}."
        )
