"""The KFP interface of a snapshot of a Dataset."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Snapshot a dataset", cpu="2", memory="4G")
def snapshot_dataset(
    dataset: dsl.Input[dsl.Dataset],
    store: str,
    snapshot: dsl.Output[dsl.Dataset],
    name: str = "dataset",
    keys: list = [],
    event_time: str = "",
    sensitive: list = [],
    format: str = "",
) -> NamedTuple("Outputs", [("reference", str), ("rows", int), ("as_of", str), ("warnings", list)]):
    """Keep the rows of a Dataset in an artifact store, where they never change; equal rows give the same reference.

    Args:
        dataset: A table in Parquet (a file or a folder), CSV or JSON lines.
        store: Address of the artifact store.
        name: Name of the snapshot and of its table.
        keys: Columns that, with the event time, no two rows share; the rows are sorted by them.
        event_time: Column of times from which rows are known, which features need; empty for none.
        sensitive: Columns whose values are never shown.
        format: parquet, csv or jsonl; empty to look.

    Returns:
        reference: Reference of the snapshot, which `validate` and `compute_features` take.
        rows: Number of rows.
        as_of: The newest event time; empty without one.
        warnings: What differs from the earlier snapshot of this name, and columns that a snapshot cannot hold.
        snapshot: The rows as Parquet, with the reference in their metadata.
    """
    import pyarrow.parquet as pq

    from gatehouse.data.datasets import read_dataset, write_dataset
    from gatehouse.data.snapshot.whole_table import snapshot_table
    from gatehouse.store.parameters import open_store

    opened, rows = open_store(store), read_dataset(dataset.path, format)
    taken = snapshot_table(opened, rows, name, keys=keys, event_time=event_time, sensitive=sensitive)
    files = opened.paths(opened.manifest(taken.snapshot).derived_from[name])
    write_dataset(pq.ParquetDataset(files).read(), snapshot.path)
    reference = opened.address_of(taken.snapshot)
    snapshot.metadata |= {"reference": reference, "rows": taken.rows[name]}
    return (reference, taken.rows[name], taken.as_of, list(taken.warnings))
