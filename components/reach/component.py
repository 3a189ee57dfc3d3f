"""The KFP interface of the stage `reach`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("training", title="Reach what pods need", cpu="500m", memory="1G", minutes=10)
def reach(
    store: str,
    version: str = "",
) -> NamedTuple("Outputs", [("checks", list)]):
    """Check from a pod that the store and MLflow answer, and that the image has the right version.

    Args:
        store: Address of the artifact store.
        version: The version of Gatehouse that the pipeline was compiled with; empty for any.

    Returns:
        checks: The result of each check, as one sentence.
    """
    from gatehouse.operations.diagnosing_stage import reach as run_reach
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store))
    request = request_of(run_reach, version=version)
    return values_of(run(run_reach, request))
