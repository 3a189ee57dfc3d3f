"""The scope of a driver, here or elsewhere: a stage, whose calls it runs one after another."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class Closable(Protocol):
    """A driver."""

    def answers(self, lines: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number and the answer of every call, as they come."""

    def close(self) -> None:
        """End it."""


class Scope:
    """The driver of a stage, and its name once it is known."""

    name = ""
    driver: Closable | None = None


SCOPE: ContextVar[Scope | None] = ContextVar("gatehouse_driver", default=None)


@contextmanager
def driving() -> Iterator[None]:
    """In this context, which is that of a stage, one driver runs all calls; it ends with the context."""
    if SCOPE.get() is not None:
        yield
        return
    scope = Scope()
    token = SCOPE.set(scope)
    try:
        yield
    finally:
        SCOPE.reset(token)
        if scope.driver is not None:
            scope.driver.close()
