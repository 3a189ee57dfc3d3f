"""The model that a server uses: a version, or the one with an alias, which is reloaded when the alias moves."""

import logging
import threading
from collections.abc import Callable

from gatehouse.server.inference import ServedModel

logger = logging.getLogger(__name__)


class Following:
    """The present model. A request reads `model` once, and so never mixes two versions.

    Args:
        model: The first model.
        newer: Gives the model that replaces the present one, or None if it is still right; None to follow nothing.
        seconds: Time between two checks.
    """

    def __init__(
        self,
        model: ServedModel,
        newer: Callable[[ServedModel], ServedModel | None] | None = None,
        seconds: float = 10.0,
    ) -> None:
        self.model = model
        self._newer, self._seconds = newer, seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="following", daemon=True)

    def start(self) -> None:
        """Check repeatedly, in a thread."""
        if self._newer is not None:
            self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()

    def look(self) -> None:
        """Load a newer model; if that fails, keep the present model."""
        try:
            loaded = self._newer(self.model) if self._newer else None
        except Exception:  # Whatever is wrong with the next model, the present one stays in use.
            logger.exception("%s:%s is served on", self.model.name, self.model.version)
            return
        if loaded is not None:
            self.model = loaded
            logger.info("%s:%s is %s", loaded.name, loaded.version, loaded.model)

    def _follow(self) -> None:
        while not self._ended.wait(self._seconds):
            self.look()
