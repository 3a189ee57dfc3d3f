"""The MLflow of a store: where it is, what it shows already, and writes that change nothing when they are repeated.

MLflow only shows the content of the store. If it is deleted or fails, no result changes. Importing this module does not
import MLflow, which takes about two seconds: ask `is_shown` first.
"""

import fcntl
import importlib
import logging
import math
import os
import posixpath
import re
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gatehouse.errors import GatehouseError
from gatehouse.runtime.importing import without
from gatehouse.runtime.redaction import require_encoded
from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.run import events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.place import URI, WORKSPACE, KfpTask, Place, access_to, is_own, server_uri, task_here
from gatehouse.tracking.schema import ensure_schema

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


REFERENCE = "gatehouse.reference"
RUN = "gatehouse.run"
JOB = "gatehouse.job"
PARENT, RUN_NAME = "mlflow.parentRunId", "mlflow.runName"
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
_MOST_PARAMS, _MOST_METRICS = 100, 900
PAGE = 1000
_LONGEST_PARAM, _LONGEST_TAG, _LONGEST_NAME = 6000, 5000, 250

_loading = threading.Lock()
_CONNECT_SECONDS = 3.0
_WITHOUT_HOST = ("databricks", "databricks-uc", "uc", "file")
"""Schemes of MLflow that need no `//`; without a scheme it means a folder, which it no longer writes to."""

Point = tuple[str, float, int]


class ServerAwayError(GatehouseError):
    """The MLflow server accepts no connection; the next run tries to write again."""


@dataclass(frozen=True)
class Tracking(Place):
    """The MLflow where the runs and models of a store are shown.

    Its name is `embedded` for the database inside the store, else a digest of the URI and the workspace. If Kubeflow
    Pipelines created a run there for the present `task`, other runs are its children, and it is not ended here.
    """

    task: KfpTask | None = None

    @property
    def embedded(self) -> Path | None:
        """The folder of the embedded database, or None if a server is used."""
        return Path(self.store.address) / "mlflow" if self.name == "embedded" else None

    def is_shown(self, what: str) -> bool:
        """Whether MLflow shows `what` already. This needs one look-up in the store, and does not import MLflow."""
        if self.embedded and not (self.embedded / "mlflow.db").is_file():
            return False
        return super().is_shown(what)

    @contextmanager
    def client(self) -> "Iterator[MlflowClient]":
        """An MLflow client, for one process at a time on a local store, because MLflow has no create-only writes."""
        with ExitStack() as stack:
            if isinstance(self.store.objects, LocalObjects):
                folder = Path(self.store.address) / "mlflow"
                folder.mkdir(exist_ok=True)
                fcntl.flock(stack.enter_context(open(folder / "lock", "a")), fcntl.LOCK_EX)
            stack.enter_context(access_to(self.uri))
            yield quiet_client(self.uri)

    def experiment(self, client: "MlflowClient", name: str) -> str:
        """Id of the experiment of this name, created if missing; in a KFP task, the task's experiment."""
        if self.task:
            return self.task.experiment
        existing = client.get_experiment_by_name(name)
        if existing is not None:
            return str(existing.experiment_id)
        location = str(self.embedded / "artifacts") if self.embedded else None
        return str(client.create_experiment(name, artifact_location=location))


def tracking_of(store: ArtifactStore) -> Tracking | None:
    """The place where this store's runs are tracked, or None for nowhere.

    It is the server in `GATEHOUSE_MLFLOW_TRACKING_URI` or `MLFLOW_TRACKING_URI`, else a database in the store.
    """
    if uri := server_uri():
        workspace = "" if is_own(uri) else os.environ.get(WORKSPACE, "")
        name = sha256_bytes(f"{uri}#{workspace}".encode() if workspace else uri.encode())[:16]
        return Tracking(store, uri, name, task_here(uri, name))
    if isinstance(store.objects, LocalObjects):
        return Tracking(store, f"sqlite:///{store.address}/mlflow/mlflow.db", "embedded")
    return None


def every(search: Callable[..., Any], *arguments: Any) -> list[Any]:
    """All results of an MLflow search, page by page."""
    results, token = list[Any](), None
    while True:
        page = search(*arguments, max_results=PAGE, page_token=token)
        results += page
        if not (token := page.token):
            return results


def find_run(client: "MlflowClient", experiment: str, tag: str, value: str, *, newest: bool = False) -> "Run | None":
    """The first run of an experiment whose tag has this value, or the `newest`; or None."""
    order = [f"start_time {'DESC' if newest else 'ASC'}"]
    runs = client.search_runs([experiment], f"tags.`{tag}` = '{value}'", max_results=1, order_by=order)
    return runs[0] if runs else None


def find_anywhere(client: "MlflowClient", tag: str, value: str) -> "Run | None":
    """The newest run of all experiments whose tag has this value, or None."""
    experiments = [str(experiment.experiment_id) for experiment in every(client.search_experiments)]
    order = ["start_time DESC"]
    for first in range(0, len(experiments), PAGE):
        some = experiments[first : first + PAGE]
        if runs := client.search_runs(some, f"tags.`{tag}` = '{value}'", max_results=1, order_by=order):
            return runs[0]
    return None


def end_above(tracking: Tracking, client: "MlflowClient", run: str, status: str = "", at: int | None = None) -> None:
    """End the parent run, unless there is none (empty), or it is KFP's run, which KFP ends."""
    if run and not (tracking.task and tracking.task.run == run):
        client.set_terminated(run, status or None, at)


def ensure_run(
    client: "MlflowClient",
    experiment: str,
    tag: str,
    value: str,
    name: str,
    tags: Mapping[str, str],
    parent: str = "",
    started: float | None = None,
) -> "Run":
    """The first run whose `tag` is `value`; created like in `create_run` if it is missing."""
    run = find_run(client, experiment, tag, value)
    return run or create_run(client, experiment, {**tags, tag: value}, name, parent, started)


def create_run(
    client: "MlflowClient",
    experiment: str,
    tags: Mapping[str, str],
    name: str,
    parent: str = "",
    started: float | None = None,
) -> "Run":
    """A new run under the run `parent`; `started` is when it began, in seconds since 1970, by default now."""
    below = {PARENT: parent} if parent else {}
    began = None if started is None else int(started * 1000)
    return client.create_run(experiment, began, tags={**short(tags), **below}, run_name=name)


def pipeline_run(tracking: Tracking, client: "MlflowClient", experiment: str, run: str) -> str:
    """Id of the MLflow run for the pipeline run `run`, or of KFP's task run; empty outside of any run."""
    if tracking.task:
        return tracking.task.run
    if not run:
        return ""
    above = find_run(client, experiment, RUN, run)
    if above is None:
        started = min((float(event.body["at"]) for _, event in events(tracking.store, run)), default=None)
        above = create_run(client, experiment, {RUN: run}, run, started=started)
    return str(above.info.run_id)


def log(
    client: "MlflowClient",
    run: "Run",
    params: Mapping[str, Any] | None = None,
    points: list[Point] | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Log parameters, then metrics, then tags, in as few calls as MLflow's limits allow.

    Tags come last: if they exist, parameters and metrics are complete. Metrics get the start time of the run, so that
    logging them again adds nothing. Non-finite values are left out, and parameters are cut at MLflow's limit.
    """
    from mlflow.entities import Metric, Param, RunTag

    stamp, name = int(run.info.start_time), str(run.info.run_id)
    entries = [Param(key, str(_ordered(value))[:_LONGEST_PARAM]) for key, value in (params or {}).items()]
    for at in range(0, len(entries), _MOST_PARAMS):
        client.log_batch(name, params=entries[at : at + _MOST_PARAMS])
    metrics = [Metric(key, value, stamp, step) for key, value, step in points or () if math.isfinite(value)]
    for at in range(0, len(metrics), _MOST_METRICS):
        client.log_batch(name, metrics=metrics[at : at + _MOST_METRICS])
    if tags:
        client.log_batch(name, tags=[RunTag(key, value) for key, value in short(tags).items()])


def _ordered(value: Any) -> Any:
    """The value with sorted keys: MLflow refuses a parameter that is written again with a different text."""
    if isinstance(value, Mapping):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(item) for item in value] if isinstance(value, list) else value


def metric_name(name: str) -> str:
    """The metric's name in the form that MLflow accepts: a refused name would block all later metrics."""
    allowed = re.sub(r"[^\w.\- :/]", "_", name)[:_LONGEST_NAME] or "_"
    plain = allowed == posixpath.normpath(allowed) and not allowed.startswith(("/", "..")) and allowed != "."
    return allowed if plain else "_" + re.sub(r"[/.]", "_", allowed)[: _LONGEST_NAME - 1]


def is_number(value: Any) -> bool:
    """Whether MLflow keeps a value as a metric; a boolean is no number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def short(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags with values cut at MLflow's limit."""
    return {name: value[:_LONGEST_TAG] for name, value in tags.items()}


def quiet_client(uri: str) -> "MlflowClient":
    """A client that logs only warnings, sends no telemetry, and gives up on a server after a minute of silence.

    Raises ConfigurationError if MLflow has no place of such a form; ServerAwayError if the server accepts no
    connection; StoreError if a database cannot be migrated.
    """
    require_server(uri)
    client = load_mlflow()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ensure_schema(uri)
        return client(tracking_uri=uri, registry_uri=uri)


@cache
def load_mlflow() -> "type[MlflowClient]":
    """Import MLflow, once per process.

    If the main thread does it, no other thread may import meanwhile, as pandas and scipy seem to be missing.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    # MLflow shows data frames as data sets if it finds pandas. Nothing here passes data frames to it. Beside another
    # thread, the main one may need them.
    alone = threading.current_thread() is threading.main_thread()
    with _loading, warnings.catch_warnings(), without(*(("pandas", "scipy") if alone else ())):
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

        # Plug-ins for request headers are loaded now, without Feast's, which imports all of Feast and only adds a
        # header to Feast's own requests.
        from mlflow.utils import plugins

        entry_points = plugins.get_entry_points
        plugins.get_entry_points = lambda group: [
            point for point in entry_points(group) if point.module.partition(".")[0] != "feast"
        ]
        try:
            importlib.import_module("mlflow.tracking.request_header.registry")
        finally:
            plugins.get_entry_points = entry_points
    for chatty in ("mlflow", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return MlflowClient


def require_server(uri: str) -> None:
    """Check that MLflow's server accepts connections before MLflow is imported, because the import takes longer.

    A URI that is not a server's address, or a server behind a proxy, is left to MLflow. Raises ConfigurationError if
    MLflow has no place of such a form, or its password is not percent-encoded; ServerAwayError if it does not accept a
    connection within seconds.
    """
    from urllib.request import getproxies, proxy_bypass

    if uri.partition(":")[0] in _WITHOUT_HOST:
        return
    address = urlsplit(require_encoded(uri, f"{URI}, or what names MLflow"))
    host, scheme = address.hostname, address.scheme
    if scheme not in ("http", "https") or not host or (scheme in getproxies() and not proxy_bypass(host)):
        return
    port = address.port or (443 if scheme == "https" else 80)
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise ServerAwayError(
            f"MLflow at {host}:{port} refuses connections ({error}): expected an MLflow server there. Start it, or set "
            f"{URI} to another one."
        ) from None
