"""The KFP interface of the stage `recover`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("training", title="Come back after a killed worker")
def recover(
    store: str,
) -> NamedTuple("Outputs", [("resumed_at", int), ("machines", list)]):
    """Start a job of two workers through the project's launcher; one kills itself, and the job must still succeed.

    Args:
        store: Address of the artifact store.

    Returns:
        resumed_at: Step at which the workers resumed.
        machines: Machines that they ran on.
    """
    from gatehouse.operations.diagnosing_stage import recover as run_recover
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store))
    request = request_of(
        run_recover,
    )
    return values_of(run(run_recover, request))
