"""Credentials in addresses: found, so that none gets into a spec, and hidden in the messages of drivers."""

import re
from urllib.parse import unquote, unquote_plus, urlsplit

_NAMES = r"(?i)(?:password|passwd|pwd|token|secret)\s*=\s*"
_SECRET = re.compile(_NAMES + r"(\{[^}]*\}|[^&;\s]+)")
_UNQUOTED = re.compile(r"://[^/\s:@\[]*:(?!\d{1,5}[/?#])(\S+)@")
"""A password that holds characters such as `/` and is not quoted: `urlsplit` finds none there."""
_PARAMETER = re.compile(_NAMES + r"([^&\s]+)")


def holds_credentials(url: str) -> bool:
    """Whether a URL holds a password or token, also where a connection string is encoded in it."""
    found = (_SECRET.search(text) for text in _readings(url))
    return bool(urlsplit(url).password or _UNQUOTED.search(url) or any(found))


def redacted(message: str, url: str) -> str:
    """A driver's message without the URL or what is secret in it, on one line."""
    password = urlsplit(url).password or ""
    hidden = {url, password, unquote(password), *_PARAMETER.findall(url), *_UNQUOTED.findall(url)}
    for text in _readings(url):
        found = set(_SECRET.findall(text))
        hidden |= found | {secret.strip("{}") for secret in found} | {unquote_plus(secret) for secret in found}
    for secret in sorted(hidden - {""}, key=len, reverse=True):
        message = message.replace(secret, "***")
    return " ".join(_SECRET.sub(lambda found: found[0].replace(found[1], "***"), message).split())


def _readings(url: str) -> tuple[str, ...]:
    return (url, unquote(url), unquote_plus(url))
