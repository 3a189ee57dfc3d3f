"""The KFP interface of batch scoring."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("training", title="Score", caching=True, cpu="2", memory="4G")
def score(
    data: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    predictions: dsl.Output[dsl.Dataset],
    format: str = "",
    store: str = "",
    tables: bool = False,
) -> NamedTuple("Outputs", [("rows", int)]):
    """Score rows with a model that Gatehouse trained.

    Args:
        data: Rows of retrieve_features, a training set; or any table with the model's features, whose other columns
            stay: in Parquet (a file or a folder), CSV or JSON lines.
        model: The model, of train or resolve.
        format: parquet, csv or jsonl; empty to look at the table.
        store: Address of the artifact store; empty for that of the model.
        tables: Whether to write the predictions of an artifact's rows for tasks that do not know Gatehouse, in place of
            a manifest; those of a table are always written.

    Returns:
        rows: Number of rows.
        predictions: By row keys, time, model and version, or the columns of the table; with probability and positive
            for two classes, class and probabilities for several, prediction, or score.
    """
    from gatehouse.data.component_task import ComponentTask
    from gatehouse.monitoring.scoring_stage import score as score_rows

    task = ComponentTask(store, model, data)
    if task.is_nothing(data):
        task.give(predictions, "")
        return (0,)
    trained, rows = task.take("model", model, "models"), task.published(data, format)
    result = task.run(score_rows, model=trained, rows=rows, version=int(model.metadata.get("version", "0")))
    task.give(predictions, result.predictions, {"model": task.address(trained)}, tables=tables or not task.find(data))
    return (result.rows,)
