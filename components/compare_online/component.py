"""The KFP interface of the stage `compare_online`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("data", title="Compare online features", cpu="2", memory="4G")
def compare_online(
    store: str,
    training_set: str,
    max_skew: float = 0.0,
) -> NamedTuple("Outputs", [("comparison", str), ("verdict", str), ("reasons", list), ("values", int)]):
    """Compare a sample of the online store with the offline values; `online.json` has the result by view.

    Args:
        store: Address of the artifact store.
        training_set: Reference of the training set.
        max_skew: Share of differing values above which the verdict is fail.

    Returns:
        comparison: Reference of the comparison.
        verdict: pass, or why a person should look.
        reasons: Why the verdict is not pass.
        values: Number of values compared.
    """
    from gatehouse.online.serving.stage import compare_online as run_compare_online
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store))
    request = request_of(run_compare_online, training_set=training_set, max_skew=max_skew)
    return values_of(run(run_compare_online, request))
