"""Holds `tests/stand_ins/kfp_answers.yaml`, the list of what we rely on, against our client, the schema and a server.

With GATEHOUSE_TEST_KFP_ENDPOINT the calls go to that server instead of the stand-in, and what it answers is held
against the list too; see `tests/stand_ins/kfp_api.py`.
"""

import os
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gatehouse.kfp_api.answers import Run
from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.connection import Connection
from tests.stand_ins.kfp_api import PIPELINE, KfpServer, serving, swagger

LIST = Path(__file__).parents[1] / "stand_ins" / "kfp_answers.yaml"
RELIED_ON: dict[str, list[str]] = yaml.safe_load(LIST.read_text())
NODES = "task_details."
FREE = ("tags", "parameters", "pipeline_spec", "plugins_input")
"""Objects whose keys users choose."""


class Reading(dict[str, Any]):
    """An answer that notes which of its fields are asked for."""

    def __init__(self, content: dict[str, Any], notes: set[str], where: str = "") -> None:
        super().__init__(content)
        self._notes, self._where = notes, where

    def _noted(self, key: str, value: Any) -> Any:
        path = f"{self._where}{key}"
        self._notes.add(path)
        if key in FREE:
            return value
        if isinstance(value, list):
            return [Reading(each, self._notes, f"{path}.") for each in value]
        return Reading(value, self._notes, f"{path}.") if isinstance(value, dict) else value

    def __getitem__(self, key: str) -> Any:
        return self._noted(key, super().__getitem__(key))

    def __contains__(self, key: object) -> bool:
        self._notes.add(f"{self._where}{key}")
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:  # type: ignore[override]  # Answers hold JSON alone.
        return self._noted(key, super().get(key, default))


def _route(method: str, path: str) -> str:
    """The route of a path with ids, as the description of the API writes it; fixed words go before ids."""
    routes = [
        known.removeprefix("/apis/v2beta1/") for known, verbs in swagger()["paths"].items() if method.lower() in verbs
    ]
    for route in sorted(routes, key=lambda each: each.count("{")):
        if re.fullmatch(re.sub(r"\\{[^}]+\\}", "[^/:]+", re.escape(route)), path):
            return f"{method} {route}"
    raise AssertionError(f"{method} {path} is no route of the API")


@pytest.fixture
def api() -> Iterator[KfpApi]:
    """A server of yours, or the stand-in."""
    if endpoint := os.environ.get("GATEHOUSE_TEST_KFP_ENDPOINT", ""):
        named = {name: os.environ.get(f"GATEHOUSE_TEST_KFP_{name.upper()}", "") for name in ("namespace", "token")}
        yield KfpApi.connect(endpoint, **named)
    else:
        with serving() as server:
            yield KfpApi.connect(server.endpoint)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Which fields are read, by route."""
    found: dict[str, set[str]] = defaultdict(set)
    send = Connection.send

    def noting(self: Connection, method: str, path: str, *arguments: Any, **named: Any) -> Any:
        return Reading(send(self, method, path, *arguments, **named), found[_route(method, path)])

    monkeypatch.setattr(Connection, "send", noting)
    return found


def use_everything(api: KfpApi) -> None:
    """Make every call that there is, and leave nothing but a pipeline and a cancelled run."""
    name = f"gatehouse-test-{secrets.token_hex(4)}"
    api.server()
    experiment = api.experiment("gatehouse-test")
    pipeline = api.pipeline(name, "for a test", {"project": "test"})
    version = api.upload_version(pipeline.id, PIPELINE, tags={"project": "test"})
    assert api.find_pipeline(name) == pipeline and [each.id for each in api.versions(pipeline.id)] == [version.id]
    assert api.version(pipeline.id, version.id).tags == {"project": "test"}
    run = api.create_run(name, pipeline.id, version.id, {"word": "hello"}, "gatehouse-test")
    assert api.create_run(name, pipeline.id, version.id, {"word": "hello"}, "gatehouse-test").id == run.id
    assert api.run(run.id).parameters == {"word": "hello"}
    api.terminate(run.id)
    assert run.id in {each.id for each in api.runs("gatehouse-test")}
    body = {
        "display_name": f"{name}-daily",
        "experiment_id": experiment.id,
        "pipeline_version_reference": {"pipeline_id": pipeline.id, "pipeline_version_id": version.id},
        "trigger": {"cron_schedule": {"cron": "0 0 4 * * 1", "end_time": "2040-01-01T00:00:00Z"}},
        "runtime_config": {"parameters": {"word": "hello"}},
        "max_concurrency": "1",
        "no_catchup": True,
        "mode": "DISABLE",
    }
    trigger = {"periodic_schedule": {"interval_second": "3600", "start_time": "2040-01-01T00:00:00Z"}}
    every = api.create_recurring_run(body | {"trigger": trigger, "display_name": f"{name}-hourly"})
    api.delete_recurring_run(every.id)
    assert every.interval == 3600 and every.start is not None
    recurring = api.create_recurring_run(body)
    try:
        assert api.create_recurring_run(body).id == recurring.id and not recurring.enabled and not recurring.catch_up
        api.enable(recurring.id)
        assert next(api.recurring_runs(recurring.name)).enabled
        api.enable(recurring.id, enabled=False)
    finally:
        api.delete_recurring_run(recurring.id)
        api.delete_recurring_run(recurring.id)


def _at_once(fields: Iterable[str]) -> list[str]:
    """Without those that a run has only when it has begun."""
    return sorted(field for field in fields if NODES not in field)


def test_the_list_holds_what_is_read_and_nothing_else(api: KfpApi, notes: dict[str, set[str]]) -> None:
    use_everything(api)
    listed = {route: _at_once(fields) for route, fields in RELIED_ON.items()}
    assert {route: _at_once(fields) for route, fields in sorted(notes.items())} == listed


def test_the_list_holds_what_is_read_of_a_run_that_began(kfp_server: KfpServer, notes: dict[str, set[str]]) -> None:
    api = KfpApi.connect(kfp_server.endpoint)
    pipeline = api.pipeline("say")
    version = api.upload_version(pipeline.id, PIPELINE)
    run = api.create_run("said", pipeline.id, version.id, {"word": "hello"}, "talks").id
    kfp_server.objects.begin_task(run, "say")
    kfp_server.objects.begin_task(run, "omitted", state="")
    assert list(api.run(run).tasks) == list(next(api.runs()).tasks) == ["say", "executor"]
    for route in ("GET runs", "GET runs/{run_id}"):
        found = [field for field in sorted(notes[route]) if NODES in field]
        assert found == [field for field in RELIED_ON[route] if NODES in field] != []


@pytest.mark.parametrize("route", RELIED_ON)
def test_the_api_publishes_every_field_of_the_list(route: str) -> None:
    method, _, path = route.partition(" ")
    answer = swagger()["paths"][f"/apis/v2beta1/{path}"][method.lower()]["responses"]["200"]["schema"]
    for field in RELIED_ON[route]:
        schema = answer
        for part in field.split("."):
            schema = schema.get("items", schema)
            if "$ref" in schema:
                schema = swagger()["definitions"][schema["$ref"].rpartition("/")[2]]
            # The release of the server stands in its source, and not in its description.
            assert part in schema["properties"] or (route, part) == ("GET healthz", "tag_name"), f"{field}: {part}"
            schema = schema["properties"].get(part, {})


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["PENDING", "RUNNING", "CANCELING", "FAILED"], "CANCELED"),
        (["PENDING", "RUNNING", "CANCELING", "FAILED", "RUNNING", "FAILED"], "FAILED"),
        (["PENDING", "RUNNING", "FAILED"], "FAILED"),
        ([None, "PENDING", "RUNNING", "SUCCEEDED"], "SUCCEEDED"),
    ],
)
def test_a_run_that_a_user_terminated_is_cancelled_though_kfp_says_failed(states: list[str | None], state: str) -> None:
    """As seen on Kubeflow Pipelines 2.17; the first entry of a history may have no state."""
    times = [f"2026-11-27T03:3{minute}:00Z" for minute in range(len(states))]
    history = [{"update_time": time} | ({"state": one} if one else {}) for one, time in zip(states, times, strict=True)]
    answer = {
        "run_id": "1",
        "created_at": times[0],
        "finished_at": times[-1],
        "state": states[-1],
        "state_history": history,
    }
    run = Run.read(answer)
    assert run.state == state
    assert [each for each, _ in run.history] == [each for each in states if each]
