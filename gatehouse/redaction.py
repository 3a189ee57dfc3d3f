"""Removes secrets from text: passwords in addresses and settings, and values of variables with secret names."""

import os
import re
from typing import Any

_PASSWORD = re.compile(r"(://[^/\s:@\[]*):(?!\d{1,5}[/?#])[^\s'\"]+@")
"""A password in an address, up to the last `@`, as one that is not quoted may hold `/` and `@`; no port with a path."""
_SETTING = re.compile(r"\b(\w*(?:password|passwd|pwd|secret|token))=[^\s,&;]+", re.IGNORECASE)
_KEY = re.compile(r"password|passwd|pwd|secret|token|credential|access_?key|api_?key", re.IGNORECASE)
_NAMES = re.compile(r"(?:PASSWORD|PASSWD|SECRET|TOKEN|ACCESS_KEY|API_KEY|WEBHOOK)$", re.IGNORECASE)
_SHORTEST = 6
"""Minimum length of a secret. Shorter values would also be hidden in unrelated words."""


def redacted(text: str) -> str:
    """A text that is safe to store: every secret that this process knows is replaced by `***`."""
    held = {value for name, value in os.environ.items() if _NAMES.search(name) and len(value) >= _SHORTEST}
    for value in sorted(held, key=len, reverse=True):
        text = text.replace(value, "***")
    return _SETTING.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", text))


def without_secrets(value: Any) -> Any:
    """A value of a file as it may be shown: `***` for what stands under a key such as `password`."""
    if isinstance(value, dict):
        return {key: "***" if _KEY.search(str(key)) else without_secrets(each) for key, each in value.items()}
    return [without_secrets(each) for each in value] if isinstance(value, list) else value
