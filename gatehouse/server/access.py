"""Access control: tokens with scopes, a rate limit, and a record of every call that changes something.

A token is printed once, and stored as a hash. It has 256 random bits, so one round of SHA-256 is enough: nobody can try
all of them. A slow hash, which passwords need because people choose them, would slow down every request.
"""

import hashlib
import hmac
import math
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.operations.notice import signature
from gatehouse.runtime.variables import TRIGGERS_SECRET
from gatehouse.server.cache import ReadCache
from gatehouse.server.problems import ProblemError, logger
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
    sha256: str = Field(repr=False)
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


AUDIT = "server/audit"
AUDIENCE = "gatehouse"
"""The audience for which a pod's token has to be: one for another service is not taken."""
WEBHOOK = Token(id="webhook", name="webhook", scopes=("run",), sha256="", until="", by="", at="")
"""Who sends events with a signature in place of a token."""
_OLDEST_SIGNATURE = 300
_JWT = re.compile(r"eyJ[\w-]{8,4000}\.[\w-]{8,4000}\.[\w-]{8,4000}")
_bearer = HTTPBearer(auto_error=False, description="A token of `gatehouse serve token create`.")


class Rate:
    """A token bucket for each caller: at most `burst` calls at once, and `per_second` over time, by each server."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._clock = per_second, burst, clock
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def wait(self, caller: str) -> float:
        """Count a call. Returns 0 if it is allowed, else the number of seconds to wait."""
        with self._lock:
            now = self._clock()
            left, at = self._left.get(caller, (float(self._burst), now))
            left = min(self._burst, left + (now - at) * self._per_second)
            self._left[caller] = (left - 1 if left >= 1 else left, now)
            return 0.0 if left >= 1 else (1 - left) / self._per_second


class ServiceAccounts:
    """Callers in a cluster, by the tokens of their pods for the audience `gatehouse`, which Kubernetes reviews.

    A review holds for at most a minute. Anybody can make up tokens, so new ones are limited. `scopes` are by
    `NAMESPACE:NAME`; `review` sends a TokenReview and gives the answer, or raises ClusterError.
    """

    def __init__(self, scopes: Mapping[str, tuple[Scope, ...]], review: Callable[[Any], dict[str, Any]]) -> None:
        self._scopes, self._review, self._rate = scopes, review, Rate(10, 50)
        self._reviewed = lru_cache(1000)(self._account)

    def token_of(self, secret: str) -> Token | None:
        """The token of a service account that has scopes, or None."""
        account = self._reviewed(secret, time.monotonic() // 60) if _JWT.fullmatch(secret) else ""
        scopes = self._scopes.get(account.removeprefix("system:serviceaccount:"), ())
        number = _hash(account)[:8]
        return Token(id=number, name=account, scopes=scopes, sha256="", until="", by="", at="") if scopes else None

    def _account(self, secret: str, _minute: float) -> str:
        if wait := math.ceil(self._rate.wait("")):
            message = f"Too many new tokens of Kubernetes: try again in {wait} s."
            raise ProblemError(429, message, {"Retry-After": str(wait)})
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
        status = self._review(body | {"spec": {"token": secret, "audiences": [AUDIENCE]}}).get("status", {})
        valid = status.get("authenticated") and AUDIENCE in status.get("audiences", ())
        return str(status.get("user", {}).get("username", "")) if valid else ""


class Access:
    """The server's view of the store's tokens, and of those of service accounts."""

    def __init__(self, store: ArtifactStore, rate: Rate, accounts: ServiceAccounts | None = None) -> None:
        self._store, self._rate, self._accounts = store, rate, accounts
        self.tokens = ReadCache(lambda _: tokens_of(store))

    def admit(self, request: Request, secret: str, scope: Scope) -> Token:
        """The caller's token.

        Raises ProblemError: 401 without a valid token, 429 for too many calls, 403 without the scope.
        """
        token = self.token_of(secret)
        if token is None:
            presented = "one that is unknown, revoked or expired" if secret else "none"
            raise ProblemError(401, f"Expected a token, found {presented}.", {"WWW-Authenticate": "Bearer"})
        return self._admit(request, token, scope)

    def admit_signed(self, request: Request, body: bytes) -> Token:
        """The sender of a body that is signed with `GATEHOUSE_TRIGGERS_SECRET`, by Standard Webhooks; it may run.

        Raises ProblemError: 401 for another signature, or one that is older than five minutes; 429 as `admit`.
        """
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        key, moment, signatures = (request.headers.get(name, "") for name in names)
        secret = os.environ.get(TRIGGERS_SECRET, "")
        known = secret and re.fullmatch(r"[0-9]{1,12}", moment)
        fresh = known and abs(time.time() - int(moment)) <= _OLDEST_SIGNATURE
        expected = signature(secret, key, body, float(moment))[names[2]].encode() if fresh else b""
        if not fresh or not any(hmac.compare_digest(expected, text.encode()) for text in signatures.split()):
            raise ProblemError(401, "Expected a token, or a signature of the last five minutes, found another.")
        return self._admit(request, WEBHOOK, "run")

    def _admit(self, request: Request, token: Token, scope: Scope) -> Token:
        if wait := math.ceil(self._rate.wait(token.id)):
            message = f"Too many calls with this token: try again in {wait} s."
            raise ProblemError(429, message, {"Retry-After": str(wait)})
        self.require(request, token, scope)
        return token

    def require(self, request: Request, token: Token, scope: Scope) -> None:
        """Record a call that changes something, before it does, and check that its token may make it.

        Raises ProblemError: 403 if the token lacks the scope.
        """
        if scope != "read":
            moment, allowed = datetime.now(UTC), token.may(scope)
            body = {"token": token.id, "method": request.method, "path": request.url.path, "allowed": allowed}
            key = f"{AUDIT}/{moment:%Y-%m-%d}/{moment:%H%M%S.%f}-{secrets.token_hex(4)}.json"
            self._store.record(key, body | author(token.name))
            request.state.audited = (*getattr(request.state, "audited", ()), key)
        if not token.may(scope):
            raise ProblemError(403, f"Expected a token with the scope {scope}, found {', '.join(token.scopes)}.")

    def token_of(self, secret: str) -> Token | None:
        """The token of a secret, or None if it is not valid."""
        token = token_given(self.tokens.get("").value, secret, datetime.now(UTC)) if secret else None
        return token or (self._accounts.token_of(secret) if self._accounts else None)

    async def tell_outcome(self, request: Request, status: int) -> None:
        """Record the answer beside each record of a call; the call has ended, so an error here does not affect it."""
        for key in getattr(request.state, "audited", ()):
            outcome = f"{key.removesuffix('.json')}.outcome.json"
            try:
                await run_in_threadpool(self._store.record, outcome, {"status": status})
            except GatehouseError as error:
                logger.warning("the outcome %d of the call %s is not on record: %s", status, key, error)


def caller(scope: Scope) -> Callable[..., Token]:
    """A dependency that checks the callers of an API route: only the header `Authorization: Bearer`, never a cookie."""

    def admitted(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None
    ) -> Token:
        access: Access = request.app.state.access
        return access.admit(request, credentials.credentials if credentials else "", scope)

    return admitted


async def _read_body(request: Request) -> bytes:
    return await request.body()


Body = Annotated[bytes, Depends(_read_body)]


def _sender(
    request: Request, body: Body, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None
) -> Token:
    access: Access = request.app.state.access
    if not credentials and "webhook-signature" in request.headers:
        return access.admit_signed(request, body)
    return access.admit(request, credentials.credentials if credentials else "", "run")


Sender = Annotated[Token, Depends(_sender)]
"""The caller of a route for events: with a token that may run, or with a signature."""
Reader = Annotated[Token, Depends(caller("read"))]
Runner = Annotated[Token, Depends(caller("run"))]
Promoter = Annotated[Token, Depends(caller("promote"))]
