"""The scoring pipeline: the champion scores decisions with what was known at each of them."""

from typing import Any

from kfp import dsl

from gatehouse.features.decisions_stage import retrieve_decisions
from gatehouse.features.keys_stage import take_keys
from gatehouse.monitoring.scoring_stage import score
from gatehouse.pipelines.data import add_data_tasks
from gatehouse.pipelines.tasks import Tasks
from gatehouse.project.project import Project
from gatehouse.registry.stage import resolve
from gatehouse.store.parameters import BACKFILL, KEYS, RERUN, SINCE, SOURCE, UNTIL, WINDOW


def scoring(project: Project, tasks: Tasks) -> Any:
    """Build the scoring pipeline of `project`; its tasks are collected in `tasks`."""
    file = project.file

    @dsl.pipeline(name=f"{project.name}-scoring", description=f"Score decisions with the champion of {file.model}.")
    def pipeline(
        store: str = project.store,
        source: str = SOURCE,
        window: str = WINDOW,
        since: str = SINCE,
        until: str = UNTIL,
        keys: str = KEYS,
        rerun: str = RERUN,
        backfill: str = BACKFILL,
    ) -> None:
        """Score decisions with the champion.

        Args:
            store: Address of the artifact store.
            source: Read the raw tables here instead of the project's source; empty for the project's.
            window: Only events of START/END (end exclusive); empty for all.
            since: Score decisions from this time on (ISO 8601 with zone); empty for all.
            until: Score decisions before this time; empty for all that the snapshot covers.
            keys: Score these keys and times instead, a CSV or Parquet file as the tasks see it; empty for decisions.
            rerun: Stages to run whatever the memo holds; empty for none.
            backfill: Why rows of the earlier snapshot may change, where they do; empty where they may not.
        """
        with tasks.begin(store, rerun):
            present = tasks.add(resolve, model_name=file.model, required=True, files=False)
            taken = tasks.add(take_keys, keys=keys, name=project.name)
            data = add_data_tasks(tasks, source, window, backfill, labelled=False, since=since, until=until)
            retrieved = tasks.add(
                retrieve_decisions,
                snapshot=data.snapshot,
                feature_tables=data.feature_tables,
                definitions=str(project.definitions.reference),
                service=file.features.service,
                as_of=data.as_of,
                since=since,
                until=until,
                keys=taken.outputs["taken"],
            )
            rows = retrieved.outputs["decisions"]
            tasks.add(score, model=present.outputs["champion"], rows=rows, version=present.outputs["version"])

    return pipeline
