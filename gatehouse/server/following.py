"""The model that a server answers with: a version, or what an alias names, loaded again when the alias moves."""

import logging
import threading
from collections.abc import Callable

from gatehouse.server.inference import ServedModel

logger = logging.getLogger(__name__)


class Following:
    """What is served now. Who answers a request takes `model` once, and so never mixes two versions.

    Args:
        model: What is served at first.
        newer: Gives what is to be served in place of a model, or None while it still is the one; None to follow
            nothing.
        seconds: Between two looks.
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
        """Look again and again, in a thread."""
        if self._newer is not None:
            self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()

    def look(self) -> None:
        """Serve what is newer; where that cannot be told or loaded, go on with the present model."""
        try:
            loaded = self._newer(self.model) if self._newer else None
        except Exception:  # Whatever is wrong with the next model, the present one answers.
            logger.exception("%s:%s is served on", self.model.name, self.model.version)
            return
        if loaded is not None:
            self.model = loaded
            logger.info("%s:%s is %s", loaded.name, loaded.version, loaded.model)

    def _follow(self) -> None:
        while not self._ended.wait(self._seconds):
            self.look()
