"""Text without secrets: passwords of addresses and settings, and what variables hold that are named as secrets."""

import os
import re

_PASSWORD = re.compile(r"(://[^/\s:@\[]*):(?:[^/\s]+|(?!\d{1,5}[/?#])[^\s@]{6,})@")
"""Of an address. With a slash it has at least six characters, and does not begin as a port and a path do."""
_SETTING = re.compile(r"\b(\w*(?:password|passwd|secret|token))=[^\s,&;]+", re.IGNORECASE)
_NAMES = re.compile(r"(?:PASSWORD|PASSWD|SECRET|TOKEN|ACCESS_KEY|API_KEY|WEBHOOK)$", re.IGNORECASE)
_SHORTEST = 6
"""Characters. What is shorter is no secret, and would be hidden in words that have nothing to do with it."""


def redacted(text: str) -> str:
    """A message of a library as it may be kept: with `***` for every secret that this process knows of."""
    held = {value for name, value in os.environ.items() if _NAMES.search(name) and len(value) >= _SHORTEST}
    for value in sorted(held, key=len, reverse=True):
        text = text.replace(value, "***")
    return _SETTING.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", text))
