"""The KFP interface of a refusal."""

from kfp import dsl

from gatehouse.components.interface import component


@component("control", title="Require the verdict", cpu="500m", memory="512M", minutes=5)
def require(
    verdict: str, reasons: list = [], subject: str = "", report: dsl.Input[dsl.Artifact] = None, store: str = ""
) -> None:
    """End the run unless a verdict is pass: a component that judges never fails, because KFP shows no artifacts then.

    Args:
        verdict: The verdict of another component.
        reasons: The reasons that it gave.
        subject: What was judged, for the error.
        report: What explains it, for the error.
        store: Address of the artifact store with the record of the run; empty for that of the report, or for none.
    """
    from gatehouse.data.component_task import ComponentTask
    from gatehouse.operations.preparing_stage import require as require_pass

    task = ComponentTask(store, report)
    explained = (task.find(report) or report.uri) if report else ""
    task.run(require_pass, verdict=verdict, reasons=reasons, report=explained, subject=subject)
