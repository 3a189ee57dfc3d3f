"""A process that is killed at a change of its store, as SIGKILL does it: nothing behind that change happens."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from gatehouse.store.store import ArtifactStore


class KilledError(BaseException):
    """The process ends here; nothing catches it."""


@contextmanager
def killed_at(
    store: ArtifactStore, at: int, written: bool = False, prefix: str = "", changes: Sequence[str] = ("put_bytes",)
) -> Iterator[None]:
    """Let the change number `at`, of keys with the prefix, kill the process, before or after it; 0 for none."""
    objects, count = store.objects, [0]

    def killing(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(key: str, *arguments: Any) -> Any:
            count[0] += key.startswith(prefix)
            if at and (count[0] > at or (count[0] == at and key.startswith(prefix) and not written)):
                raise KilledError
            result = change(key, *arguments)
            if count[0] == at and key.startswith(prefix):
                raise KilledError
            return result

        return changed

    for name in changes:
        setattr(objects, name, killing(getattr(objects, name)))
    try:
        yield
    finally:
        for name in changes:
            delattr(objects, name)


def was_killed(work: Callable[[], object]) -> bool:
    """Whether work was killed."""
    with suppress(KilledError):
        work()
        return False
    return True
