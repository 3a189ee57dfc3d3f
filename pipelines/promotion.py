"""The promotion pipeline: a person moves the champion alias, and the ledger says why."""

from typing import Any

from kfp import dsl

from gatehouse.components import promote
from gatehouse.pipelines.choices import close
from gatehouse.pipelines.settings import Settings
from gatehouse.project.project import Project
from gatehouse.registry.ledger import CANARY, CHAMPION, SHADOW, STAGING


def promotion(project: Project, settings: Settings) -> Any:
    """Build the promotion pipeline of `project`."""
    file = project.file

    @dsl.pipeline(name=f"{project.name}-promotion", description=f"Promote or roll back {file.model}.")
    def pipeline(
        store: str = project.store, action: str = "promote", version: int = 0, reason: str = "", to: str = "champion"
    ) -> None:
        """Promote, roll back or archive a version.

        Args:
            store: Address of the artifact store.
            action: promote, rollback or archive.
            version: The version to promote (0 for the one in staging), to withdraw by rollback, or to archive.
            reason: Why; kept in the ledger. To promote what was rolled back takes its number and a reason.
            to: The alias that a promoted version gets: staging, shadow, canary or champion.
        """
        with settings.applied(store):
            promote(store=store, model_name=file.model, action=action, version=version, reason=reason, to=to)

    return close(pipeline, action=("promote", "rollback", "archive"), to=(STAGING, SHADOW, CANARY, CHAMPION))
