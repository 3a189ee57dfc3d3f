"""The KFP interface of the stage `require`."""

from gatehouse.components.interface import component


@component("control", title="Require the verdict", cpu="500m", memory="512M", minutes=5)
def require(verdict: str, reasons: list = [], subject: str = "", report: str = "", store: str = "") -> None:
    """End the run unless a verdict is pass: a component that judges never fails, because KFP shows no artifacts then.

    Args:
        verdict: The verdict of another component.
        reasons: The reasons that it gave.
        subject: What was judged, for the error.
        report: Reference or address of what explains it, for the error.
        store: Address of the artifact store with the record of the run; empty for none.
    """
    from gatehouse.operations.preparing_stage import require as run_require
    from gatehouse.store.parameters import open_store, request_of, runner

    request = request_of(run_require, verdict=verdict, reasons=reasons, report=report, subject=subject)
    runner(open_store(store))(run_require, request)
