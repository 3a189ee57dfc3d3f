"""What all routes of one server share: its store, its project, and the versions that it resolved last."""

from typing import TypeVar

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.registry.ledger import model_names
from gatehouse.errors import GatehouseError
from gatehouse.project import Project
from gatehouse.server import registry
from gatehouse.server.known import LastKnown
from gatehouse.server.registry import Resolved

T = TypeVar("T")


class Server:
    """One server of one store."""

    def __init__(self, store: ArtifactStore, project: Project | None) -> None:
        self.store, self.project = store, project
        self._versions = LastKnown(lambda text: registry.resolve(store, text))

    def resolved(self, text: str) -> Resolved:
        """The version that a text names; while the store does not answer, the one that it named last, with its age."""
        known = self._versions.get(text)
        return known.value.model_copy(update={"age_seconds": round(known.age, 3)})

    def changed(self, result: T) -> T:
        """Pass on what a change gave, and read versions again: who changed something sees it in the next answer."""
        self._versions.forget()
        return result

    def warm(self) -> None:
        """Resolve every alias once, so that a new server can answer for them should the store go away."""
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
