"""The KFP interface of the stage `score`."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.store.image import image_of


@dsl.component(base_image=image_of("score"), packages_to_install=[], install_kfp_package=False)
def score(
    store: str,
    model: str,
    rows: str,
    version: int = 0,
    code: dict = {},
    rerun: str = "",
) -> NamedTuple("Outputs", [("predictions", str), ("rows", int)]):
    """Score rows with a model: Parquet files of keys, decision time, predictions, model and version.

    Args:
        store: Address of the artifact store.
        model: Reference of the model.
        rows: Reference of the rows: decisions, or a training set.
        version: Number under which the model is registered; 0 where it is not.
        code: Digest of the stage's code, by stage.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        predictions: Reference of the predictions; empty for none.
        rows: Number of rows.
    """
    from gatehouse.monitoring.scoring_stage import score as run_score
    from gatehouse.store.parameters import request_of, runner, values_of
    from gatehouse.store.store import ArtifactStore

    run = runner(ArtifactStore.open(store), code, rerun)
    request = request_of(run_score, model=model, rows=rows, version=version)
    return values_of(run(run_score, request))
