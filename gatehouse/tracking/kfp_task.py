"""The MLflow run that Kubeflow Pipelines (KFP) creates for the task of this pod, if KFP's MLflow integration is on.

KFP's driver creates a run for the task, below that of the pipeline run, and its launcher ends it. A pod gets the ids of
both, the server, its workspace and the credentials. Runs that this pod tracks are children of the task's run, which KFP
alone ends.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

OWN_URI, OWN_TOKEN = "GATEHOUSE_MLFLOW_TRACKING_URI", "GATEHOUSE_MLFLOW_TRACKING_TOKEN"
"""Environment variable with the project's server; KFP does not set it."""
URI, TOKEN, WORKSPACE = "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_WORKSPACE"
_RUN, _EXPERIMENT = "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID"
_ACCESS = (TOKEN, WORKSPACE, "MLFLOW_TRACKING_AUTH", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
_swapping = threading.RLock()


@dataclass(frozen=True)
class KfpTask:
    """A task's run and its server.

    Attributes:
        server: Name of the server, as in `Tracking`.
        experiment: MLflow's id of the experiment.
        run: MLflow's id of the run.
    """

    server: str
    experiment: str
    run: str

    def to_json(self) -> dict[str, str]:
        """As JSON, stored with what is to be shown later."""
        return asdict(self)


def server_uri() -> str:
    """The server to use: the project's own, else that of MLflow's variable, which KFP may have set."""
    return (os.environ.get(OWN_URI, "") or os.environ.get(URI, "")).strip()


def is_own(uri: str) -> bool:
    """Whether this is the project's own server, to which MLflow's variables do not apply."""
    return uri == os.environ.get(OWN_URI, "").strip() and _plain(uri) != _plain(os.environ.get(URI, ""))


def task_here(uri: str, server: str) -> KfpTask | None:
    """The run of this pod's task on the server `uri`; None if KFP has none there.

    Args:
        uri: The server in use.
        server: Its name.
    """
    run, experiment = os.environ.get(_RUN, ""), os.environ.get(_EXPERIMENT, "")
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


def _plain(uri: str) -> str:
    return uri.strip().rstrip("/")
