"""The shared state of a server's routes: its store, its project, and recently resolved versions."""

from typing import TypeVar

from gatehouse.errors import GatehouseError
from gatehouse.project.project import Project
from gatehouse.registry.ledger import model_names
from gatehouse.server import registry
from gatehouse.server.known import LastKnown
from gatehouse.server.registry import Resolved
from gatehouse.store.store import ArtifactStore

T = TypeVar("T")


class Server:
    """One server of one store."""

    def __init__(self, store: ArtifactStore, project: Project | None) -> None:
        self.store, self.project = store, project
        self._versions = LastKnown(lambda text: registry.resolve(store, text))

    def resolved(self, text: str) -> Resolved:
        """The version that a text names; while the store does not answer, the last known one, with its age."""
        known = self._versions.get(text)
        return known.value.model_copy(update={"age_seconds": round(known.age, 3)})

    def changed(self, result: T) -> T:
        """Return the result of a change, and read versions again, so that the caller sees the change at once."""
        self._versions.forget()
        return result

    def warm(self) -> None:
        """Resolve every alias once, so that a new server can answer even if the store stops answering."""
        for model in registry.models(self.store):
            for alias in model.aliases:
                self.resolved(f"{model.name}@{alias}")

    def answers(self) -> bool:
        """Whether the store answers."""
        try:
            model_names(self.store)
        except GatehouseError:
            return False
        return True

    def close(self) -> None:
        """End its threads."""
        self._versions.close()
