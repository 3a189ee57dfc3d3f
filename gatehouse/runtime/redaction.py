"""Keeps secrets out of messages: checks addresses that may hold one, and removes secrets from text."""

import os
import re
from typing import Any
from urllib.parse import unquote, unquote_plus

from gatehouse.errors import ConfigurationError, GatehouseError

_ADDRESS = re.compile(
    r"(?P<scheme>[a-z][\w+.-]*)://(?P<login>(?P<user>[^/?#]*)@)?(?P<servers>[^/?#]*)(?P<path>[^?#]*)(?P<more>.*)",
    re.IGNORECASE | re.ASCII,
)
_USER = re.compile(r"(?:[\w.~!$&()*+,;=:-]|%[0-9a-f]{2})*", re.IGNORECASE | re.ASCII)
_SERVER = r"(?:\[[0-9a-f:.]+(?:%25\w+)?\]|[\w.~%\\-]*)(?::[0-9]{0,5})?"
_SERVERS = re.compile(rf"{_SERVER}(?:,{_SERVER})*", re.IGNORECASE | re.ASCII)
_OF_FILES = ("duckdb", "file", "sqlite")
"""Schemes of addresses without a server: what follows is a path, and parameters hold no secret."""
_PASSWORD = re.compile(r"(://[^/\s:@\[]*):(?!\d{1,5}[/?#])[^\s'\"]+@")
"""A password in an address, up to the last `@`, as one that is not quoted may hold `/` and `@`; no port with a path."""
_SETTING = re.compile(r"\b([\w-]*(?:password|passwd|pwd|secret|token|(?:access|api)[_-]?key))=[^\s,&;]+", re.IGNORECASE)
_TOKEN = re.compile(r"\b(?:gh[a-z]_|github_pat_|glpat-|hf_|AKIA)\w{16,}|\bsk-[\w-]{32,}")
"""Tokens by their beginning: of GitHub, GitLab, Hugging Face, AWS, and others."""
_LOGIN = re.compile("://.*@", re.DOTALL)
_PARAMETER = re.compile(r"(?:password|passwd|pwd|token|secret)\s*=\s*[^&;\s]", re.IGNORECASE)
_KEY = re.compile(r"(?i)password|passwd|pwd|secret|token(?!i[sz]e|s$)|^tokens|credential|(?:access|api)_?(?:key|tok)")
SECRET = re.compile(r"(?:PASSWORD|PASSWD|SECRET|TOKEN|ACCESS_KEY|API_KEY|WEBHOOK)$", re.IGNORECASE)  # of a variable
_SHOWN = re.compile(
    r"(?i)(?:.*=)?[\w-]*(?:password|passwd|secret|webhook|(?:access|api|private|secret)[_-]?key|(?<![^=_-])(?:pass|pwd)"
    r"|(?<!pad.)(?<!eos.)(?<!bos.)(?<!unk.)(?<!sep.)(?<!cls.)(?<!max.)(?<!mask.)token|[_-]key(?==sk-|=\w*(?=[a-z]*\d)"
    r"(?=\d*[a-z])[a-z\d]{16}))=(?![-<\[{($/.]|.*[(\[]|(?:\d{0,5}|true|false|no|yes)$).+"
)
"""NAME=value with the name of a secret; no paths, references, marks of language models, code and short numbers."""
_SHORTEST = 6
"""Minimum length of a secret. Shorter values would also be hidden in unrelated words."""
_CAUSES = re.compile(
    "Connection refused|could not translate host name|Name or service not known|(?:password )?authentication failed"
    "|no password supplied|no pg_hba.conf entry|Access denied|Unknown database|does not exist|too many connections"
    "|time(?:d out|out expired)|certificate verify failed|Unauthorized|Forbidden|invalid username-password pair"
    "|Can't load plugin|NOAUTH|NOPERM|WRONGTYPE|READONLY|LOADING|OOM"
)
"""Causes in messages of drivers that quote nothing of their input, so they are the same for every secret."""


def require_encoded(
    address: str, place: str, kind: type[GatehouseError] = ConfigurationError, *, bare: bool = False
) -> str:
    """Check an address before any driver or client gets it.

    All of them split a user and password of letters, digits, `-._~!$&()*+,;=:` and percent-encoded characters alike.
    Any other character, or an `@` behind a `:`, may end the password for one client and not for another, which then
    takes a piece of the password for a host, a port or a path, and shows it.

    Args:
        address: The address.
        place: Where a person corrects it: a key, an option or an environment variable.
        kind: Class of the error.
        bare: Whether to refuse a user, password and parameters, for clients that take none from the address.

    Raises:
        GatehouseError: as `kind`. Its words do not depend on the address, so they show no part of a secret.
    """
    address = address.strip()  # A secret that was made from a file ends in a line break.
    parts = _parted(address)
    if parts is None and "://" not in address:
        raise kind(
            f"{place}: expected an address such as https://HOST or postgresql://USER:PASSWORD@HOST/DATABASE, found "
            "none. What was found is not shown, as it may hold a password."
        )
    if parts is None:
        raise kind(
            f"{place}: expected an address whose user and password are percent-encoded and whose port is a number, "
            "found another. It is not shown, as it may hold a password: write each @ of the password as %40, / as %2F, "
            "# as %23, ? as %3F, [ as %5B, ] as %5D, % as %25, a blank as %20, and so on for all but letters, digits "
            "and -._~. Behind a password, or a port, an @ of a path is %40 too."
        )
    if bare and (parts["user"] or parts["more"]):
        raise kind(
            f"{place}: expected an address without user, password and parameters, found one with them. It is not "
            "shown. Remove them: a token has a variable of its own."
        )
    return address


def holds_password(address: str) -> bool:
    """Whether an address may hold a secret: it has a password or parameters, or `require_encoded` refuses it."""
    parts = _parted(address)
    if parts is None:
        return "://" in address
    return bool(parts["user"].partition(":")[2]) or ("?" in parts["more"] and not _is_of_files(parts))


def names_password(address: str) -> bool:
    """Whether an address or a path that everybody may see holds a password or token, also in a connection string."""
    if any(_PARAMETER.search(text) for text in (address, unquote(address), unquote_plus(address))):
        return True
    parts = _parted(address)
    return "://" in address and "@" in address and (parts is None or bool(parts["user"].partition(":")[2]))


def holds_secret(text: str) -> bool:
    """Whether the arguments of a command, or NAME=value, that everybody may see hold what looks like a secret."""
    text = re.sub(r":\$\{?\w+\}?@", "@", text)  # A shell or the user's script replaces it.
    text = re.sub(r"(?<!\S)(--[\w-]+)\s+['\"]?(?=[^\s-])", r"\1=", text)
    words = re.split(r"[\s;&?'\"]+", text)
    return any(map(_SHOWN.fullmatch, words)) or bool(_TOKEN.search(text) or _PASSWORD.search(text))


def public_address(address: str) -> str:
    """An address without user, password, parameters and fragment; empty if `require_encoded` refuses it."""
    parts = _parted(address)
    return f"{parts['scheme']}://{parts['servers']}{parts['path']}" if parts else ""


def error_text(error: object, secret: bool) -> str:
    """The class and message of an error, on one line and without the last stop.

    If the failed call had a `secret`, a library's message may repeat it, whole, in pieces or encoded, so only known
    causes in the message are shown.
    """
    words = " ".join(str(error).split()).rstrip(".")
    if secret and not isinstance(error, GatehouseError | ImportError):
        words = "; ".join([*dict.fromkeys(_CAUSES.findall(words)), "more is not shown, as it may repeat a password"])
    return redacted(f"{type(error).__name__}: {words}")


def redacted(text: str) -> str:
    """A text that is safe to store: secrets that this process knows, or that look like some, are replaced by `***`."""
    secrets = {value for name, value in os.environ.items() if SECRET.search(name) and len(value) >= _SHORTEST}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _TOKEN.sub("***", _SETTING.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", text)))


def without_secrets(value: Any) -> Any:
    """A value of a file that is safe to show: `***` for every value under a key such as `password`."""
    if isinstance(value, dict):
        return {key: "***" if _KEY.search(str(key)) else without_secrets(inner) for key, inner in value.items()}
    if isinstance(value, str):
        return redacted(_LOGIN.sub("://***@", value) if names_password(value) else value)
    return [without_secrets(item) for item in value] if isinstance(value, list) else value


def _parted(address: str) -> dict[str, str] | None:
    """The parts of an address that all clients split alike; None for any other text."""
    matched = _ADDRESS.fullmatch(address)
    if matched is None or not address.isprintable():
        return None
    parts = matched.groupdict("")
    if not _USER.fullmatch(parts["user"]) or not _SERVERS.fullmatch(parts["servers"]):
        return None
    may_end_later = parts["login"] or ":" in parts["servers"] or not (parts["servers"] or _is_of_files(parts))
    return None if may_end_later and "@" in parts["path"] + parts["more"] else parts


def _is_of_files(parts: dict[str, str]) -> bool:
    return not parts["servers"] and parts["scheme"].partition("+")[0].lower() in _OF_FILES
