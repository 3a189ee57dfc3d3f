"""Who may call what: a token of the right scope, not too often, and a record of every call that changes something."""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

from gatehouse.components.artifacts.records import author
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import GatehouseError
from gatehouse.server.known import LastKnown
from gatehouse.server.problems import ProblemError, logger, too_often
from gatehouse.server.rate import Rate
from gatehouse.server.tokens import Scope, Token, token_given, tokens_of

AUDIT = "server/audit"
_bearer = HTTPBearer(auto_error=False, description="A token of `gatehouse serve token create`.")


class Access:
    """The tokens of a store, as a server knows them."""

    def __init__(self, store: ArtifactStore, rate: Rate) -> None:
        self._store, self._rate = store, rate
        self.tokens = LastKnown(lambda _: tokens_of(store))

    def admit(self, request: Request, secret: str, scope: Scope) -> Token:
        """The token that a caller shows.

        Raises:
            ProblemError: 401 without one that holds, 429 where it calls too often, 403 where it lacks the scope.
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
        """Record a call that changes something, and see that its token may.

        Raises:
            ProblemError: 403 where the token lacks the scope.
        """
        if scope != "read":
            self._audit(request, token, scope)
        if not token.may(scope):
            raise ProblemError(403, f"Expected a token with the scope {scope}, found {', '.join(token.scopes)}.")

    def known(self, secret: str) -> Token | None:
        """The token that a text is, or None where it is none that holds."""
        return token_given(self.tokens.get("").value, secret, datetime.now(UTC)) if secret else None

    def _audit(self, request: Request, token: Token, scope: Scope) -> None:
        """Record a call before anything is changed, also one that is not allowed: no change is without its record."""
        body = {"token": token.id, "method": request.method, "path": request.url.path, "allowed": token.may(scope)}
        moment = datetime.now(UTC)
        key = f"{AUDIT}/{moment:%Y-%m-%d}/{moment:%H%M%S.%f}-{secrets.token_hex(4)}.json"
        self._store.record(key, body | author(token.name))
        request.state.audited = (*_audited(request), key)

    async def tell_outcome(self, request: Request, status: int) -> None:
        """Record beside each record of a call what was answered; the call is over, whatever becomes of this."""
        for key in _audited(request):
            try:
                await run_in_threadpool(
                    self._store.record, f"{key.removesuffix('.json')}.outcome.json", {"status": status}
                )
            except GatehouseError as error:
                logger.warning("the outcome %d of the call %s is not on record: %s", status, key, error)


def _audited(request: Request) -> tuple[str, ...]:
    """The keys of the records of a call: one for each scope that it was asked for."""
    found: tuple[str, ...] = getattr(request.state, "audited", ())
    return found


def caller(scope: Scope) -> Callable[..., Token]:
    """What admits the callers of a route of the API: the header `Authorization: Bearer`, and never a cookie."""

    def admitted(
        request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None
    ) -> Token:
        access: Access = request.app.state.access
        return access.admit(request, given.credentials if given else "", scope)

    return admitted


Reader = Annotated[Token, Depends(caller("read"))]
Runner = Annotated[Token, Depends(caller("run"))]
Promoter = Annotated[Token, Depends(caller("promote"))]
