"""The scoring pipeline: the champion scores decisions with what was known at each of them."""

from typing import Any

from kfp import dsl

from gatehouse.components import compute_features, resolve, retrieve_features, score, snapshot, take_keys
from gatehouse.pipelines.settings import Settings
from gatehouse.project.project import Project


def scoring(project: Project, settings: Settings) -> Any:
    """Build the scoring pipeline of `project`."""
    file = project.file

    @dsl.pipeline(name=f"{project.name}-scoring", description=f"Score decisions with the champion of {file.model}.")
    def pipeline(
        store: str = project.store,
        source: str = "",
        window: str = "",
        since: str = "",
        until: str = "",
        keys: str = "",
        rerun: str = "",
        backfill: str = "",
    ) -> None:
        """Score decisions with the champion.

        Args:
            store: Address of the artifact store.
            source: Read the raw tables here, as s3://bucket/folder; empty for the project's source.
            window: Only events of START/END (end exclusive), as 2013-01-01/2013-03-01; empty for all.
            since: Score decisions from this time on (ISO 8601 with zone); empty for all.
            until: Score decisions before this time; empty for all that the snapshot covers.
            keys: Score these keys and times instead, a CSV or Parquet file as the tasks see it; empty for decisions.
            rerun: Stages to run whatever the memo holds, as score; empty for none.
            backfill: Why rows of the earlier snapshot may change, where they do; empty where they may not.
        """
        with settings.applied(store):
            champion = resolve(store=store, model_name=file.model, required=True, files=False).outputs["model"]
            wanted = take_keys(store=store, address=keys, name=project.name).outputs["keys"]
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
            tables = compute_features(
                snapshot=data["snapshot"],
                validation=data["validation"],
                **settings.definitions,
            ).outputs["feature_tables"]
            rows = retrieve_features(
                feature_tables=tables,
                entity_rows=wanted,
                service=file.features.service,
                decisions="all",
                since=since,
                until=until,
            ).outputs["rows"]
            score(model=champion, data=rows)

    return pipeline
