"""The recurring runs of the stand-in of Kubeflow Pipelines' API server, and what their controller starts."""

import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress

from gatehouse.cron import Cron
from tests.kfp_clock import due, written
from tests.kfp_lists import INTERNAL, INVALID, NOT_FOUND, Body, Refusal, page


class Schedules:
    """A part of `tests.kfp_objects.Objects`, which keeps their state and what all requests share."""

    pod_namespace: str
    plugins: bool
    clock: float
    runs: dict[str, Body]
    recurring_runs: dict[str, Body]
    _numbers: Iterator[int]

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
                Cron.parse(expression, fields=(5, 6))
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
