"""The KFP interface of the check for leakage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Check for leakage", caching=True, cpu="2", memory="8G")
def check_leakage(
    training_set: dsl.Input[dsl.Dataset],
    leakage: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
    alarm: float = 0.95,
    cuts: int = 7,
    unchecked: dict = {},
    store: str = "",
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list), ("warnings", list)]):
    """Check that a training set holds only what was known at the time of each row, by recomputing the past.

    The task succeeds whatever the verdict is; `split` refuses a training set that leaks.

    Args:
        training_set: The training set, of compute_features or retrieve_features.
        alarm: ROC AUC above which one feature is taken for a leak.
        cuts: At how many moments of its own rows each view is replayed; all views are also replayed at the middle
            decision.
        unchecked: Views that need not be checked, each with the reason; any other view that cannot be checked fails.
        store: Address of the artifact store; empty for that of the training set.

    Returns:
        verdict: pass or fail.
        reasons: Why it is fail.
        warnings: Views that may go unchecked, and did.
        leakage: The check, with verdict and reasons.
        report: The report, with every view.
    """
    from gatehouse.data.component_task import ComponentTask, verdict_facts
    from gatehouse.features.leakage.stage import check_leakage as check

    task = ComponentTask(store, training_set)
    rows = task.take("training_set", training_set, "training-sets")
    origin = {name: task.origin(rows, name) for name in ("snapshot", "feature_tables", "definitions")}
    result = task.run(check, **origin, training_set=rows, alarm=alarm, cuts=cuts, unchecked=unchecked)
    task.give(leakage, result.leakage, verdict_facts(result.verdict, result.reasons))
    task.show(report, result.leakage)
    return (result.verdict, list(result.reasons), list(result.warnings))
