"""A place outside of the store that shows what the store holds, and that may be away without anything being lost."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from gatehouse.components.artifacts.redaction import redacted
from gatehouse.components.artifacts.run import Attempt
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import GatehouseError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Where what the store holds is shown.

    Attributes:
        store: The store.
        uri: The address of the place.
        name: A name of it that is no secret; what it shows is remembered in the store under it.
    """

    store: ArtifactStore
    uri: str
    name: str

    def is_shown(self, what: str) -> bool:
        """Whether `what` is shown already. This costs one look-up in the store."""
        return self.store.objects.stat(self._marker(what)) is not None

    def mark_shown(self, what: str) -> None:
        """Remember that `what` is shown. The URI is not kept, as it may hold a password."""
        self.store.record(self._marker(what), {"server": self.name})

    def _marker(self, what: str) -> str:
        return f"tracking/{self.name}/{what}.json"


@contextmanager
def warning_on_failure(store: ArtifactStore, label: str, title: str = "MLflow") -> Iterator[None]:
    """In this context an exception becomes a warning in the log and in the run record: showing never fails a run.

    Args:
        store: Holds the run record.
        label: What was done, as the run record names it.
        title: What could not be written.
    """
    try:
        yield
    except Exception as error:
        cause = " ".join(redacted(str(error)).split())[:500]
        message = f"{title} could not be written, the next run tries again: {type(error).__name__}: {cause}"
        logger.warning(message)
        with suppress(GatehouseError):
            Attempt(store, label).note("warned", message=message)
