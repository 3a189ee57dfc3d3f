"""The monitoring pipeline: the newest data against what the champion was trained on."""

from typing import Any

from kfp import dsl

from gatehouse.components import compute_features, monitor, reconcile, resolve, retrain, retrieve_features, snapshot
from gatehouse.pipelines.settings import Settings
from gatehouse.project.project import Project
from gatehouse.project.signatures import NAMES
from gatehouse.store.parameters import parameter_of


def monitoring(project: Project, settings: Settings) -> Any:
    """Build the monitoring pipeline of `project`."""
    file = project.file
    watched = {
        name: schedule.model_dump(mode="json", exclude_defaults=True)
        for name, schedule in file.schedules.items()
        if schedule.sla_hours is not None
    }

    @dsl.pipeline(name=f"{project.name}-monitoring", description=f"Watch the data of {file.model} for drift.")
    def pipeline(
        store: str = project.store,
        source: str = "",
        window: str = "",
        since: str = "",
        until: str = "",
        predictions: str = "",
        rerun: str = "",
        backfill: str = "",
    ) -> None:
        """Decide whether to retrain, and order the training where one is due.

        Args:
            store: Address of the artifact store.
            source: Read the raw tables here, as s3://bucket/folder; empty for the project's source.
            window: Only events of START/END (end exclusive), as 2013-01-01/2013-03-01; empty for all.
            since: Judge rows decided from this time on (ISO 8601 with zone); empty for all after the last train row.
            until: Judge rows decided before this time; then no training is ordered; empty for all.
            predictions: A log of predictions: a reference, `latest` for the newest of batch scoring, `live` for what
                the predictors answered, or Parquet files; empty to let the champion score the newest rows.
            rerun: Stages to run whatever the memo holds, as monitor; empty for none.
            backfill: Why rows of the earlier snapshot may change, where they do; empty where they may not.
        """
        with settings.applied(store):
            reconcile(
                store=store,
                project=project.name,
                pipelines=list(NAMES),
                schedules=watched,
                **settings.notices,
            )
            champion = resolve(store=store, model_name=file.model, required=True, files=False).outputs
            data = snapshot(
                store=store,
                **settings.source,
                location=source,
                window=window,
                backfill=backfill,
                since=since,
                until=until,
                rerun=rerun,
            ).outputs
            rows = compute_features(
                snapshot=data["snapshot"],
                validation=data["validation"],
                **settings.definitions,
                service=file.features.service,
                check=False,
            ).outputs
            newest = retrieve_features(
                feature_tables=rows["feature_tables"], service=file.features.service, decisions="unlabelled"
            ).outputs["rows"]
            watch = monitor(
                current=rows["training_set"],
                champion=champion["model"],
                evaluation=champion["evaluation"],
                predictions=predictions,
                unlabelled=newest,
                since=since,
                until=until,
                stale=rows["stale"],
                spec=parameter_of(file.monitoring),
            ).outputs
            retrain(
                drift=watch["drift"],
                champion=champion["model"],
                project=project.name,
                model_name=file.model,
                source=source,
                window=window,
                until=until,
                spec=parameter_of(file.monitoring.retrain),
                submission=settings.submission,
            )

    return pipeline
