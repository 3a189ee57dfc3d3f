"""Access control: a token with the right scope, a rate limit, and a record of every call that changes something."""

import math
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

from gatehouse.errors import GatehouseError
from gatehouse.server.cache import ReadCache
from gatehouse.server.problems import ProblemError, logger
from gatehouse.server.tokens import Scope, Token, token_given, tokens_of
from gatehouse.store.records import author
from gatehouse.store.store import ArtifactStore

AUDIT = "server/audit"
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


class Access:
    """The server's view of the store's tokens."""

    def __init__(self, store: ArtifactStore, rate: Rate) -> None:
        self._store, self._rate = store, rate
        self.tokens = ReadCache(lambda _: tokens_of(store))

    def admit(self, request: Request, secret: str, scope: Scope) -> Token:
        """The caller's token.

        Raises ProblemError: 401 without a valid token, 429 for too many calls, 403 without the scope.
        """
        token = self.token_of(secret)
        if token is None:
            presented = "one that is unknown, revoked or expired" if secret else "none"
            raise ProblemError(401, f"Expected a token, found {presented}.", {"WWW-Authenticate": "Bearer"})
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
        return token_given(self.tokens.get("").value, secret, datetime.now(UTC)) if secret else None

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


Reader = Annotated[Token, Depends(caller("read"))]
Runner = Annotated[Token, Depends(caller("run"))]
Promoter = Annotated[Token, Depends(caller("promote"))]
