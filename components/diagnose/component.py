"""The KFP interface of the diagnosis of a cluster from inside."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("training", title="Look from a pod", cpu="500m", memory="1G", minutes=30)
def diagnose(
    store: str,
    version: str = "",
    recover: bool = True,
) -> NamedTuple("Outputs", [("checks", list), ("resumed_at", int), ("machines", list)]):
    """Check from a pod that the store and MLflow answer, then that a job comes back after it lost a worker.

    Args:
        store: Address of the artifact store.
        version: The version of Gatehouse that the pipeline was compiled with; empty for any.
        recover: Whether to start a job of two workers through the launcher of the task, of which one kills itself.

    Returns:
        checks: The result of each check, as one sentence.
        resumed_at: Step at which the workers resumed; -1 without a job.
        machines: Machines that they ran on.
    """
    from gatehouse.data.component_task import ComponentTask
    from gatehouse.operations.diagnosing_stage import reach
    from gatehouse.operations.diagnosing_stage import recover as lose_a_worker

    task = ComponentTask(store)
    checks = list(task.run(reach, version=version).checks)
    if not recover:
        return (checks, -1, [])
    result = task.run(lose_a_worker)
    return (checks, result.resumed_at, list(result.machines))
