"""A server's own work: it submits the runs that events ordered when they are due, and sends what changes led to."""

import logging
import threading
import time
from pathlib import Path

from gatehouse.api import events
from gatehouse.operations.announcing import announce_ledger
from gatehouse.operations.outbox import Outbox
from gatehouse.project.project import Project
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

_PAUSE, _PAUSE_AFTER_FAILURE = 5.0, 60.0
"""Seconds between two looks at the orders."""
_LOST = 3600.0
"""Seconds between two looks for runs of orders that were killed."""


class Background(threading.Thread):
    """Works for one project until `closed`, beginning with what an earlier server left; `changed` sends at once."""

    def __init__(self, store: ArtifactStore, project: Project, profile: Path | None) -> None:
        super().__init__(name="background", daemon=True)
        self._store, self._project, self._profile = store, project, profile
        self.changed, self.closed = threading.Event(), threading.Event()

    def run(self) -> None:
        """Look at the orders, and send what was announced, until a server closes."""
        days, well, looked = events.OLDEST_DAYS, True, -_LOST
        while not self.closed.is_set():
            try:
                if self._profile is None and time.monotonic() - looked > _LOST:
                    looked = time.monotonic()
                    events.restart_lost(self._store, self._project)
                well = events.submit_due(self._store, self._project, self._profile, days)
                days = 1 if well else events.OLDEST_DAYS
                if self.changed.is_set():
                    self.changed.clear()
                    self._send()
            except Exception:  # A thread that ended would leave orders and notices behind, in silence.
                well = False
                logger.exception("The background work failed, and is tried again.")
            self.changed.wait(_PAUSE if well else _PAUSE_AFTER_FAILURE)

    def _send(self) -> None:
        file = self._project.file
        outbox = Outbox(self._store, self._project.name, file.events, file.alerts, file.alert_form)
        if outbox.destinations:
            announce_ledger(self._store, self._project.name, file.model, outbox.days)
            outbox.send()

    def close(self) -> None:
        """End; what is being submitted or sent is finished first, or by another server."""
        self.closed.set()
        self.changed.set()
