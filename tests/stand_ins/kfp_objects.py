"""What Kubeflow Pipelines keeps, and what it does with a request: a stand-in for its API server 2.17.

Requests come in here with their JSON and their query; answers go out as the server's models say.
`tests/stand_ins/kfp_recorded.jsonl` holds what a real server answered, and `tests/kfp_api/test_recorded.py` compares.
What is not recorded follows the server's source (`backend/src/apiserver`: `server/`, `resource/resource_manager.go`,
`list/`, `filter/`, `validation/`, `template/v2_template.go`). Nothing is compiled to Argo, and no pod runs: tests move
runs on with `set_state` and `begin_task`, and let schedules fall due with `fire`.
"""

import itertools
import json
import re
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import yaml

from gatehouse.configuration.cron import require_cron
from gatehouse.errors import ConfigurationError
from gatehouse.kfp_api.specs import check_parameters, parameters_of
from tests.stand_ins.kfp_clock import due, six_fields, written
from tests.stand_ins.kfp_lists import (
    ABORTED,
    DENIED,
    EXISTS,
    INTERNAL,
    INVALID,
    NOT_FOUND,
    UNAUTHENTICATED,
    Body,
    Refusal,
    page,
)

TERMINAL = ("SUCCEEDED", "SKIPPED", "FAILED", "CANCELED")
_EPOCH = "1970-01-01T00:00:00Z"
_MOST_TAGS, _LONGEST_TAG, _LONGEST_NAME, _LONGEST_VERSION = 20, 63, 128, 127


@dataclass
class Objects:
    """The state of the server.

    Attributes:
        multi_user: Whether it serves several users, each in namespaces.
        rights: In multi-user mode, the namespaces of each user.
        pod_namespace: Where the server itself runs.
        plugins: Whether plug-ins are registered; releases after 2.17 then store every schedule without its workflow.
        clock: What time it is, in seconds; `now` moves on by one with each object that is created.
    """

    multi_user: bool = False
    rights: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pod_namespace: str = "kubeflow"
    plugins: bool = False
    clock: float = 1_790_000_000.0
    experiments: dict[str, Body] = field(default_factory=dict)
    pipelines: dict[str, Body] = field(default_factory=dict)
    pipeline_versions: dict[str, Body] = field(default_factory=dict)
    runs: dict[str, Body] = field(default_factory=dict)
    recurring_runs: dict[str, Body] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        if not self.multi_user:
            about = "All runs created without specifying an experiment will be grouped here."
            self.create_experiment("", {"display_name": "Default", "description": about})

    # Experiments

    def create_experiment(self, user: str, body: Body) -> Body:
        """POST /experiments."""
        namespace = self._allowed(user, body.get("namespace", ""), "experiment")
        name = body.get("display_name", "")
        if not name:
            raise Refusal(INTERNAL, "Internal Server Error", "Experiment must have a non-empty name")
        if len(name) > _LONGEST_NAME:
            raise Refusal(INVALID, f"Experiment.Name length cannot exceed {_LONGEST_NAME}")
        if any(
            (each["display_name"], each.get("namespace", "")) == (name, namespace) for each in self.experiments.values()
        ):
            raise Refusal(
                EXISTS, f"Failed to create a new experiment. The name {name} already exists. Please specify a new name"
            )
        made = {
            "experiment_id": self._id(),
            "display_name": name,
            "description": body.get("description", ""),
            "namespace": namespace,
            "created_at": self._now(),
            "last_run_created_at": _EPOCH,
            "storage_state": "AVAILABLE",
        }
        return self._kept(self.experiments, made, "experiment_id")

    def experiment(self, user: str, experiment: str) -> Body:
        """GET /experiments/{experiment_id}."""
        if experiment not in self.experiments:
            raise Refusal(NOT_FOUND, f"Experiment {experiment} not found")
        self._allowed(user, self.experiments[experiment]["namespace"], "experiment")
        return self.experiments[experiment]

    def list_experiments(self, user: str, query: Mapping[str, str]) -> Body:
        """GET /experiments."""
        namespace = self._allowed(user, query.get("namespace", ""), "experiment")
        return page(
            "experiments", [each for each in self.experiments.values() if each["namespace"] == namespace], query
        )

    # Pipelines

    def create_pipeline(self, user: str, body: Body) -> Body:
        """POST /pipelines: a pipeline without a version."""
        namespace = self._allowed(user, body.get("namespace", ""), "pipeline")
        name = body.get("name") or body.get("display_name", "")
        if not name:
            raise Refusal(INVALID, "name is required")
        if len(name) > _LONGEST_NAME:
            raise Refusal(INTERNAL, "Internal Server Error", f"Pipeline.Name length cannot exceed {_LONGEST_NAME}")
        if any((each["name"], each["namespace"]) == (name, namespace) for each in self.pipelines.values()):
            raise Refusal(
                EXISTS, f"Failed to create a new pipeline. The name {name} already exist. Please specify a new name"
            )
        made = {
            "pipeline_id": self._id(),
            "name": name,
            "display_name": body.get("display_name") or name,
            "description": body.get("description", ""),
            "namespace": namespace,
            "created_at": self._now(),
            "tags": self._tags(body.get("tags", {})),
        }
        return self._kept(self.pipelines, made, "pipeline_id")

    def pipeline_by_name(self, user: str, name: str, query: Mapping[str, str]) -> Body:
        """GET /pipelines/names/{name}."""
        namespace = self._allowed(user, query.get("namespace", ""), "pipeline")
        for each in self.pipelines.values():
            if (each["name"], each["namespace"]) == (name, namespace):
                return each
        raise Refusal(NOT_FOUND, f"Namespace/Pipeline {namespace}/{name} not found")

    def pipeline(self, user: str, pipeline: str) -> Body:
        """GET /pipelines/{pipeline_id}."""
        if pipeline not in self.pipelines:
            raise Refusal(NOT_FOUND, f"Pipeline {pipeline} not found")
        self._allowed(user, self.pipelines[pipeline]["namespace"], "pipeline")
        return self.pipelines[pipeline]

    def delete_pipeline(self, user: str, pipeline: str) -> Body:
        """DELETE /pipelines/{pipeline_id}: refused while it has versions."""
        self.pipeline(user, pipeline)
        versions = (key for key, each in self.pipeline_versions.items() if each["pipeline_id"] == pipeline)
        if version := next(versions, ""):
            has = f"as it has existing pipeline versions (e.g. {version}). Set cascade=true to delete all versions"
            raise Refusal(INVALID, f"Failed to delete pipeline with id {pipeline} {has}")
        del self.pipelines[pipeline]
        return {}

    def list_pipelines(self, user: str, query: Mapping[str, str]) -> Body:
        """GET /pipelines."""
        namespace = self._allowed(user, query.get("namespace", ""), "pipeline")
        return page("pipelines", [each for each in self.pipelines.values() if each["namespace"] == namespace], query)

    def upload_version(self, user: str, query: Mapping[str, str], file: tuple[str, bytes]) -> Body:
        """POST /pipelines/upload_version, which has errors of its own: every refusal of rights or ids is a 400."""
        try:
            parent = self.pipeline(user, query.get("pipelineid", ""))
        except Refusal as refusal:
            raise Refusal(INVALID, "Failed to create a pipeline version") from refusal
        name = query.get("name") or query.get("display_name") or file[0]
        if len(name) > _LONGEST_VERSION:
            raise Refusal(INVALID, f"PipelineVersion.Name length cannot exceed {_LONGEST_VERSION}")
        spec, *platform = yaml.load_all(file[1], Loader=yaml.CSafeLoader)
        if not isinstance(spec, dict) or spec.get("schemaVersion") != "2.1.0" or "root" not in spec:
            raise Refusal(INVALID, "unknown template format")
        tags = self._tags(json.loads(query.get("tags") or "{}"))
        if any(
            (each["pipeline_id"], each["name"]) == (parent["pipeline_id"], name)
            for each in self.pipeline_versions.values()
        ):
            raise Refusal(EXISTS, "Failed to create a pipeline version")
        made = {
            "pipeline_id": parent["pipeline_id"],
            "pipeline_version_id": self._id(),
            "name": name,
            "display_name": query.get("display_name") or name,
            "description": query.get("description", ""),
            "created_at": self._now(),
            "tags": tags,
            "pipeline_spec": {"pipeline_spec": spec, "platform_spec": platform[0]} if platform else spec,
        }
        return self._kept(self.pipeline_versions, made, "pipeline_version_id")

    def version(self, user: str, pipeline: str, version: str) -> Body:
        """GET /pipelines/{pipeline_id}/versions/{pipeline_version_id}."""
        if version not in self.pipeline_versions:
            raise Refusal(NOT_FOUND, f"PipelineVersion {version} not found")
        self.pipeline(user, self.pipeline_versions[version]["pipeline_id"])
        return self.pipeline_versions[version]

    def list_versions(self, user: str, pipeline: str, query: Mapping[str, str]) -> Body:
        """GET /pipelines/{pipeline_id}/versions."""
        self.pipeline(user, pipeline)
        versions = [each for each in self.pipeline_versions.values() if each["pipeline_id"] == pipeline]
        return page("pipeline_versions", versions, query)

    # Runs

    def create_run(self, user: str, body: Body) -> Body:
        """POST /runs."""
        if not body.get("display_name"):
            raise Refusal(INTERNAL, "Internal Server Error", "Run name cannot be empty")
        self._fits(body)
        if "plugins_output" in body:
            raise Refusal(
                ABORTED, "plugins_output is server-owned and populated exclusively via plugin lifecycle hooks"
            )
        experiment, _ = self._experiment_of(user, body.get("experiment_id", ""), "")
        source = self._source(body)
        now = self._now()
        self.experiments[experiment]["last_run_created_at"] = now
        made = {
            "run_id": self._id(),
            "experiment_id": experiment,
            "recurring_run_id": body.get("recurring_run_id", ""),
            "display_name": body["display_name"],
            "description": body.get("description", ""),
            "service_account": body.get("service_account") or "pipeline-runner",
            "runtime_config": body.get("runtime_config", {}),
            "storage_state": "AVAILABLE",
            "state": "PENDING",
            "state_history": [{"update_time": now, "state": "PENDING"}],
            "created_at": now,
            "scheduled_at": now,
            "finished_at": _EPOCH,
            "plugins_input": body.get("plugins_input", {}),
        } | source
        return self._kept(self.runs, made, "run_id")

    def run(self, user: str, run: str) -> Body:
        """GET /runs/{run_id}."""
        if run not in self.runs:
            raise Refusal(NOT_FOUND, f"Run {run} not found")
        self._allowed(user, self.experiments[self.runs[run]["experiment_id"]]["namespace"], "run")
        return self.runs[run]

    def list_runs(self, user: str, query: Mapping[str, str]) -> Body:
        """GET /runs, of a namespace or of an experiment."""
        return page("runs", self._of_scope(user, self.runs, query, "run"), query)

    def delete_run(self, user: str, run: str) -> Body:
        """DELETE /runs/{run_id}."""
        self.run(user, run)
        del self.runs[run]
        return {}

    def archive_run(self, user: str, run: str, archived: bool = True) -> Body:
        """POST /runs/{run_id}:archive, and :unarchive."""
        self.run(user, run)["storage_state"] = "ARCHIVED" if archived else "AVAILABLE"
        return {}

    def terminate_run(self, user: str, run: str) -> Body:
        """POST /runs/{run_id}:terminate: CANCELING until the pods ended; the history tells it when that is reported."""
        found = self.run(user, run)
        if found["state"] not in ("PENDING", "RUNNING", "PAUSED"):
            raise Refusal(INVALID, f"Failed to terminate a run {run}. Row not found")
        found["state"] = "CANCELING"
        return {}

    def retry_run(self, user: str, run: str) -> Body:
        """POST /runs/{run_id}:retry: the same run goes on; its end is forgotten."""
        found = self.run(user, run)
        if found["state"] not in ("FAILED", "CANCELED"):
            raise Refusal(ABORTED, "Workflow must be Failed/Error to retry")
        found["finished_at"] = _EPOCH
        self.set_state(run, "RUNNING")
        return {}

    def set_state(self, run: str, state: str) -> None:
        """Let a run be in another state, as the controller reports it."""
        found, now = self.runs[run], self._now()
        found["state"] = state
        found["state_history"].append({"update_time": now, "state": state})
        if state in TERMINAL:
            found["finished_at"] = now

    def begin_task(self, run: str, task: str, state: str = "RUNNING") -> None:
        """Let a run come to a task, as the controller reports its nodes: driver, task, executor, attempts of each.

        Args:
            run: Id of the run.
            task: Name of the task in the pipeline.
            state: Of its nodes; empty for a task that is omitted, whose nodes start and end at once.
        """
        found, now = self.runs[run], self._now()
        nodes = found.setdefault("run_details", {}).setdefault("task_details", [])
        end = "0001-01-01T00:00:00Z" if state == "RUNNING" else now
        for name in (f"{task}-driver", f"{task}-driver(0)", task, f"{task}(0)", "executor", "executor(0)"):
            node = {"display_name": name, "create_time": found["created_at"], "start_time": now, "end_time": end}
            nodes.append(
                node
                | {"run_id": run, "task_id": self._id(), "state": state}
                | {"state_history": [{"update_time": now, "state": state}]}
                | ({} if name == "executor(0)" else {"child_tasks": [{"pod_name": f"{task}-{len(nodes)}"}]})
            )
        if state:
            # What the launcher itself reports has neither a name nor a state.
            times = {"create_time": now, "start_time": now, "end_time": now}
            nodes.append({"run_id": run, "task_id": self._id(), "execution_id": str(len(nodes)), **times})

    # Recurring runs

    def create_recurring_run(self, user: str, body: Body) -> Body:
        """POST /recurringruns."""
        if not body.get("display_name"):
            raise Refusal(INTERNAL, "Internal Server Error", "Recurring run's name cannot be empty")
        self._fits(body)
        most = int(body.get("max_concurrency", 0))
        if not 1 <= most <= 10:
            raise Refusal(
                INVALID, f"Max concurrency of a recurring run must be at least 1 and at most 10. Received {most}"
            )
        trigger = body.get("trigger", {})
        if expression := trigger.get("cron_schedule", {}).get("cron"):
            try:
                require_cron(six_fields(expression))
            except ValueError as error:
                known = "Schedule cron is not a supported format(https://godoc.org/github.com/robfig/cron)"
                raise Refusal(INVALID, f"{known}. Error: {error}") from error
        seconds = trigger.get("periodic_schedule", {}).get("interval_second")
        if seconds is not None and int(seconds) < 1:
            raise Refusal(
                INVALID, f"Found invalid period schedule interval {seconds}. Set at interval to least 1 second"
            )
        experiment, namespace = self._experiment_of(user, body.get("experiment_id", ""), body.get("namespace", ""))
        self._source(body)
        enabled, now = body.get("mode") == "ENABLE", self._now()
        account = body.get("service_account", "") or ("pipeline-runner" if self._workflow(body) else "")
        made = {
            "recurring_run_id": self._id(),
            "display_name": body["display_name"],
            "description": body.get("description", ""),
            "service_account": account,
            "status": "ENABLED" if enabled else "DISABLED",
            "mode": "ENABLE" if enabled else "DISABLE",
            "created_at": now,
            "updated_at": now,
            "max_concurrency": str(most),
            "no_catchup": body.get("no_catchup", False),
            "trigger": trigger,
            "runtime_config": body.get("runtime_config", {}),
            "namespace": namespace or self.pod_namespace,
            "experiment_id": experiment,
            "plugins_input": body.get("plugins_input", {}),
        }
        made |= {key: body[key] for key in ("pipeline_version_reference", "pipeline_spec") if key in body}
        return self._kept(self.recurring_runs, made, "recurring_run_id")

    def _workflow(self, schedule: Body) -> bool:
        """Whether a recurring run is stored with its workflow, which holds its parameters, its account and its spec."""
        return self._pinned(schedule) and not (self.plugins or schedule.get("plugins_input"))

    def _pinned(self, schedule: Body) -> bool:
        return "pipeline_spec" in schedule or "pipeline_version_id" in schedule["pipeline_version_reference"]

    def recurring_run(self, user: str, recurring_run: str) -> Body:
        """GET /recurringruns/{recurring_run_id}."""
        if recurring_run not in self.recurring_runs:
            raise Refusal(NOT_FOUND, f"Job {recurring_run} not found")
        self._allowed(user, self.recurring_runs[recurring_run]["namespace"], "recurring run")
        return self.recurring_runs[recurring_run]

    def list_recurring_runs(self, user: str, query: Mapping[str, str]) -> Body:
        """GET /recurringruns, of a namespace or of an experiment."""
        return page("recurringRuns", self._of_scope(user, self.recurring_runs, query, "recurring run"), query)

    def enable(self, user: str, recurring_run: str, enabled: bool = True) -> Body:
        """POST /recurringruns/{recurring_run_id}:enable, and :disable."""
        found = self.recurring_run(user, recurring_run)
        found["status"], found["mode"] = ("ENABLED", "ENABLE") if enabled else ("DISABLED", "DISABLE")
        found["updated_at"] = self._now()
        return {}

    def delete_recurring_run(self, user: str, recurring_run: str, query: Mapping[str, str]) -> Body:
        """DELETE /recurringruns/{recurring_run_id}: takes the workflows under way along, unless they are orphaned."""
        self.recurring_run(user, recurring_run)
        del self.recurring_runs[recurring_run]
        for run in self.runs.values():
            if run["recurring_run_id"] == recurring_run and query.get("propagation_policy") != "ORPHAN":
                self.set_state(run["run_id"], "FAILED")
        return {}

    def fire(self) -> list[Body]:
        """Let every schedule that is enabled and due start what is due, as the controller of scheduled workflows does.

        It goes on from the last run, else from the start, else from when it was created; without catching up only the
        last of what is due is run.
        """
        made = []
        for each in self.recurring_runs.values():
            if each["status"] == "ENABLED":
                made += [run for when in due(each, self.clock) for run in self._fired(each, when)]
        return made

    def _fired(self, schedule: Body, when: float) -> Iterator[Body]:
        """The run that the controller starts; none where the server refuses it."""
        schedule["last"] = when
        resource = schedule.setdefault(
            "resource", re.sub("[^a-z0-9-]+", "", schedule["display_name"].lower())[:25] + f"{next(self._numbers):05x}"
        )
        schedule["fired"] = schedule.get("fired", 0) + 1
        name = f"{resource}-{schedule['fired']}"
        body = {key: schedule[key] for key in ("experiment_id", "pipeline_version_reference", "plugins_input")}
        body |= {"display_name": f"{name}-{zlib.crc32(name.encode())}"}
        body |= {"recurring_run_id": schedule["recurring_run_id"], "service_account": schedule["service_account"]}
        # The controller asks for a run where there is no workflow, and knows no parameters but with the newest version.
        if self._workflow(schedule) or not self._pinned(schedule):
            body["runtime_config"] = schedule["runtime_config"]
        with suppress(Refusal):
            run = self.create_run("", body)
            run["scheduled_at"] = written(when)
            if self._workflow(schedule):
                # The server hears of the run when its workflow runs, and reads neither account nor description there.
                running = {"update_time": run["created_at"], "state": "RUNNING"}
                run |= {"service_account": "", "state": "RUNNING", "state_history": [running]}
            yield run

    # What requests share

    def _source(self, body: Body) -> Body:
        """The version that a body names, or the newest, and its parameters held against the spec."""
        named = body.get("pipeline_version_reference", {})
        if not named and "pipeline_spec" not in body:
            raise Refusal(
                INTERNAL, "Internal Server Error", "Failed to fetch a template with an empty pipeline spec manifest"
            )
        source = body
        if named:
            of_pipeline = [
                each
                for each in self.pipeline_versions.values()
                if named.get("pipeline_id") in (None, each["pipeline_id"])
                and named.get("pipeline_version_id") in (None, each["pipeline_version_id"])
            ]
            if not of_pipeline:
                raise Refusal(
                    INTERNAL, "Internal Server Error", "Failed to create a run due to error fetching manifest"
                )
            source = of_pipeline[-1]
        spec = source["pipeline_spec"]
        spec, values = spec.get("pipeline_spec", spec), body.get("runtime_config", {}).get("parameters", {})
        if unknown := sorted(values.keys() - parameters_of(spec).keys()):
            raise Refusal(INVALID, f"parameter(s) provided are not required by pipeline: {', '.join(unknown)}")
        try:
            check_parameters(spec, values)
        except ConfigurationError as error:
            raise Refusal(INVALID, str(error)) from error
        if not named:
            return {"pipeline_spec": body["pipeline_spec"]}
        return {"pipeline_version_reference": {key: source[key] for key in ("pipeline_id", "pipeline_version_id")}}

    def _experiment_of(self, user: str, experiment: str, namespace: str) -> tuple[str, str]:
        if not experiment:
            if self.multi_user:
                raise Refusal(INVALID, "Experiment id can not be empty in multi-user mode")
            (experiment,) = (key for key, each in self.experiments.items() if each["display_name"] == "Default")
        belongs = self.experiment("system", experiment)["namespace"]
        if namespace not in ("", belongs):
            raise Refusal(INVALID, f"Experiment {experiment} belongs to namespace '{belongs}' instead of '{namespace}'")
        self._allowed(user, belongs, "run")
        return experiment, belongs

    def _of_scope(self, user: str, objects: dict[str, Body], query: Mapping[str, str], kind: str) -> list[Body]:
        if experiment := query.get("experiment_id", ""):
            self._experiment_of(user, experiment, "")
            return [each for each in objects.values() if each["experiment_id"] == experiment]
        namespace = self._allowed(user, query.get("namespace", ""), kind)
        return [each for each in objects.values() if self.experiments[each["experiment_id"]]["namespace"] == namespace]

    def _allowed(self, user: str, namespace: str, kind: str) -> str:
        """The namespace that counts: none for a server of one user, else one that the user may use."""
        if not self.multi_user:
            return ""
        if not namespace:
            raise Refusal(INVALID, f"A {kind} cannot have an empty namespace in multi-user mode")
        if not user:
            raise Refusal(
                UNAUTHENTICATED, "Failed to check authorization. User identity is empty in the request header"
            )
        if user != "system" and namespace not in self.rights.get(user, ()):
            raise Refusal(DENIED, f"User '{user}' is not authorized with reason:  (namespace: {namespace})")
        return namespace

    def _fits(self, body: Body) -> None:
        """The columns of runs and recurring runs: longer texts are an error of the database."""
        for key in ("display_name", "description", "service_account"):
            if len(body.get(key, "")) > 255:
                raise Refusal(INTERNAL, "Internal Server Error", f"Error 1406: Data too long for column '{key}'")

    def _tags(self, tags: Mapping[str, str]) -> dict[str, str]:
        if len(tags) > _MOST_TAGS:
            raise Refusal(INVALID, f"number of tags ({len(tags)}) exceeds maximum of {_MOST_TAGS} per entity")
        for key, value in tags.items():
            if not key or "." in key or len(key) > _LONGEST_TAG or len(value) > _LONGEST_TAG:
                raise Refusal(INVALID, f"tag key {key!r} or its value {value!r} is not allowed")
        return dict(tags)

    def _kept(self, objects: dict[str, Body], made: Body, key: str) -> Body:
        objects[made[key]] = made
        return made

    def _id(self) -> str:
        return str(uuid.UUID(int=next(self._numbers)))

    def _now(self) -> str:
        self.clock += 1
        return written(self.clock)
