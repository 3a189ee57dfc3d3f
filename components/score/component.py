"""The KFP interface of the stage `score`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("training", title="Score", caching=True, cpu="2", memory="4G")
def score(
    store: str,
    model: str,
    rows: str,
    version: int = 0,
    rerun: str = "",
) -> NamedTuple("Outputs", [("predictions", str), ("rows", int)]):
    """Score rows with a model: Parquet files of keys, decision time, predictions, model and version.

    Args:
        store: Address of the artifact store.
        model: Reference of the model.
        rows: Reference of the rows: decisions, or a training set.
        version: Number under which the model is registered; 0 where it is not.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        predictions: Reference of the predictions; empty for none.
        rows: Number of rows.
    """
    from gatehouse.monitoring.scoring_stage import score as run_score
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store), rerun)
    request = request_of(run_score, model=model, rows=rows, version=version)
    return values_of(run(run_score, request))
