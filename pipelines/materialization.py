"""The materialization pipeline: the newest features into the online store, read back and compared."""

from typing import Any

from kfp import dsl

from gatehouse.components import compute_features, materialize, require, snapshot
from gatehouse.pipelines.settings import Settings
from gatehouse.project.project import Project


def materialization(project: Project, settings: Settings) -> Any:
    """Build the materialization pipeline of `project`."""
    file = project.file

    @dsl.pipeline(name=f"{project.name}-materialization", description=f"Serve the features of {file.model} online.")
    def pipeline(
        store: str = project.store,
        source: str = "",
        window: str = "",
        rerun: str = "",
        backfill: str = "",
        rewrite: bool = False,
    ) -> None:
        """Bring the online store up to the newest known features.

        Args:
            store: Address of the artifact store.
            source: Read the raw tables here, as s3://bucket/folder; empty for the project's source.
            window: Only events of START/END (end exclusive), as 2013-01-01/2013-03-01; empty for all.
            rerun: Stages to run whatever the memo holds, as compute_features; empty for none.
            backfill: Why rows of the earlier snapshot may change, where they do; empty where they may not.
            rewrite: Write the online store from the beginning, also where it was brought to a later time before.
        """
        with settings.applied(store):
            data = snapshot(
                store=store,
                **settings.source,
                location=source,
                window=window,
                backfill=backfill,
                rerun=rerun,
            ).outputs
            tables = compute_features(
                snapshot=data["snapshot"],
                validation=data["validation"],
                **settings.definitions,
            ).outputs["feature_tables"]
            written = materialize(
                feature_tables=tables,
                service=file.features.service,
                max_skew=file.features.max_skew,
                rewrite=rewrite,
            ).outputs
            require(
                verdict=written["verdict"],
                reasons=written["reasons"],
                report=written["materialization"],
                subject="The online store",
            )

    return pipeline
