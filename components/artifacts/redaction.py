"""Removes secrets from text: passwords in addresses and settings, and values of variables with secret names."""

import os
import re

_PASSWORD = re.compile(r"(://[^/\s:@\[]*):(?:[^/\s]+|(?!\d{1,5}[/?#])[^\s@]{6,})@")
"""A password in an address. With a slash it has at least six characters, and does not look like a port and a path."""
_SETTING = re.compile(r"\b(\w*(?:password|passwd|secret|token))=[^\s,&;]+", re.IGNORECASE)
_NAMES = re.compile(r"(?:PASSWORD|PASSWD|SECRET|TOKEN|ACCESS_KEY|API_KEY|WEBHOOK)$", re.IGNORECASE)
_SHORTEST = 6
"""Minimum length of a secret. Shorter values would also be hidden in unrelated words."""


def redacted(text: str) -> str:
    """A text that is safe to store: every secret that this process knows is replaced by `***`."""
    held = {value for name, value in os.environ.items() if _NAMES.search(name) and len(value) >= _SHORTEST}
    for value in sorted(held, key=len, reverse=True):
        text = text.replace(value, "***")
    return _SETTING.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", text))
