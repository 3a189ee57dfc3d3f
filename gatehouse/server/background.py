"""A server's own work: it submits the runs that events ordered when they are due, and sends what changes led to."""

import logging
import threading
from pathlib import Path

from gatehouse.api import events
from gatehouse.operations.announcing import announce_ledger
from gatehouse.operations.outbox import Outbox
from gatehouse.project.project import Project
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

_PAUSE, _PAUSE_AFTER_FAILURE = 5.0, 60.0
"""Seconds between two looks at the orders."""


class Background:
    """A thread that works for one project, until it is closed."""

    def __init__(self, store: ArtifactStore, project: Project, profile: Path | None) -> None:
        self._store, self._project, self._profile = store, project, profile
        self._woken, self._changed, self._closed = threading.Event(), True, False
        self._thread = threading.Thread(target=self._work, name="background", daemon=True)

    def start(self) -> None:
        """Begin to work, with what an earlier server left."""
        self._thread.start()

    def tell(self) -> None:
        """Send what the ledger has by now."""
        self._changed = True
        self._woken.set()

    def close(self) -> None:
        """End; what is being submitted or sent is finished first, or by another server."""
        self._closed = True
        self._woken.set()

    def _work(self) -> None:
        days: tuple[int, ...] = ()
        while not self._closed:
            well = True
            try:
                well = events.submit_due(self._store, self._project, self._profile, *days)
                days = (1,) if well else ()
                if self._changed:
                    self._changed = False
                    self._send()
            except Exception:
                well = False
                logger.exception("The background work failed, and is tried again.")
            self._woken.wait(_PAUSE if well else _PAUSE_AFTER_FAILURE)
            self._woken.clear()

    def _send(self) -> None:
        file = self._project.file
        outbox = Outbox(self._store, self._project.name, file.events, file.alerts, file.alert_form)
        if outbox.destinations:
            announce_ledger(self._store, self._project.name, file.model, outbox.days)
            outbox.send()
