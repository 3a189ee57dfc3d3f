"""The rollout pipeline: one look at a canary's live outcomes, and the next step, as often as a schedule says."""

from typing import Any

from kfp import dsl

from gatehouse.components import roll_out
from gatehouse.pipelines.settings import Settings
from gatehouse.project.project import Project
from gatehouse.store.parameters import parameter_of


def rollout(project: Project, settings: Settings) -> Any:
    """Build the rollout pipeline of `project`."""
    file = project.file

    @dsl.pipeline(name=f"{project.name}-rollout", description=f"Bring a canary of {file.model} to champion, or back.")
    def pipeline(
        store: str = project.store,
        outcomes: str = "",
        label: str = "label",
        label_time: str = "",
        positive: str = "",
    ) -> None:
        """Compare canary and champion on live outcomes, and take one step.

        Args:
            store: Address of the artifact store.
            outcomes: A file with outcomes as the tasks see it, or the reference of a table; needed beside a canary.
            label: Column of labels in the outcomes.
            label_time: Column that says when an outcome became known; empty if nobody says.
            positive: The positive one of two labels with names.
        """
        read = {"outcomes": outcomes, "label": label, "label_time": label_time, "positive": positive}
        with settings.applied(store):
            roll_out(store=store, model_name=file.model, policy=parameter_of(project.policy), **read)

    return pipeline
