"""The last task of every run, which KFP starts however the run ends: it records the end, and tells whom it concerns."""

import logging
import os

from gatehouse.components.artifacts.declaration import Effects, Resources
from gatehouse.components.artifacts.run import RUN_ID
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.operations.ending.outcome import record_end, run_outcome

logger = logging.getLogger(__name__)


class EndRequest(StageModel):
    """Which run ended, and how KFP says that it did.

    Attributes:
        project: The project.
        pipeline: The pipeline that ran.
        said: KFP's state of the tasks before: SUCCEEDED, FAILED or CANCELED.
    """

    project: str
    pipeline: str
    said: str = ""


class EndResult(StageModel):
    """What came of the run, and the stage that failed."""

    state: str
    failed_stage: str


@stage(
    "report_end",
    title="Report the end",
    effects=Effects(
        reads="the run's record",
        writes="the run's end",
        why="Says how this run ended, which nobody knows before; an end is recorded once.",
    ),
    resources=Resources(cpu="500m", memory="512M", minutes=5),
)
def report_end(request: EndRequest, store: ArtifactStore) -> EndResult:
    """Record the end of the run that this process is part of.

    What KFP says is held against the run's own record: where a stage failed, the run failed.
    """
    run = os.environ.get(RUN_ID, "")
    outcome = run_outcome(store, run, request.said)
    if run:
        record_end(store, run, outcome, "report_end", project=request.project, pipeline=request.pipeline)
    return EndResult(state=outcome.state, failed_stage=outcome.stage)
