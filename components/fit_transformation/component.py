"""The KFP interface of the stage `fit_transformation`."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.store.image import image_of


@dsl.component(base_image=image_of("fit_transformation"), packages_to_install=[], install_kfp_package=False)
def fit_transformation(
    store: str,
    training_set: str,
    split: str,
    model_name: str,
    spec: dict = {},
    code: dict = {},
    rerun: str = "",
) -> NamedTuple("Outputs", [("transformation", str)]):
    """Fit on the train part, which is all that is read; the artifact holds `transformation.json`.

    Args:
        store: Address of the artifact store.
        training_set: Reference of the training set.
        split: Reference of its split.
        spec: What is fitted, as a TransformationSpec.
        model_name: Name of the model.
        code: Digest of the stage's code, by stage.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        transformation: Reference of the fitted transformation.
    """
    from gatehouse.store.parameters import request_of, runner, values_of
    from gatehouse.store.store import ArtifactStore
    from gatehouse.training.transformation.stage import fit_transformation as run_fit_transformation

    run = runner(ArtifactStore.open(store), code, rerun)
    request = request_of(
        run_fit_transformation, training_set=training_set, split=split, spec=spec, model_name=model_name
    )
    return values_of(run(run_fit_transformation, request))
