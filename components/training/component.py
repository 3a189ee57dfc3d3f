"""The KFP interface of the train stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.artifacts.image import image_of


@dsl.component(base_image=image_of("train"), packages_to_install=[], install_kfp_package=False)
def train(
    store: str,
    training_set: str,
    split: str,
    transformation: str,
    spec: str,
    operation: str,
    model_name: str,
    code: str,
    force: str,
    candidate: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    seed: int = -1,
    refit: bool = False,
) -> NamedTuple("Outputs", [("model", str)]):
    """Train a candidate with torchrun and publish it.

    Args:
        store: Address of the artifact store.
        training_set: Reference of the training set.
        split: Reference of its split.
        transformation: Reference of the transformation fitted on its train part.
        spec: What to train, as canonical JSON of a TrainSpec.
        operation: How it is run, as canonical JSON of the groups that change nothing of the model.
        model_name: Name of the model.
        code: Digest of the stage's code.
        force: A nonce that runs the stage whatever the memo holds; empty for none.
        seed: Of the training in place of that of `spec`; negative for that.
        refit: Train again on train and validation rows, for as many epochs as the first training found to be best.

    Returns:
        model: Reference of the model.
        candidate: The model for the UI: its metadata holds the reference.
        metrics: Validation metrics for the UI; none of a refit.
    """
    import json

    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.tracking.training import track_training
    from gatehouse.components.training.spec import changed, run_as
    from gatehouse.components.training.stage import TrainRequest
    from gatehouse.components.training.stage import train as run

    opened = ArtifactStore.open(store)
    wanted = run_as(json.loads(spec), json.loads(operation))
    request = TrainRequest(
        training_set=training_set,
        split=split,
        transformation=transformation,
        spec=wanted if seed < 0 else changed(wanted, {"seed": seed}),
        model_name=model_name,
        live=True,
        refit=refit,
    )
    result = run(request, opened, code=code, force=force)
    track_training(opened, result.model)
    candidate.metadata["reference"] = opened.address_of(result.model)
    for name, value in result.metrics.items():
        metrics.log_metric(f"validation_{name}", value)
    return (result.model,)
