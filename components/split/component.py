"""The KFP interface of the task that divides a training set and fits what turns its rows into numbers."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("control", title="Split", cpu="2", memory="4G", minutes=65)
def split(
    store: str,
    training_set: str,
    spec: dict,
    model_name: str,
    transformation: dict = {},
    verdict: str = "pass",
    reasons: list = [],
    leakage: str = "",
    rerun: str = "",
) -> NamedTuple("Outputs", [("split", str), ("split_checks", str), ("transformation", str)]):
    """Divide a training set that does not leak into parts, and fit the transformation of its train part.

    Args:
        store: Address of the artifact store.
        training_set: Reference of the training set.
        spec: The strategy, as a SplitSpec.
        model_name: Name of the model.
        transformation: What is fitted, as a TransformationSpec.
        verdict: What the check for leakage says of the training set; anything but pass ends the run.
        reasons: Why it is no pass.
        leakage: Reference of the check that says so.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        split: Reference of the split.
        split_checks: Reference of the checks of the split.
        transformation: Reference of the fitted transformation.
    """
    from gatehouse.data.splitting.stage import split as divide
    from gatehouse.operations.preparing_stage import require_no_leakage
    from gatehouse.store.parameters import open_store, request_of, runner
    from gatehouse.training.transformation.stage import fit_transformation

    run = runner(open_store(store), rerun)
    run(require_no_leakage, request_of(require_no_leakage, verdict=verdict, reasons=reasons, report=leakage))
    parts = run(divide, request_of(divide, training_set=training_set, spec=spec))
    fitting = {"split": parts.split, "spec": transformation, "model_name": model_name}
    fitted = run(fit_transformation, request_of(fit_transformation, **fitting))
    return (parts.split, parts.split_checks, fitted.transformation)
