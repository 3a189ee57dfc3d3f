"""Keeps secrets out of values that everybody may see, and out of messages, where `***` takes their place."""

import os
import re
from typing import Any
from urllib.parse import unquote, unquote_plus

from gatehouse.errors import ConfigurationError, GatehouseError

_USER = r"(?:[\w.~!$&()*+,;=:-]|%[0-9a-f]{2})*"
_SERVER = r"(?:\[[0-9a-f:.]+\]|[\w.~%\\-]*)(?::\d{0,5})?"
_ADDRESS = re.compile(
    rf"(?P<scheme>[a-z][\w+.-]*)://(?:(?P<user>{_USER})@)?(?P<servers>{_SERVER}(?:,{_SERVER})*)"
    r"(?P<path>(?:/[^?#]*)?)(?P<more>(?:[?#].*)?)",
    re.IGNORECASE | re.ASCII,
)
_PASSWORD = re.compile(r"(://[^/\s:@\[]*):(?!\d{1,5}/)([^\s'\"]{1,500})@")
"""A password in an address, up to the last `@`, as one that is not quoted may hold `/` and `@`; no port with a path."""
_NAME = (
    r"(?:password|passwd|(?<![a-z])(?:pass|pwd)|secret|webhook|(?:access|api|private|secret)[_-]?key"
    r"|(?<!max.)(?<!pad.)(?<!eos.)(?<!bos.)token)"
)
"""How the name of a secret ends, and not that of a number or a mark of a language model."""
_NAMED = re.compile(f"{_NAME}$", re.IGNORECASE)
_SETTING = re.compile(rf"({_NAME})=([^\s,&;'\"]+)", re.IGNORECASE)
_TOKEN = re.compile(r"\b(?:gh[a-z]_|github_pat_|glpat-|hf_|AKIA)\w{16,}|\bsk-[\w-]{32,}")
"""Tokens by their beginning: of GitHub, GitLab, Hugging Face, AWS, and others."""
_SECRET = re.compile(r"(?!(?:\d{0,5}|true|false|no|yes)$|[-<($/.]|\{\w+\}$)[^(\[]+$", re.IGNORECASE)
"""A value with such a name that is no short number, path, reference to a variable, or code."""
_SHORTEST = 6
"""Minimum length of a secret that is removed from messages. Shorter ones would also be hidden in unrelated words."""


def require_encoded(
    address: str, place: str, kind: type[GatehouseError] = ConfigurationError, *, bare: bool = False
) -> str:
    """Check an address before a client gets it, as clients split one that is not percent-encoded at other characters.

    A client would then take a piece of the password for a host or a path, and show it. `place` says where a person
    corrects the address. With `bare`, a user, a password and parameters are refused. Raises `kind`, in words that do
    not depend on the address.
    """
    address = address.strip()  # A secret that was made from a file ends in a line break.
    parts = _parted(address)
    if not parts:
        raise kind(
            f"{place}: expected an address such as https://HOST or postgresql://USER:PASSWORD@HOST/DATABASE, with a "
            "number as port, found another. It is not shown, as it may hold a password: write each @ of the password "
            "as %40, / as %2F, # as %23, ? as %3F, % as %25, and so on for all but letters, digits and -._~."
        )
    if bare and (parts["user"] or parts["more"]):
        raise kind(
            f"{place}: expected an address without user, password and parameters, found one with them. It is not "
            "shown. Remove them: a token has a variable of its own."
        )
    return address


def public_address(address: str) -> str:
    """An address without user, password, parameters and fragment; empty if `require_encoded` refuses it."""
    parts = _parted(address)
    return f"{parts['scheme']}://{parts['servers']}{parts['path']}" if parts else ""


def _parted(address: str) -> dict[str, str]:
    """The parts of an address that all clients split alike; empty for any other text."""
    matched = _ADDRESS.fullmatch(address)
    parts = matched.groupdict("") if matched and address.isprintable() else {}
    before, at, _ = address[matched.start("servers") :].partition("@") if matched else ("", "", "")
    return {} if at and (parts.get("user") or ":" in before) else parts


def holds_secret(text: str) -> bool:
    """Whether a value that everybody may see, such as an address, a path or a command, looks like it holds a secret."""
    for form in (text, unquote_plus(text)):
        form = re.sub(r":\$\{?\w+\}?@", "@", form)  # A shell or the user's script replaces it.
        form = re.sub(r"(?<!\S)(--?[\w-]+)\s+['\"]?(?=[^\s-])", r"\1=", form)
        if any(_SECRET.match(value) for _, value in _SETTING.findall(form)):
            return True
        if _TOKEN.search(form) or _PASSWORD.search(form):
            return True
    return False


def error_text(error: object) -> str:
    """The class and message of an error, on one line, without secrets and without the last stop."""
    return redacted(f"{type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}")


def redacted(text: str) -> str:
    """A text that is safe to store: secrets in variables of this process, or that look like some, become `***`."""
    secrets = {value for name, value in os.environ.items() if _NAMED.search(name) and name != "PWD"}
    for value in os.environ.values():
        parts = {match[2] for form in (_PASSWORD, _SETTING) for match in form.finditer(value)}
        secrets |= parts | set(map(unquote, parts))
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***") if len(secret) >= _SHORTEST else text
    return _TOKEN.sub("***", _SETTING.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", text)))


def without_secrets(value: Any) -> Any:
    """A value of a file that is safe to show: `***` for every value under a key such as `password`."""
    if isinstance(value, dict):
        return {key: "***" if _NAMED.search(str(key)) else without_secrets(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    return redacted(value) if isinstance(value, str) else value
