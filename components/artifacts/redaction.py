"""Text without secrets: passwords in addresses, and what the environment's variables that are named as secrets hold."""

import os
import re

_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s]+@")
_NAMES = re.compile(r"(?:PASSWORD|PASSWD|SECRET|TOKEN|ACCESS_KEY|API_KEY|WEBHOOK)$", re.IGNORECASE)
_SHORTEST = 6
"""Characters. What is shorter is no secret, and would be hidden in words that have nothing to do with it."""


def redacted(text: str) -> str:
    """A message of a library as it may be kept: with `***` for every secret that this process knows of."""
    held = {value for name, value in os.environ.items() if _NAMES.search(name) and len(value) >= _SHORTEST}
    for value in sorted(held, key=len, reverse=True):
        text = text.replace(value, "***")
    return _PASSWORD.sub(r"\1:***@", text)
