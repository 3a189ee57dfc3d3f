"""A place outside the store that shows the store's content; if it does not answer, nothing is lost."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from gatehouse.errors import ErasedArtifactError, GatehouseError, MissingArtifactError
from gatehouse.runtime.redaction import holds_password, said
from gatehouse.store.run import Attempt
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.kfp_task import server_uri

logger = logging.getLogger(__name__)

LATER = "GATEHOUSE_SHOWN_LATER"
"""Set where one process shows the whole run when it has ended, so that no task waits for what it would import."""


@dataclass
class Showing:
    """An attempt to show something, and whether it failed."""

    failed: bool = False


@dataclass(frozen=True)
class Place:
    """A place that shows the store's content.

    Attributes:
        store: The store.
        uri: The address of the place.
        name: A name without secrets, under which the store records what the place shows.
    """

    store: ArtifactStore
    uri: str
    name: str

    def is_shown(self, what: str) -> bool:
        """Whether `what` is shown already. This needs one look-up in the store."""
        return self.store.objects.stat(self._marker(what)) is not None

    def mark_shown(self, what: str) -> None:
        """Record that `what` is shown. The URI is not stored, as it may contain a password."""
        self.store.record(self._marker(what), {"server": self.name})

    def _marker(self, what: str) -> str:
        return f"tracking/{self.name}/{what}.json"


def is_shown_later() -> bool:
    """Whether what this task did is shown when the run has ended, by another process."""
    return bool(os.environ.get(LATER))


@contextmanager
def warning_on_failure(
    store: ArtifactStore, label: str, title: str = "MLflow", noted: Callable[[], bool] = lambda: True
) -> Iterator[Showing]:
    """In this context an exception becomes a warning in the log and the run record, so that it never fails a run.

    It counts as failed, so that it is tried again, unless an artifact is gone, which no later attempt will find.

    Args:
        store: The artifact store with the run record.
        label: Name of the entry in the run record.
        title: Name of the place, for the message.
        noted: Whether the store holds that it is left to be shown; else no later run knows of it.
    """
    showing = Showing()
    try:
        yield showing
    except Exception as error:
        showing.failed = not isinstance(error, (MissingArtifactError, ErasedArtifactError))
        cause = said(error, holds_password(server_uri()))[:500]
        again = "the next run tries again" if noted() else "and no later run tries again, as no note of it was written"
        later = f", {again}" * showing.failed
        message = f"{title} could not be written{later}: {cause}"
        logger.warning(message)
        with suppress(GatehouseError, OSError):  # Such as of a full disk.
            Attempt(store, label).note("warned", message=message)
