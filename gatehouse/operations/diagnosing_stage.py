"""Diagnosis of a machine or cluster: checks with their results, and the two stages that make them in a pod.

The store must keep the promise that of several writers to a new name exactly one wins. Every store in the cloud
documents it, but not every S3-compatible server keeps it under load, so real writers race for it.
"""

import json
import os
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from gatehouse import __version__
from gatehouse.errors import GatehouseError, StoreError
from gatehouse.launchers.launcher import JOB, RESULT, TrainingJob
from gatehouse.launchers.local import launch_of, launcher
from gatehouse.launchers.spec import LocalLaunch
from gatehouse.runtime.redaction import error_text, public_address
from gatehouse.runtime.variables import LAUNCH
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import require_server, tracking_of
from gatehouse.tracking.place import URI

PROGRAM = "gatehouse.operations.recovery_program"
MINUTES = 10.0
"""Time limit of the job; waiting for nodes does not count."""
_WORKERS = 2
_TIMEOUT = 10.0
_WRITERS, _ROUNDS = 8, 5


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


@dataclass(frozen=True)
class Finding:
    """The result of one check: what was `observed`, or why nothing could be, and what to do.

    If the pipelines do not need it, an unchecked result is no problem.
    """

    check: str
    outcome: Literal["passed", "failed", "not checked"]
    observed: str
    advice: str = ""
    needed: bool = True

    @property
    def well(self) -> bool:
        """Whether nothing needs to be done."""
        return self.outcome == "passed" or (self.outcome == "not checked" and not self.needed)


def passed(check: str, observed: str) -> Finding:
    """The result of a check that passed."""
    return Finding(check, "passed", observed)


def failed(check: str, observed: str, advice: str) -> Finding:
    """The result of a check that failed."""
    return Finding(check, "failed", observed, advice)


def unchecked(check: str, why: str, advice: str = "", *, needed: bool = True) -> Finding:
    """The result of a check that could not be made."""
    return Finding(check, "not checked", why, advice, needed)


def looked(check: str, look: Callable[[], str], advice: str) -> Finding:
    """The result of `look`, which returns what it found; a GatehouseError is a failure with its first line."""
    try:
        return passed(check, look())
    except GatehouseError as error:
        return failed(check, " ".join(str(error).split())[:400], advice)


def store_finding(address: str) -> Finding:
    """Check that a store can be written and read, and that of racing writers to a new name exactly one wins.

    Each writer is a thread with a client of its own, and its bytes are its number. A later write is also refused.
    """

    def look() -> str:
        clients = [ArtifactStore.open(address).objects for _ in range(_WRITERS)]
        folder, kept = f"doctor/{uuid.uuid4().hex}", ""
        with ThreadPoolExecutor(_WRITERS) as pool:
            for number in range(_ROUNDS):
                key, start = f"{folder}/{number}.json", threading.Barrier(_WRITERS)

                def write(writer: int, key: str = key, start: threading.Barrier = start) -> bool:
                    start.wait()
                    return clients[writer].put_bytes(key, b"%d" % writer)

                won = [writer for writer, wins in enumerate(pool.map(write, range(_WRITERS))) if wins]
                again = clients[0].put_bytes(key, b"again")
                content, stat = clients[0].get_bytes(key), clients[0].stat(key)
                if stat is None or not clients[0].delete(key, stat.generation):
                    kept = f"; {folder} stays"
                if len(won) != 1 or again or content != b"%d" % won[0]:
                    raise StoreError(
                        f"{address} does not keep create-only writes: of {_WRITERS} racing writers {len(won)} won, "
                        f"expected one and its bytes; found {content!r}, and a later write was "
                        f"{'taken' if again else 'refused'}"
                    )
        return f"{address} was written and read, and of {_WRITERS} racing writers one won, {_ROUNDS} times{kept}"

    return looked(
        "store",
        look,
        "Check the address and the credentials. A store must honour create-only writes (If-None-Match on S3, "
        "generation preconditions on Google Cloud Storage): without them two runs write over each other.",
    )


def mlflow_finding(uri: str) -> Finding:
    """Check that an MLflow server answers; without an address the check is not made."""
    import requests

    if not uri.startswith(("http://", "https://")):
        return unchecked(
            "MLflow", public_address(uri) or "no server is named", "Set mlflow-tracking-uri.", needed=False
        )
    advice = "Start the server, or name another; until then nobody sees the runs."
    try:
        require_server(uri)
        status = requests.get(f"{public_address(uri).rstrip('/')}/health", timeout=_TIMEOUT).status_code
    except GatehouseError as error:
        return failed("MLflow", " ".join(str(error).split())[:400], advice)
    except requests.RequestException as error:
        return failed("MLflow", f"{public_address(uri)}: {type(error).__name__}", advice)
    # A server that asks for credentials accepts the token of the pods, which this machine may not have.
    if status < 400 or status in (401, 403):
        return passed("MLflow", f"{public_address(uri)} answers with {status}")
    return failed("MLflow", f"{public_address(uri)} answers with {status}", "Expected an MLflow server there.")


def tracking_finding(store: ArtifactStore) -> Finding:
    """Check that MLflow answers with the credentials that the runs of this store use."""
    tracking = tracking_of(store)
    if tracking is None or tracking.embedded:
        return unchecked("MLflow", "no server is named here", needed=False)
    try:
        with tracking.client() as client:
            client.search_experiments(max_results=1)
    except Exception as error:  # MLflow and requests raise many types; with any of them runs cannot be shown.
        advice = "Check mlflow-tracking-uri in the config map, and mlflow-tracking-token in the secret."
        return failed("MLflow", error_text(error)[:400], advice)
    below = " below KFP's run of this task" if tracking.task else ""
    return passed("MLflow", f"{public_address(tracking.uri) or URI} lets runs be seen{below}")
