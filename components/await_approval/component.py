"""The KFP interface of a run's wait for a person."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("control", title="Await approval", cpu="100m", memory="512M", minutes=1470)
def await_approval(
    store: str, model_name: str, version: int = 0, timeout_minutes: float = 1440.0, server: str = ""
) -> NamedTuple("Outputs", [("number", int), ("verdict", str), ("by", str)]):
    """Wait until a person approves the verdict on a version, and end the run if that person rejects it.

    The task's log and the record of the run say where to approve, and the digest of the verdict. If the policy asks for
    no person, the task ends at once. A restarted pod keeps the deadline.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        version: The version; 0 for the one in staging.
        timeout_minutes: After so many minutes the run ends.
        server: Address of `gatehouse serve`, whose page asks for the approval; empty for none.

    Returns:
        number: The version, for promote.
        verdict: The digest of the verdict that was approved.
        by: Who approved it; empty if the policy asks nobody.
    """
    from gatehouse.data.component_task import ComponentTask
    from gatehouse.registry.awaiting_stage import await_approval as wait

    limits = {"timeout_minutes": timeout_minutes, "server": server}
    result = ComponentTask(store).run(wait, model_name=model_name, version=version, **limits)
    return (result.version, result.verdict, result.by)
