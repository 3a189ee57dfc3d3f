"""What can be asked of Kubeflow Pipelines. What is created is looked for by its name first, and never made twice."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

from gatehouse.errors import ConfigurationError
from gatehouse.kfp_api.answers import Answer, Experiment, Pipeline, RecurringRun, Run, Server, Version
from gatehouse.kfp_api.connection import NAMESPACE, Connection, KfpError, KfpRefusedError, Patience
from gatehouse.kfp_api.specs import version_name

logger = logging.getLogger(__name__)

_Made = TypeVar("_Made")
LONGEST = 255
"""Characters of a text that the server's database keeps of a run, a recurring run and an experiment."""
_PAGE = 100
_MISSING = 404
_ACTIVE = ("", "PENDING", "RUNNING", "PAUSED")


class KfpApi:
    """One server, as one user, in one namespace. Every method raises `KfpRefusedError` and `KfpError`."""

    def __init__(self, connection: Connection, namespace: str = "") -> None:
        self._connection = connection
        self.namespace = namespace

    @classmethod
    def connect(
        cls,
        endpoint: str = "",
        namespace: str = "",
        token: str = "",
        token_file: str = "",
        patience: Patience | None = None,
    ) -> "KfpApi":
        """Prepare to ask; nothing is sent yet. What is empty comes from the environment.

        Args:
            endpoint: Address of the API, else GATEHOUSE_KFP_ENDPOINT.
            namespace: Of the user, where the server serves several; else GATEHOUSE_KFP_NAMESPACE.
            token: Bearer token, else GATEHOUSE_KFP_TOKEN.
            token_file: File with the token, which is read for each request; else GATEHOUSE_KFP_TOKEN_FILE, else the
                token that Kubeflow mounts into pods.
            patience: How long to wait.

        Raises:
            ConfigurationError: if no address is given; the message says what to set.
        """
        import os

        connection = Connection(endpoint, token, token_file, patience or Patience())
        return cls(connection, namespace or os.environ.get(NAMESPACE, ""))

    @property
    def endpoint(self) -> str:
        """Address of the server."""
        return self._connection.endpoint

    def server(self) -> Server:
        """What the server says of itself.

        Raises:
            ConfigurationError: if it serves several users, and no namespace is set.
        """
        server = Server.read(self._connection.get("healthz"))
        if server.multi_user and not self.namespace:
            raise ConfigurationError(f"{self.endpoint} serves several users: set {NAMESPACE} to your namespace.")
        return server

    def find_experiment(self, name: str) -> Experiment | None:
        """The experiment of a name, or None."""
        found = self._listed("experiments", "experiments", _equals(display_name=name), namespace=self.namespace)
        return next(map(Experiment.read, found), None)

    def experiment(self, name: str) -> Experiment:
        """The experiment of a name, which is created where there is none."""
        return self.find_experiment(name) or self._created(
            "experiments",
            {"display_name": name, "namespace": self.namespace},
            Experiment.read,
            lambda: self.find_experiment(name),
            repeatable=True,
        )

    def find_pipeline(self, name: str) -> Pipeline | None:
        """The pipeline of a name in this namespace, or None."""
        try:
            path = f"pipelines/names/{quote(name, safe='')}"
            return Pipeline.read(self._connection.get(path, namespace=self.namespace))
        except KfpRefusedError as error:
            if error.status != _MISSING:
                raise
            return None

    def pipeline(self, name: str, description: str = "", tags: Mapping[str, str] | None = None) -> Pipeline:
        """The pipeline of a name, which is created, without a version, where there is none.

        A server of an older release, which refuses tags and names apart from the displayed one, is asked without.
        """
        body = {"display_name": name, "description": description, "namespace": self.namespace}

        def create(**newer: Any) -> Pipeline:
            return self._created(
                "pipelines", body | newer, Pipeline.read, lambda: self.find_pipeline(name), repeatable=True
            )

        if found := self.find_pipeline(name):
            return found
        try:
            return create(name=name, tags=dict(tags or {}))
        except KfpRefusedError as error:
            if "unknown field" not in str(error):
                raise
            return create()

    def find_version(self, pipeline: str, name: str) -> Version | None:
        """The version of a name of the pipeline with an id, or None. Other pipelines may have one of the same name."""
        found = self._listed(f"pipelines/{pipeline}/versions", "pipeline_versions", _equals(name=name))
        return next(map(Version.read, found), None)

    def version(self, pipeline: str, version: str) -> Version:
        """The version of an id, of the pipeline with an id."""
        return Version.read(self._connection.get(f"pipelines/{pipeline}/versions/{version}"))

    def versions(self, pipeline: str) -> Iterator[Version]:
        """The versions of the pipeline with an id, the newest first."""
        found = self._listed(f"pipelines/{pipeline}/versions", "pipeline_versions", sort_by="created_at desc")
        return map(Version.read, found)

    def upload_version(
        self,
        pipeline: str,
        text: str,
        description: str = "",
        tags: Mapping[str, str] | None = None,
        display_name: str = "",
    ) -> Version:
        """The version that a compiled pipeline is, by its content: it is uploaded where it is not there yet.

        Args:
            pipeline: Id of its pipeline.
            text: The compiled YAML. Its digest is the version's name, of which the server allows one.
            description: For people.
            tags: For people and for lists.
            display_name: What people see of a version that is new; empty for its name. A server before 2.14 shows the
                name.
        """
        name = version_name(text)
        query = {
            "name": name,
            "display_name": display_name or name,
            "pipelineid": pipeline,
            "description": description,
            "tags": json.dumps(dict(tags or {}), sort_keys=True),
        }
        path, file = "pipelines/upload_version", (f"{name}.yaml", text.encode())

        def upload() -> Version:
            return Version.read(self._connection.send("POST", path, query, file=file))

        return self.find_version(pipeline, name) or self._connection.creating(
            upload, lambda: self.find_version(pipeline, name), f"POST {path}", repeatable=True
        )

    def runs(
        self,
        experiment: str = "",
        since: datetime | None = None,
        name: str = "",
        recurring_run: str = "",
        containing: str = "",
    ) -> Iterator[Run]:
        """Runs, the newest first.

        Args:
            experiment: Name of the experiment; empty for those of all. A name that is not there has no runs.
            since: Created at that time or later.
            name: Of exactly this name; empty for every.
            recurring_run: Id of the recurring run that started them; empty for every.
            containing: Part of the name; empty for every.
        """
        if experiment:
            if (found := self.find_experiment(experiment)) is None:
                return
            scope = {"experiment_id": found.id}
        else:
            scope = {"namespace": self.namespace}
        predicates = _equals(display_name=name, recurring_run_id=recurring_run)
        if containing:
            predicates.append({"operation": "IS_SUBSTRING", "key": "display_name", "string_value": containing})
        for run in map(Run.read, self._listed("runs", "runs", predicates, sort_by="created_at desc", **scope)):
            if since is not None and run.created_at < since:
                return
            if name in ("", run.name):  # MySQL takes upper and lower case for the same.
                yield run

    def find_runs(self, name: str) -> list[Run]:
        """All runs of a name, the newest first."""
        return list(self.runs(name=name))

    def run(self, run: str) -> Run:
        """The run of an id."""
        return Run.read(self._connection.get(f"runs/{run}"))

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
        """The run of a name, which is created where there is none: the name says what the run is for.

        Args:
            name: Of the run. The digest of what it runs, or of why, belongs into it.
            pipeline: Id of the pipeline.
            version: Id of its version.
            parameters: Values of its parameters; others keep their defaults.
            experiment: Name of the experiment, which is created where there is none.
            description: For people; cut where KFP's database has no room.
            service_account: Of the pods; empty for the server's default.
            plugins_input: For plugins of the server, as `{"mlflow": {"experiment_name": "…"}}`.
        """
        if found := self.find_runs(name):
            return found[0]
        body = _without_empty(
            display_name=name,
            description=description[:LONGEST],
            experiment_id=self.experiment(experiment).id,
            pipeline_version_reference={"pipeline_id": pipeline, "pipeline_version_id": version},
            runtime_config={"parameters": dict(parameters)},
            service_account=service_account,
            plugins_input=dict(plugins_input or {}),
        )
        return self._created("runs", body, Run.read, lambda: next(self.runs(name=name), None))

    def wait(self, run: str, timeout: float = float("inf"), outage: float = 900.0) -> Run:
        """The run of an id when it has ended, in whatever way.

        A run that is cancelled, skipped, failed or retried ends; so does the wait where the run is deleted. The server
        may be away meanwhile, and tokens may be renewed.

        Args:
            run: Id of the run.
            timeout: For so many seconds at most.
            outage: How long the server may be away at a time, in seconds.

        Raises:
            KfpError: if it has not ended in time.
        """
        began = answered = time.monotonic()
        state = None
        while True:
            try:
                found = self.run(run)
                answered = time.monotonic()
                if found.state != state:
                    logger.info("The run %s is %s.", found.name, found.state or "not started")
                    state = found.state
                if found.ended:
                    return found
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
        """Cancel the run of an id; nothing where it has ended or is about to."""

        def stop() -> None:
            if self.run(run).state in _ACTIVE:
                self._connection.send("POST", f"runs/{run}:terminate")

        self._connection.retrying(stop, f"POST runs/{run}:terminate")

    def recurring_runs(self, prefix: str = "", experiment: str = "") -> Iterator[RecurringRun]:
        """Recurring runs whose name begins with `prefix`, of the experiment with an id or of all, the newest first."""
        scope = {"experiment_id": experiment} if experiment else {"namespace": self.namespace}
        for each in self._listed("recurringruns", "recurringRuns", sort_by="created_at desc", **scope):
            if (found := RecurringRun.read(each)).name.startswith(prefix):
                yield found

    def create_recurring_run(self, body: Mapping[str, Any]) -> RecurringRun:
        """The recurring run of a name, which is created where there is none.

        Args:
            body: What the API takes, with `display_name`, `experiment_id` and `pipeline_version_reference`.
        """

        def look() -> RecurringRun | None:
            same = self.recurring_runs(body["display_name"], body["experiment_id"])
            return next((each for each in same if each.name == body["display_name"]), None)

        return look() or self._created("recurringruns", body, RecurringRun.read, look)

    def enable(self, recurring_run: str, enabled: bool = True) -> None:
        """Let a recurring run start runs, or not."""
        path = f"recurringruns/{recurring_run}:{'enable' if enabled else 'disable'}"
        self._connection.retrying(lambda: self._connection.send("POST", path), f"POST {path}")

    def delete_recurring_run(self, recurring_run: str) -> None:
        """Delete a recurring run; nothing where it is gone. Its runs stay, and those under way go on."""
        path, query = f"recurringruns/{recurring_run}", {"propagation_policy": "ORPHAN"}
        try:
            self._connection.retrying(lambda: self._connection.send("DELETE", path, query), f"DELETE {path}")
        except KfpRefusedError as error:
            if error.status != _MISSING:
                raise

    def _created(
        self,
        path: str,
        body: Mapping[str, Any],
        read: Callable[[Answer], _Made],
        look: Callable[[], _Made | None],
        repeatable: bool = False,
    ) -> _Made:
        def create() -> _Made:
            return read(self._connection.send("POST", path, body=_without_empty(**body)))

        return self._connection.creating(create, look, f"POST {path}", repeatable)

    def _listed(self, path: str, field: str, predicates: Any = (), **query: str) -> Iterator[Answer]:
        """Every item of a list, page after page. The server decodes a filter twice."""
        chosen = quote(json.dumps({"predicates": predicates})) if predicates else ""
        token = ""
        while True:
            page = self._connection.get(path, filter=chosen, page_size=_PAGE, page_token=token, **query)
            yield from page.get(field, [])
            token = page.get("next_page_token", "")
            if not token:
                return


def _equals(**fields: str) -> list[dict[str, str]]:
    return [{"operation": "EQUALS", "key": key, "string_value": value} for key, value in fields.items() if value]


def _without_empty(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in ("", {}, None)}
