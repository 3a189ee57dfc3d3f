"""The materialization pipeline: the newest features into the online store, read back and compared."""

from typing import Any

from kfp import dsl

from gatehouse.online.stage import materialize
from gatehouse.operations.preparing_stage import require
from gatehouse.pipelines.data import add_data_tasks
from gatehouse.pipelines.tasks import Tasks
from gatehouse.project.project import Project
from gatehouse.runtime.variables import ONLINE_STORE
from gatehouse.store.parameters import BACKFILL, RERUN, SOURCE, WINDOW


def materialization(project: Project, tasks: Tasks) -> Any:
    """Build the materialization pipeline of `project`; its tasks are collected in `tasks`."""
    file = project.file

    @dsl.pipeline(name=f"{project.name}-materialization", description=f"Serve the features of {file.model} online.")
    def pipeline(
        store: str = project.store,
        source: str = SOURCE,
        window: str = WINDOW,
        rerun: str = RERUN,
        backfill: str = BACKFILL,
        rewrite: bool = False,
    ) -> None:
        """Bring the online store up to the newest known features.

        Args:
            store: Address of the artifact store.
            source: Read the raw tables here instead of the project's source; empty for the project's.
            window: Only events of START/END (end exclusive); empty for all.
            backfill: Why rows of the earlier snapshot may change, where they do; empty where they may not.
            rerun: Stages to run whatever the memo holds; empty for none.
            rewrite: Write the online store from the beginning, also where it was brought to a later time before.
        """
        with tasks.begin(store, rerun):
            data = add_data_tasks(tasks, source, window, backfill)
            written = tasks.add(
                materialize,
                snapshot=data.snapshot,
                feature_tables=data.feature_tables,
                definitions=str(project.definitions.reference),
                project=project.name,
                service=file.features.service,
                as_of=data.as_of,
                max_skew=file.features.max_skew,
                rewrite=rewrite,
            )
            tasks.entrust(written, "online-store", ONLINE_STORE)
            verdict, reasons, report = (written.outputs[name] for name in ("verdict", "reasons", "report"))
            subject = "The online store"
            tasks.add(
                require, title="Require no skew", verdict=verdict, reasons=reasons, report=report, subject=subject
            )

    return pipeline
