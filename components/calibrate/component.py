"""The KFP interface of the stage `calibrate`."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.store.image import image_of


@dsl.component(base_image=image_of("calibrate"), packages_to_install=[], install_kfp_package=False)
def calibrate(
    store: str,
    model: str,
    training_set: str,
    split: str,
    spec: dict,
    code: dict = {},
    rerun: str = "",
) -> NamedTuple("Outputs", [("model", str), ("threshold", float), ("summary", str)]):
    """Fit on the validation part, which is all that is read; the artifact is the model with `calibration.json`.

    Args:
        store: Address of the artifact store.
        model: Reference of the model.
        training_set: Reference of its training set.
        split: Reference of its split.
        spec: What is fitted, as a CalibrationSpec.
        code: Digest of the stage's code, by stage.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        model: Reference of the model.
        threshold: The decision threshold.
        summary: The result in one line.
    """
    from gatehouse.store.parameters import request_of, runner, values_of
    from gatehouse.store.store import ArtifactStore
    from gatehouse.training.calibration.stage import calibrate as run_calibrate

    run = runner(ArtifactStore.open(store), code, rerun)
    request = request_of(run_calibrate, model=model, training_set=training_set, split=split, spec=spec)
    return values_of(run(run_calibrate, request))
