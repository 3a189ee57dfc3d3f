"""The two stages of a diagnosis: a pod reaches what it needs, and a job resumes after a killed worker."""

import json
import os

from gatehouse import __version__
from gatehouse.errors import GatehouseError
from gatehouse.launchers.choose import launch_of, launcher
from gatehouse.launchers.launcher import JOB, RESULT, TrainingJob
from gatehouse.launchers.spec import LocalLaunch
from gatehouse.operations.diagnosing.reach import failed, passed, store_finding, tracking_finding
from gatehouse.runtime.variables import LAUNCH
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

PROGRAM = "gatehouse.operations.diagnosing.program"
MINUTES = 10.0
"""Time limit of the job; waiting for nodes does not count."""
_WORKERS = 2


class UnfitPlaceError(GatehouseError):
    """A machine or cluster lacks something that the pipelines need; the message says what, and what to do."""


class ReachRequest(StageModel):
    """The version of Gatehouse that the pipeline was compiled with; empty for any."""

    version: str = ""


class ReachResult(StageModel):
    """The results, one sentence per check."""

    checks: tuple[str, ...]


class RecoverRequest(StageModel):
    """The request for a trial job; it has no fields."""


class RecoverResult(StageModel):
    """The step at which the workers resumed, and the machines that they ran on."""

    resumed_at: int
    machines: tuple[str, ...]


@stage(
    "reach",
    title="Reach what pods need",
    effects=Effects(
        reads="the store, MLflow",
        writes="the store",
        why="Sees how it is now, and removes what it wrote.",
    ),
)
def reach(request: ReachRequest, store: ArtifactStore) -> ReachResult:
    """Check the store, MLflow and the image's version from a pod. Raises UnfitPlaceError, naming failed checks."""
    image = passed("image", f"holds Gatehouse {__version__}")
    if request.version not in ("", __version__):
        expected = f"holds Gatehouse {__version__}, expected {request.version}"
        image = failed("image", expected, "Push the image of this version.")
    findings = [image, store_finding(store.address), tracking_finding(store)]
    if failures := [finding for finding in findings if finding.outcome == "failed"]:
        listed = "".join(f"\n  - {failure.check}: {failure.observed}. {failure.advice}" for failure in failures)
        raise UnfitPlaceError(f"A pod cannot run pipelines here:{listed}")
    return ReachResult(checks=tuple(f"{finding.check}: {finding.observed}" for finding in findings))


@stage(
    "recover",
    title="Come back after a killed worker",
    effects=Effects(reads="the cluster", writes="a job", why="Tries the launcher, which removes its job."),
)
def recover(request: RecoverRequest, store: ArtifactStore) -> RecoverResult:
    """Run a job of two workers, one of which kills itself. Raises UnfitPlaceError if the job does not resume."""
    launch = launch_of(os.environ.get(LAUNCH, ""))
    if not isinstance(launch, LocalLaunch):  # One worker on each of two nodes, so that pods must reach each other.
        launch = launch.model_copy(update={"nodes": _WORKERS})
    with store.workspace() as folder:
        directory = folder / "doctor"
        directory.mkdir()
        (directory / JOB).write_text(json.dumps({"workers": _WORKERS}))
        job = TrainingJob(directory, PROGRAM, _WORKERS, MINUTES)
        chosen = launcher(store, launch)
        chosen.run(job)
        result = json.loads((directory / RESULT).read_text())
        chosen.forget(job)
    if not result["resumed_at"]:
        raise UnfitPlaceError("The job succeeded, but began again from its first step instead of resuming.")
    return RecoverResult(resumed_at=result["resumed_at"], machines=tuple(result["machines"]))
