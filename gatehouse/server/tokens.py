"""Tokens of callers and their scopes. A token is printed once, and stored as a hash.

A token has 256 random bits, so one round of SHA-256 is enough: nobody can try all of them. A slow hash, which passwords
need because people choose them, would slow down every request without benefit.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from gatehouse.errors import ConfigurationError
from gatehouse.store.records import author, read_records
from gatehouse.store.store import ArtifactStore

Scope = Literal["read", "run", "promote"]
SCOPES: tuple[Scope, ...] = ("read", "run", "promote")
"""Scopes: read; also submit runs and register candidates; also approve, promote and archive."""
LONGEST_DAYS = 366
_FOLDER = "server/tokens"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_SECRET = re.compile(r"gatehouse_(?P<id>[0-9a-f]{8})_[A-Za-z0-9_-]{43}")
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


class Token(BaseModel):
    """The stored data of a token: its id, with which the secret begins, its caller's name, and its hash.

    `until` is the time in UTC at which it expires; `by` created it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: str
    scopes: tuple[Scope, ...]
    sha256: str
    until: str
    by: str
    at: str
    revoked: bool = False

    def may(self, scope: Scope) -> bool:
        """Whether it has a scope."""
        return scope == "read" or scope in self.scopes

    def holds(self, now: datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return not self.revoked and now.strftime(_FORMAT) < self.until


def create_token(store: ArtifactStore, name: str, scopes: Iterable[Scope], days: int) -> str:
    """Create a token, and return it; it cannot be read again later.

    Raises ConfigurationError if name or days are not allowed.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"NAME: expected letters, digits and . _ @ - (at most 64), found {name!r}.")
    if not 1 <= days <= LONGEST_DAYS:
        raise ConfigurationError(f"--days: expected 1 to {LONGEST_DAYS}, found {days}.")
    while True:
        number = secrets.token_hex(4)
        secret = f"gatehouse_{number}_{secrets.token_urlsafe(32)}"
        until = (datetime.now(UTC) + timedelta(days=days)).strftime(_FORMAT)
        body: dict[str, Any] = {"id": number, "name": name, "scopes": sorted(set(scopes)), "sha256": _hash(secret)}
        if store.record(f"{_FOLDER}/{number}.json", body | {"until": until} | author()):
            return secret


def revoke_token(store: ArtifactStore, number: str) -> Token:
    """Revoke a token, for all servers of the store; a repeat changes nothing.

    Raises ConfigurationError if there is no such token.
    """
    tokens = tokens_of(store)
    if number not in tokens:
        raise ConfigurationError(f"ID: expected one of {', '.join(tokens) or '(no tokens)'}, found {number!r}.")
    store.record(f"{_FOLDER}/{number}.revoked.json", author())
    return tokens[number]


def tokens_of(store: ArtifactStore) -> dict[str, Token]:
    """Every token of a store, by id."""
    records = read_records(store.objects, store.objects.list(_FOLDER))
    return {
        body["id"]: Token.model_validate(body | {"revoked": key.replace(".json", ".revoked.json") in records})
        for key, body in records.items()
        if not key.endswith(".revoked.json")
    }


def token_given(tokens: Mapping[str, Token], secret: str, now: datetime) -> Token | None:
    """The caller's token, or None if it is unknown, revoked or expired. Hashes are compared in constant time."""
    form = _SECRET.fullmatch(secret)
    token = tokens.get(form["id"]) if form else None
    same = hmac.compare_digest(token.sha256 if token else "0" * 64, _hash(secret))
    return token if token and same and token.holds(now) else None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
