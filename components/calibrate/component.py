"""The KFP interface of the stage `calibrate`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("training", title="Calibrate the candidate", caching=True, cpu="2", memory="4G")
def calibrate(
    store: str,
    model: str,
    spec: dict = {},
    rerun: str = "",
) -> NamedTuple("Outputs", [("model", str), ("threshold", float), ("summary", str)]):
    """Fit on the validation part, which is all that is read; the artifact is the model with `calibration.json`.

    Args:
        store: Address of the artifact store.
        model: Reference of the model.
        spec: What is fitted, as a CalibrationSpec.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        model: Reference of the model.
        threshold: The decision threshold.
        summary: The result in one line.
    """
    from gatehouse.store.parameters import open_store, request_of, runner, values_of
    from gatehouse.training.calibration.stage import calibrate as run_calibrate

    run = runner(open_store(store), rerun)
    request = request_of(run_calibrate, model=model, spec=spec)
    return values_of(run(run_calibrate, request))
