"""The KFP interface of the scoring of a Dataset."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("training", title="Score a Dataset", cpu="2", memory="4G", artifacts=("model",))
def score_dataset(
    dataset: dsl.Input[dsl.Dataset],
    predictions: dsl.Output[dsl.Dataset],
    model: dsl.Input[dsl.Model] = None,
    model_reference: str = "",
    format: str = "",
    store: str = "",
) -> NamedTuple("Outputs", [("rows", int), ("reference", str)]):
    """Score rows with a model that Gatehouse trained.

    Args:
        dataset: Rows with the model's features; other columns stay.
        model: The model, as the output candidate of train.
        model_reference: Its reference in the store in place of model, as resolve gives it, or its address.
        format: parquet, csv or jsonl; empty to look at the Dataset.
        store: Address of the artifact store of the model; empty if the reference is an address.

    Returns:
        rows: Number of rows.
        reference: Address of the model.
        predictions: The rows, with probability and positive for two classes, class and probabilities for several,
            prediction, or score, as Parquet.
    """
    import pyarrow.parquet as pq

    from gatehouse.data.datasets import read_dataset, write_dataset
    from gatehouse.data.splitting.publication import publish_rows
    from gatehouse.errors import ConfigurationError
    from gatehouse.monitoring.scoring_stage import ScoreRequest, score
    from gatehouse.store.parameters import open_store
    from gatehouse.store.reference import Reference

    address = model_reference or (model.metadata.get("reference", "") if model else "")
    if not address or (model and model_reference):
        raise ConfigurationError(
            "Expected `model`, as train gives it with its reference, or `model_reference`; found "
            f"{'both' if address else 'neither'}. Score rows for other models in a component of your own."
        )
    reference = str(Reference.parse(address))
    opened = open_store(store or address.removesuffix(reference).rstrip("/"))
    rows = publish_rows(opened, "tables", "rows", read_dataset(dataset.path, format), {}, {})
    result = score(ScoreRequest(model=reference, rows=str(rows)), opened)
    write_dataset(pq.ParquetDataset(opened.paths(result.predictions)).read(), predictions.path)
    predictions.metadata["model"] = opened.address_of(reference)
    return (result.rows, opened.address_of(reference))
