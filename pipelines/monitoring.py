"""The monitoring pipeline: the newest data against what the champion was trained on."""

from typing import Any

from kfp import dsl

from gatehouse.monitoring.retraining_stage import retrain
from gatehouse.monitoring.stage import monitor
from gatehouse.pipelines.catalog import names
from gatehouse.pipelines.data import add_data_tasks, add_unlabelled_rows
from gatehouse.pipelines.tasks import Tasks
from gatehouse.project.project import Project
from gatehouse.registry.stage import resolve
from gatehouse.store.parameters import BACKFILL, PREDICTIONS, RERUN, SINCE, SOURCE, UNTIL, WINDOW, parameter_of


def monitoring(project: Project, tasks: Tasks) -> Any:
    """Build the monitoring pipeline of `project`; its tasks are collected in `tasks`."""
    file = project.file

    @dsl.pipeline(name=f"{project.name}-monitoring", description=f"Watch the data of {file.model} for drift.")
    def pipeline(
        store: str = project.store,
        source: str = SOURCE,
        window: str = WINDOW,
        since: str = SINCE,
        until: str = UNTIL,
        predictions: str = PREDICTIONS,
        rerun: str = RERUN,
        backfill: str = BACKFILL,
    ) -> None:
        """Decide whether to retrain, and order the training where one is due.

        Args:
            store: Address of the artifact store.
            source: Read the raw tables here instead of the project's source; empty for the project's.
            window: Only events of START/END (end exclusive); empty for all.
            backfill: Why rows of the earlier snapshot may change, where they do; empty where they may not.
            since: Judge rows decided from this time on (ISO 8601 with zone); empty for all after the last train row.
            until: Judge rows decided before this time; then no training is ordered; empty for all.
            predictions: A log of predictions: a reference, `latest` for the newest of batch scoring, or Parquet files;
                empty to let the champion score the newest rows.
            rerun: Stages to run whatever the memo holds; empty for none.
        """
        with tasks.begin(store, rerun):
            tasks.add_reconciliation(names())
            present = tasks.add(resolve, model_name=file.model, required=True, files=False)
            model = present.outputs["champion"]
            data = add_data_tasks(tasks, source, window, backfill, since=since, until=until)
            watched = tasks.add(
                monitor,
                current=data.training_set,
                since=since,
                until=until,
                spec=parameter_of(file.monitoring),
                stale=data.stale,
                model=model,
                evaluation=present.outputs["evaluation"],
                predictions=predictions,
                unlabelled=add_unlabelled_rows(tasks, data),
            )
            tasks.add(
                retrain,
                **dict[str, Any](project=project.name, model_name=file.model, source=source, window=window),
                drift=watched.outputs["drift"],
                registered=present.outputs["registered"],
                until=until,
                spec=parameter_of(file.monitoring.retrain),
            )

    return pipeline
