"""Places outside the store that show its content, and which MLflow server is one of them, with what access.

If Kubeflow Pipelines (KFP) has its MLflow integration on, its driver creates an MLflow run for the task of a pod, below
that of the pipeline run, and its launcher ends it. The pod gets the ids of both, the server, its workspace and the
credentials. Runs that this pod tracks are children of the task's run, which KFP alone ends.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from gatehouse.errors import ErasedArtifactError, GatehouseError, MissingArtifactError
from gatehouse.runtime.redaction import error_text
from gatehouse.store.run import Attempt
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

OWN_URI, OWN_TOKEN = "GATEHOUSE_MLFLOW_TRACKING_URI", "GATEHOUSE_MLFLOW_TRACKING_TOKEN"
"""Environment variables with the project's own server and token; KFP does not set them."""
URI, TOKEN, WORKSPACE = "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_WORKSPACE"
LATER = "GATEHOUSE_SHOWN_LATER"
"""Environment variable: one process shows the whole run when it has ended, so that no task waits for MLflow."""
RUN, _EXPERIMENT = "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID"
_ACCESS = (TOKEN, WORKSPACE, "MLFLOW_TRACKING_AUTH", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
_swapping = threading.RLock()


@dataclass(frozen=True)
class Place:
    """A place that shows the store's content. The store records what is shown under its `name`, without secrets."""

    store: ArtifactStore
    uri: str
    name: str

    def is_shown(self, what: str) -> bool:
        """Whether `what` is shown already. This needs one look-up in the store."""
        return self.store.objects.stat(f"tracking/{self.name}/{what}.json") is not None

    def mark_shown(self, what: str) -> None:
        """Record that `what` is shown. The URI is not stored, as it may contain a password."""
        self.store.record(f"tracking/{self.name}/{what}.json", {"server": self.name})


@dataclass(frozen=True)
class KfpTask:
    """The MLflow run of a KFP task: the name of the server (see `Place`), and the ids of experiment and run."""

    server: str
    experiment: str
    run: str

    def to_json(self) -> dict[str, str]:
        """As JSON, stored with what is to be shown later."""
        return asdict(self)


@dataclass
class Showing:
    """An attempt to show something, and whether it failed."""

    failed: bool = False


def is_shown_later() -> bool:
    """Whether another process shows what this task did when the run has ended."""
    return bool(os.environ.get(LATER))


@contextmanager
def warning_on_failure(
    store: ArtifactStore, label: str, title: str = "MLflow", noted: Callable[[], bool] = lambda: True
) -> Iterator[Showing]:
    """In this context an exception becomes a warning in the log and the run record (`label`), and fails no run.

    It counts as failed, so that it is tried again, unless an artifact is gone, which no later attempt will find.
    `noted` says whether the store holds that it is left to be shown; else no later run knows of it.
    """
    showing = Showing()
    try:
        yield showing
    except Exception as error:
        showing.failed = not isinstance(error, (MissingArtifactError, ErasedArtifactError))
        cause = error_text(error)[:500]
        again = "the next run tries again" if noted() else "and no later run tries again, as no note of it was written"
        message = f"{title} could not be written{f', {again}' if showing.failed else ''}: {cause}"
        logger.warning(message)
        with suppress(GatehouseError, OSError):  # For example a full disk.
            Attempt(store, label).note("warned", message=message)


def server_uri() -> str:
    """The server to use: the project's own, else that of MLflow's variable, which KFP may have set."""
    return (os.environ.get(OWN_URI, "") or os.environ.get(URI, "")).strip()


def is_own(uri: str) -> bool:
    """Whether this is the project's own server, to which MLflow's variables do not apply."""
    kfp = os.environ.get(URI, "").strip().rstrip("/")
    return uri == os.environ.get(OWN_URI, "").strip() and uri.rstrip("/") != kfp


def task_here(uri: str, server: str) -> KfpTask | None:
    """The run of this pod's task on the server with this URI and name; None if KFP has none there."""
    run, experiment = os.environ.get(RUN, ""), os.environ.get(_EXPERIMENT, "")
    return KfpTask(server, experiment, run) if run and experiment and not is_own(uri) else None


def kept_task(kept: Mapping[str, Any], server: str) -> KfpTask | None:
    """The run that `to_json` stored; None if there was none on this server."""
    task = KfpTask(**kept) if kept else None
    return task if task and task.server == server else None


@contextmanager
def access_to(uri: str) -> Iterator[None]:
    """Set MLflow's variables for this server, so that it does not get KFP's credentials for another server."""
    if not is_own(uri):
        yield
        return
    token = os.environ.get(OWN_TOKEN, "")
    with _swapping:
        hidden = {name: os.environ.pop(name) for name in _ACCESS if os.environ.get(URI) and name in os.environ}
        before = os.environ.get(TOKEN)
        if token:
            os.environ[TOKEN] = token
        try:
            yield
        finally:
            if token:
                del os.environ[TOKEN]
                hidden |= {TOKEN: before} if before is not None else {}
            os.environ.update(hidden)
