"""The KFP interface of the stage `fit_transformation`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("control", title="Fit the transformation", caching=True, cpu="2", memory="4G")
def fit_transformation(
    store: str,
    split: str,
    model_name: str,
    spec: dict = {},
    rerun: str = "",
) -> NamedTuple("Outputs", [("transformation", str)]):
    """Fit on the train part, which is all that is read; the artifact holds `transformation.json`.

    Args:
        store: Address of the artifact store.
        split: Reference of the split of the training set.
        spec: What is fitted, as a TransformationSpec.
        model_name: Name of the model.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        transformation: Reference of the fitted transformation.
    """
    from gatehouse.store.parameters import open_store, request_of, runner, values_of
    from gatehouse.training.transformation.stage import fit_transformation as run_fit_transformation

    run = runner(open_store(store), rerun)
    request = request_of(run_fit_transformation, split=split, spec=spec, model_name=model_name)
    return values_of(run(run_fit_transformation, request))
