"""The KFP interface of the stage `check_leakage`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("control", title="Check for leakage", caching=True, cpu="2", memory="8G")
def check_leakage(
    store: str,
    snapshot: str,
    feature_tables: str,
    training_set: str,
    definitions: str,
    alarm: float = 0.95,
    cuts: int = 7,
    unchecked: dict = {},
    rerun: str = "",
) -> NamedTuple("Outputs", [("leakage", str), ("verdict", str), ("reasons", list), ("warnings", list)]):
    """Judge whether the training set holds only what was known at decision time; a report is written in any case.

    Args:
        store: Address of the artifact store.
        snapshot: Reference of the snapshot.
        feature_tables: Reference of the feature tables.
        training_set: Reference of the training set.
        definitions: Reference of the feature definitions.
        alarm: ROC AUC above which one feature is taken for a leak.
        cuts: At how many moments of its own rows each view is replayed; all views are also replayed at the middle
            decision.
        unchecked: Views that need not be checked, each with the reason; any other view that cannot be checked fails.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        leakage: Reference of the check.
        verdict: pass, or why a person should look.
        reasons: Why the verdict is not pass.
        warnings: What a person should know, though the verdict is pass.
    """
    from gatehouse.features.leakage.stage import check_leakage as run_check_leakage
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store), rerun)
    request = request_of(
        run_check_leakage,
        snapshot=snapshot,
        feature_tables=feature_tables,
        training_set=training_set,
        definitions=definitions,
        alarm=alarm,
        cuts=cuts,
        unchecked=unchecked,
    )
    return values_of(run(run_check_leakage, request))
