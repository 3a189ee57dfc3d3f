"""The KFP interface of the fit_transformation stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def fit_transformation(
    store: str, training_set: str, split: str, spec: str, model_name: str, code: str, force: str
) -> NamedTuple("Outputs", [("transformation", str)]):
    """Fit normalisation, clipping, imputation and vocabularies on the train part.

    Args:
        store: Address of the artifact store.
        training_set: Reference of the training set.
        split: Reference of its split.
        spec: What is fitted, as canonical JSON of a TransformationSpec.
        model_name: Name of the model.
        code: Digest of the stage's code.
        force: A nonce that runs the stage whatever the memo holds; empty for none.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.training.transformation.spec import TransformationSpec
    from gatehouse.components.training.transformation.stage import FitRequest
    from gatehouse.components.training.transformation.stage import fit_transformation as fit

    wanted = TransformationSpec.model_validate_json(spec)
    request = FitRequest(training_set=training_set, split=split, spec=wanted, model_name=model_name)
    return (fit(request, ArtifactStore.open(store), code=code, force=force).transformation,)
