"""Requests to Kubeflow Pipelines. An object to be created is first looked for by its name, and never made twice."""

import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from kfp_server_api import (
    ExperimentServiceApi,
    PipelineServiceApi,
    PipelineUploadServiceApi,
    RecurringRunServiceApi,
    RunServiceApi,
)

from gatehouse.errors import ConfigurationError
from gatehouse.kfp_api.answers import Experiment, Pipeline, RecurringRun, Run, Server, Version
from gatehouse.kfp_api.connection import Connection, KfpError, KfpRefusedError, Patience
from gatehouse.kfp_api.specs import version_name
from gatehouse.runtime.variables import NAMESPACE

logger = logging.getLogger(__name__)

_Made = TypeVar("_Made")
LONGEST = 255
"""Most characters of a text of a run, a recurring run or an experiment in the server's database."""
_PAGE = 100
_MISSING = 404
_ACTIVE = ("", "PENDING", "RUNNING", "PAUSED")


class KfpApi:
    """One server, as one user, in one namespace. Every method raises `KfpRefusedError` and `KfpError`."""

    def __init__(self, connection: Connection, namespace: str = "") -> None:
        self._connection = connection
        self._experiments = ExperimentServiceApi(connection)
        self._pipelines = PipelineServiceApi(connection)
        self._recurring = RecurringRunServiceApi(connection)
        self._runs = RunServiceApi(connection)
        self.namespace = namespace

    @classmethod
    def connect(cls, endpoint: str = "", namespace: str = "", patience: Patience | None = None) -> "KfpApi":
        """Prepare requests; nothing is sent yet. Empty arguments come from the environment.

        Raises ConfigurationError if no address is given.
        """
        connection = Connection(endpoint, patience or Patience())
        return cls(connection, namespace or os.environ.get(NAMESPACE, ""))

    @property
    def endpoint(self) -> str:
        """Address of the server."""
        return self._connection.endpoint

    def server(self) -> Server:
        """Release and mode of the server.

        Raises ConfigurationError if it serves several users and no namespace is set, or one user and one is set: such a
        server refuses every list of a namespace.
        """
        health = self._connection.health()
        version = str(health.get("tag_name", ""))
        server = Server(version if version[:1].isdigit() else "", bool(health.get("multi_user", False)))
        if server.multi_user and not self.namespace:
            raise ConfigurationError(f"{self.endpoint} serves several users: set {NAMESPACE} to your namespace.")
        if self.namespace and not server.multi_user:
            raise ConfigurationError(
                f"{self.endpoint} serves one user, and refuses lists by namespace: leave `namespace` of the profile "
                f"and {NAMESPACE} empty, found {self.namespace}."
            )
        return server

    def find_experiment(self, name: str) -> Experiment | None:
        """The experiment of a name, or None."""
        listed = partial(self._experiments.experiment_service_list_experiments, namespace=self.namespace)
        for experiment in self._listed(listed, "experiments", _equals(display_name=name)):
            return Experiment(experiment.experiment_id, experiment.display_name)
        return None

    def experiment(self, name: str) -> Experiment:
        """The experiment of a name, which is created if there is none."""

        def create() -> Experiment:
            body = _without_empty(display_name=name, namespace=self.namespace)
            created = self._experiments.experiment_service_create_experiment(body)
            return Experiment(created.experiment_id, created.display_name)

        return self._found_or_created(lambda: self.find_experiment(name), create, "POST experiments", repeatable=True)

    def find_pipeline(self, name: str) -> Pipeline | None:
        """The pipeline of a name in this namespace, or None."""
        by_name = partial(self._pipelines.pipeline_service_get_pipeline_by_name, name, namespace=self.namespace)
        try:
            return _pipeline(self._connection.retrying(by_name, f"GET pipelines/names/{name}"))
        except KfpRefusedError as error:
            if error.status != _MISSING:
                raise
            return None

    def pipeline(self, name: str, description: str = "", tags: Mapping[str, str] | None = None) -> Pipeline:
        """The pipeline of a name, which is created, without a version, if there is none."""
        names = {"display_name": name, "name": name}
        body = _without_empty(**names, description=description, namespace=self.namespace, tags=dict(tags or {}))

        def create() -> Pipeline:
            return _pipeline(self._pipelines.pipeline_service_create_pipeline(body))

        return self._found_or_created(lambda: self.find_pipeline(name), create, "POST pipelines", repeatable=True)

    def find_version(self, pipeline: str, name: str) -> Version | None:
        """The version of a name of the pipeline with an id, or None."""
        return next(self._versions(pipeline, _equals(name=name)), None)

    def version(self, pipeline: str, version: str) -> Version:
        """The version of an id, of the pipeline with an id."""
        get = partial(self._pipelines.pipeline_service_get_pipeline_version, pipeline, version)
        return Version.read(self._connection.retrying(get, f"GET pipelines/{pipeline}/versions/{version}"))

    def versions(self, pipeline: str) -> Iterator[Version]:
        """The versions of the pipeline with an id, the newest first."""
        return self._versions(pipeline, sort_by="created_at desc")

    def _versions(self, pipeline: str, predicates: Any = (), **query: str) -> Iterator[Version]:
        listed = partial(self._pipelines.pipeline_service_list_pipeline_versions, pipeline)
        return map(Version.read, self._listed(listed, "pipeline_versions", predicates, **query))

    def upload_version(
        self,
        pipeline: str,
        text: str,
        description: str = "",
        tags: Mapping[str, str] | None = None,
        display_name: str = "",
    ) -> Version:
        """The version with the content of a compiled pipeline, which is uploaded if it is not there yet.

        The digest of the text is the version's name, of which the server allows one; people see `display_name`.
        """
        name = version_name(text)
        query = {
            "name": name,
            "display_name": display_name or name,
            "pipelineid": pipeline,
            "description": description,
            "tags": json.dumps(dict(tags or {}), sort_keys=True),
        }

        def upload() -> Version:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / f"{name}.yaml"
                file.write_text(text)
                uploads = PipelineUploadServiceApi(self._connection)
                return Version.read(uploads.upload_pipeline_version(str(file), **_without_empty(**query)))

        return self._found_or_created(
            lambda: self.find_version(pipeline, name), upload, "POST pipelines/upload_version", repeatable=True
        )

    def runs(
        self,
        experiment: str = "",
        since: datetime | None = None,
        name: str = "",
        recurring_run: str = "",
        containing: str = "",
    ) -> Iterator[Run]:
        """Runs of an experiment, or of all, the newest first; `containing` is a part of their names."""
        scope = {"namespace": self.namespace}
        if experiment:
            if (existing := self.find_experiment(experiment)) is None:
                return
            scope = {"experiment_id": existing.id}
        predicates = _equals(display_name=name, recurring_run_id=recurring_run)
        if containing:
            predicates.append({"operation": "IS_SUBSTRING", "key": "display_name", "string_value": containing})
        listed = self._listed(self._runs.run_service_list_runs, "runs", predicates, sort_by="created_at desc", **scope)
        for run in map(Run.read, listed):
            if since is not None and run.created_at < since:
                return
            if name in ("", run.name):  # MySQL ignores the case of letters.
                yield run

    def run(self, run: str) -> Run:
        """The run of an id."""
        get = partial(self._runs.run_service_get_run, run)
        return Run.read(self._connection.retrying(get, f"GET runs/{run}"))

    def create_run(
        self,
        name: str,
        pipeline: str,
        version: str,
        parameters: Mapping[str, Any],
        experiment: str,
        *,
        description: str = "",
        service_account: str = "",
        plugins_input: Mapping[str, Any] | None = None,
    ) -> Run:
        """The run of a name, which is created if there is none: the name should contain the digest of what it runs.

        The experiment, a name, is created if there is none. `plugins_input` is for plugins of the server, as
        `{"mlflow": {"experiment_name": "…"}}`.
        """

        def look() -> Run | None:
            return next(iter(self.runs(name=name)), None)

        if existing := look():
            return existing
        body = _without_empty(
            display_name=name,
            description=description[:LONGEST],
            experiment_id=self.experiment(experiment).id,
            pipeline_version_reference={"pipeline_id": pipeline, "pipeline_version_id": version},
            runtime_config={"parameters": dict(parameters)},
            service_account=service_account,
            plugins_input=dict(plugins_input or {}),
        )
        return self._connection.creating(lambda: Run.read(self._runs.run_service_create_run(body)), look, "POST runs")

    def wait(self, run: str, timeout: float = float("inf"), outage: float = 900.0) -> Run:
        """The run of an id when it has ended, in whatever way; also ends if the run is deleted.

        The server may be away for `outage` seconds at a time, and tokens may be renewed. Raises KfpError if it has not
        ended in time.
        """
        began = answered = time.monotonic()
        state = None
        while True:
            try:
                current = self.run(run)
                answered = time.monotonic()
                if current.state != state:
                    logger.info("The run %s is %s.", current.name, current.state or "not started")
                    state = current.state
                if current.ended:
                    return current
            except KfpRefusedError:
                raise
            except KfpError:
                if time.monotonic() - answered > outage:
                    raise
            left = timeout - (time.monotonic() - began)
            if left <= 0:
                raise KfpError(
                    f"The run {run} has not ended within {timeout:g} s; it was {state or 'not started'} last."
                )
            time.sleep(min(self._connection.patience.poll, left))

    def terminate(self, run: str) -> None:
        """Cancel the run of an id; nothing if it has ended or is about to."""

        def stop() -> None:
            if self.run(run).state in _ACTIVE:
                self._runs.run_service_terminate_run(run)

        self._connection.retrying(stop, f"POST runs/{run}:terminate")

    def recurring_runs(self, prefix: str = "", experiment: str = "") -> Iterator[RecurringRun]:
        """Recurring runs whose name begins with `prefix`, of the experiment with an id or of all, the newest first."""
        scope = {"experiment_id": experiment} if experiment else {"namespace": self.namespace}
        listed = self._recurring.recurring_run_service_list_recurring_runs
        for answer in self._listed(listed, "recurring_runs", sort_by="created_at desc", **scope):
            if (recurring := RecurringRun.read(answer)).name.startswith(prefix):
                yield recurring

    def create_recurring_run(self, body: Mapping[str, Any]) -> RecurringRun:
        """The recurring run of the `display_name` in a request body, which is created if there is none."""

        def look() -> RecurringRun | None:
            candidates = self.recurring_runs(body["display_name"], body["experiment_id"])
            return next((recurring for recurring in candidates if recurring.name == body["display_name"]), None)

        def create() -> RecurringRun:
            answer = self._recurring.recurring_run_service_create_recurring_run(_without_empty(**body))
            return RecurringRun.read(answer)

        return self._found_or_created(look, create, "POST recurringruns")

    def enable(self, recurring_run: str, enabled: bool = True) -> None:
        """Let a recurring run start runs, or not."""
        word = "enable" if enabled else "disable"
        method = getattr(self._recurring, f"recurring_run_service_{word}_recurring_run")
        self._connection.retrying(partial(method, recurring_run), f"POST recurringruns/{recurring_run}:{word}")

    def delete_recurring_run(self, recurring_run: str) -> None:
        """Delete a recurring run; nothing if it is gone. Its runs stay, and active ones go on."""
        delete = partial(
            self._recurring.recurring_run_service_delete_recurring_run, recurring_run, propagation_policy="ORPHAN"
        )
        try:
            self._connection.retrying(delete, f"DELETE recurringruns/{recurring_run}")
        except KfpRefusedError as error:
            if error.status != _MISSING:
                raise

    def _found_or_created(
        self, look: Callable[[], _Made | None], create: Callable[[], _Made], what: str, repeatable: bool = False
    ) -> _Made:
        return look() or self._connection.creating(create, look, what, repeatable)

    def _listed(self, method: Callable[..., Any], field: str, predicates: Any = (), **query: Any) -> Iterator[Any]:
        """Every item of a list, page after page. The server decodes a filter twice."""
        if predicates:
            query["filter"] = quote(json.dumps({"predicates": predicates}))
        query = _without_empty(**query, page_size=_PAGE)
        while True:
            page = self._connection.retrying(partial(method, **query), f"GET {field}")
            yield from getattr(page, field) or ()
            if not page.next_page_token:
                return
            query["page_token"] = page.next_page_token


def _pipeline(answer: Any) -> Pipeline:
    return Pipeline(answer.pipeline_id, answer.name or answer.display_name, answer.tags or {})


def _equals(**fields: str) -> list[dict[str, str]]:
    return [{"operation": "EQUALS", "key": key, "string_value": value} for key, value in fields.items() if value]


def _without_empty(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in ("", {}, None)}
