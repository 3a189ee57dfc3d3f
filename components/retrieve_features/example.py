"""Join features to labelled rows as of their time, from a Feast repository that nobody has applied."""

from kfp import dsl

from gatehouse.components import require, retrieve_features


@dsl.component(packages_to_install=["feast"])
def drivers(repository: dsl.Output[dsl.Artifact], trips: dsl.Output[dsl.Dataset]) -> None:
    """Write the repository of `feast init`, and the newest hour of each driver with a label."""
    import pandas as pd
    from feast.repo_operations import init_repo

    init_repo("drivers", "local", f"{repository.path}/drivers")
    hours = pd.read_parquet(f"{repository.path}/drivers/feature_repo/data/driver_stats.parquet")
    newest = hours.groupby("driver_id", as_index=False).event_timestamp.max()
    newest.assign(late=newest.index % 2, val_to_add=1, val_to_add_2=2).to_csv(trips.path, index=False)


@dsl.pipeline
def example() -> None:
    """Retrieve a feature service; its data says that all of it was created today, which a reason accepts."""
    made, accepted = drivers(), {"driver_hourly_stats": "The example writes all its history at once."}
    rows, repository = made.outputs["trips"], made.outputs["repository"]
    joined = retrieve_features(
        entity_rows=rows, repository=repository, service="driver_activity_v1", unchecked=accepted
    )
    require(verdict=joined.outputs["verdict"], reasons=joined.outputs["reasons"])
