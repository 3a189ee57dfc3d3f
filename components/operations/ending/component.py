"""The KFP interface of the stage that reports the end of a run."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def report_end(store: str, project: str, pipeline: str, status: dsl.PipelineTaskFinalStatus) -> NamedTuple(
    "Outputs", [("state", str), ("failed_stage", str)]
):
    """Record how the run ended, and tell it.

    Args:
        store: Address of the artifact store.
        project: The project.
        pipeline: The pipeline that ran.
        status: How KFP says that the tasks before ended.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.operations.ending.stage import EndRequest
    from gatehouse.components.operations.ending.stage import report_end as report

    request = EndRequest(project=project, pipeline=pipeline, said=status.state)
    result = report(request, ArtifactStore.open(store))
    return (result.state, result.failed_stage)
