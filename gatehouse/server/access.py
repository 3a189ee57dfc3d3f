"""Access control: a token with the right scope, a rate limit, and a record of every call that changes something."""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

from gatehouse.errors import GatehouseError
from gatehouse.server.known import LastKnown
from gatehouse.server.problems import ProblemError, logger, too_often
from gatehouse.server.rate import Rate
from gatehouse.server.tokens import Scope, Token, token_given, tokens_of
from gatehouse.store.records import author
from gatehouse.store.store import ArtifactStore

AUDIT = "server/audit"
_bearer = HTTPBearer(auto_error=False, description="A token of `gatehouse serve token create`.")


class Access:
    """The server's view of the store's tokens."""

    def __init__(self, store: ArtifactStore, rate: Rate) -> None:
        self._store, self._rate = store, rate
        self.tokens = LastKnown(lambda _: tokens_of(store))

    def admit(self, request: Request, secret: str, scope: Scope) -> Token:
        """The caller's token.

        Raises:
            ProblemError: 401 without a valid token, 429 for too many calls, 403 without the scope.
        """
        token = self.known(secret)
        if token is None:
            found = "one that is unknown, revoked or expired" if secret else "none"
            raise ProblemError(401, f"Expected a token, found {found}.", {"WWW-Authenticate": "Bearer"})
        if wait := self._rate.wait(token.id):
            raise too_often(wait)
        self.require(request, token, scope)
        return token

    def require(self, request: Request, token: Token, scope: Scope) -> None:
        """Record a call that changes something, and check that its token may make it.

        Raises:
            ProblemError: 403 if the token lacks the scope.
        """
        if scope != "read":
            self._audit(request, token, scope)
        if not token.may(scope):
            raise ProblemError(403, f"Expected a token with the scope {scope}, found {', '.join(token.scopes)}.")

    def known(self, secret: str) -> Token | None:
        """The token of a secret, or None if it is not valid."""
        return token_given(self.tokens.get("").value, secret, datetime.now(UTC)) if secret else None

    def _audit(self, request: Request, token: Token, scope: Scope) -> None:
        """Record a call before anything is changed, even if it is not allowed, so that every change has a record."""
        body = {"token": token.id, "method": request.method, "path": request.url.path, "allowed": token.may(scope)}
        moment = datetime.now(UTC)
        key = f"{AUDIT}/{moment:%Y-%m-%d}/{moment:%H%M%S.%f}-{secrets.token_hex(4)}.json"
        self._store.record(key, body | author(token.name))
        request.state.audited = (*_audited(request), key)

    async def tell_outcome(self, request: Request, status: int) -> None:
        """Record the answer beside each record of a call; the call has ended, so an error here does not affect it."""
        for key in _audited(request):
            try:
                await run_in_threadpool(
                    self._store.record, f"{key.removesuffix('.json')}.outcome.json", {"status": status}
                )
            except GatehouseError as error:
                logger.warning("the outcome %d of the call %s is not on record: %s", status, key, error)


def _audited(request: Request) -> tuple[str, ...]:
    """The keys of the records of a call: one per scope that was checked."""
    found: tuple[str, ...] = getattr(request.state, "audited", ())
    return found


def caller(scope: Scope) -> Callable[..., Token]:
    """A dependency that checks the callers of an API route: only the header `Authorization: Bearer`, never a cookie."""

    def admitted(
        request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None
    ) -> Token:
        access: Access = request.app.state.access
        return access.admit(request, given.credentials if given else "", scope)

    return admitted


Reader = Annotated[Token, Depends(caller("read"))]
Runner = Annotated[Token, Depends(caller("run"))]
Promoter = Annotated[Token, Depends(caller("promote"))]
