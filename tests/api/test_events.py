"""Events that come in: read in every form, ordered once however often they come, and submitted once after any kill."""

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from gatehouse.api import events, pipelines
from gatehouse.api.events import Order, read_event, restart_lost, submit, submit_due, take
from gatehouse.api.schedules import Cluster
from gatehouse.configuration.trigger import Trigger
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.submission import Upload
from gatehouse.kfp_api.client import KfpApi
from gatehouse.project.platforms import load_platform
from gatehouse.project.project import Project, load_project
from gatehouse.store.store import ArtifactStore
from tests.kills import killed_at, was_killed
from tests.stand_ins.kfp_api import PERSISTENT, PIPELINE, KfpServer

EVENT: dict[str, Any] = {"id": "1", "source": "s3", "type": "object.created", "subject": "raw/a.csv", "time": ""}
EVENT["data"] = {"bucket": "raw", "size": 3}
NEW_DATA = {"pipeline": "training", "type": "object.*"}
NOON = datetime(2030, 1, 15, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as a test sets it."""
    now = [NOON]
    monkeypatch.setattr(events, "time", SimpleNamespace(time=lambda: now[0]))
    return now


@pytest.fixture
def flights(project: Path) -> Callable[..., Project]:
    """The small example with triggers."""

    def made(**triggers: dict[str, Any]) -> Project:
        declared = {name.replace("_", "-"): Trigger.model_validate(body) for name, body in triggers.items()}
        loaded = load_project(project)
        return replace(loaded, file=loaded.file.model_copy(update={"triggers": declared}))

    return made


def event(number: int | str, **more: Any) -> dict[str, Any]:
    return EVENT | {"id": str(number)} | more


def names(orders: list[Order]) -> list[str]:
    return [order.name for order in orders]


STRUCTURED = {"specversion": "1.0", "id": "1", "source": "s3", "type": "object.created", "subject": "raw/a.csv"}
S3 = {
    "EventName": "s3:ObjectCreated:Put",
    "Records": [
        {
            "eventSource": "minio:s3",
            "awsRegion": "",
            "eventName": "s3:ObjectCreated:Put",
            "eventTime": "2030-01-15T12:00:00Z",
            "responseElements": {"x-amz-request-id": "17A", "x-amz-id-2": "9f"},
            "s3": {"bucket": {"name": "raw"}, "object": {"key": "flights/a+b.csv", "size": 3}},
        }
    ],
}


def test_both_modes_of_a_cloudevent_are_read_alike() -> None:
    body = json.dumps(STRUCTURED | {"data": {"bucket": "raw"}}).encode()
    structured = read_event({"content-type": "application/cloudevents+json"}, body)
    headers = {f"ce-{name}": value for name, value in STRUCTURED.items()} | {"content-type": "application/json"}
    binary = read_event(headers, b'{"bucket": "raw"}')
    assert structured == binary | {"time": structured["time"]}, "without a time, it is when it came"
    assert structured["subject"] == "raw/a.csv" and structured["data"] == {"bucket": "raw"}


def test_a_notification_of_minio_is_the_event_of_the_adapter_for_s3() -> None:
    read = read_event({"content-type": "application/json"}, json.dumps(S3).encode())
    assert (read["id"], read["source"]) == ("17A.9f", "minio:s3..raw")
    assert (read["type"], read["subject"]) == ("com.amazonaws.s3.ObjectCreated:Put", "flights/a b.csv")
    assert read["data"]["object"]["size"] == 3


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"x", b"[]", b"3", b'"x"', b"null", b"{}", b"\xff", b'{"Records": []}', b'{"Records": [3]}'),
        json.dumps(STRUCTURED | {"specversion": "9"}).encode(),
        json.dumps(STRUCTURED | {"id": 3}).encode(),
        json.dumps({name: value for name, value in STRUCTURED.items() if name != "id"}).encode(),
        json.dumps({"Records": S3["Records"] * 2}).encode(),
        json.dumps(STRUCTURED | {"time": "soon"}).encode(),
        json.dumps(STRUCTURED | {"subject": ["a"]}).encode(),
        b"[" * 60_000,
    ],
)
def test_what_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises(ConfigurationError):
        read_event({"content-type": "application/json"}, body)
    if body.startswith(b'{"spec'):
        return
    with pytest.raises(ConfigurationError):
        read_event({"ce-type": "x", "content-type": "application/json"}, body)


@pytest.mark.parametrize(
    ("trigger", "matches"),
    [
        ({}, True),
        ({"type": "object.created", "source": "s?", "subject": "raw/*.csv"}, True),
        ({"type": "OBJECT.*"}, False),
        ({"source": "gcs"}, False),
        ({"subject": "raw/*.parquet"}, False),
        ({"enabled": False}, False),
    ],
)
def test_a_trigger_matches_by_patterns(trigger: dict[str, Any], matches: bool) -> None:
    assert Trigger.model_validate(NEW_DATA | trigger).matches(EVENT) == matches


def test_parameters_are_constants_and_fields_of_the_event() -> None:
    wanted = {"backfill": "{data.bucket}: {subject}", "seed": 3, "window": ""}
    filled = Trigger.model_validate(NEW_DATA | {"parameters": wanted}).filled(EVENT)
    assert filled == {"backfill": "raw: raw/a.csv", "seed": 3, "window": ""}
    for field in ("{subjekt}", "{data}", "{}"):
        with pytest.raises(ValueError, match="expected the fields"):
            Trigger.model_validate(NEW_DATA | {"parameters": {"backfill": f"of {field}"}})


@pytest.mark.parametrize("field", ["{data.nothing}", "{data.bucket.x}", "{time}", "{subject}"])
def test_an_event_without_a_field_orders_nothing(
    store: ArtifactStore, flights: Callable[..., Project], field: str
) -> None:
    both = {"good": NEW_DATA, "bad": NEW_DATA | {"parameters": {"backfill": field}}}
    with pytest.raises(ConfigurationError):
        take(store, flights(**both), event(1, subject="a\nb"), "ann")
    assert not list(store.objects.list("triggers"))


@pytest.mark.parametrize(
    "body",
    [{"parameters": {"store": "x"}}, {"parameters": {"source": "{data.url}"}}, {"debounce": "P2D"}, {"type": ""}],
)
def test_no_event_chooses_a_place(body: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        Trigger.model_validate(NEW_DATA | body)


def test_an_event_orders_one_run_of_each_trigger_however_often_it_comes(
    store: ArtifactStore, flights: Callable[..., Project], clock: list[float]
) -> None:
    project = flights(new_data=NEW_DATA, again=NEW_DATA, other={"pipeline": "scoring", "type": "table.*"})
    first = take(store, project, EVENT, "ann")
    assert [order.trigger for order in first] == ["new-data", "again"] and len({*names(first)}) == 2
    clock[0] += 3 * 86_400
    assert take(store, project, EVENT, "bob") == first
    assert names(take(store, project, event(1, source="gcs"), "ann")) != names(first), "an id is of its source"


def test_events_that_come_together_make_one_run_when_their_time_is_over(
    store: ArtifactStore, flights: Callable[..., Project], clock: list[float]
) -> None:
    project = flights(new_data=NEW_DATA | {"debounce": "PT10M", "parameters": {"backfill": "{data.bucket}"}})
    (first,) = take(store, project, event(1), "ann")
    clock[0] += 599
    assert take(store, project, event(2), "ann") == [first] and first.due == NOON + 600
    (other,) = take(store, project, event(3, data={"bucket": "old"}), "ann")
    assert other.name != first.name, "other parameters are another run"
    clock[0] += 1
    (next_,) = take(store, project, event(4), "ann")
    assert next_.name != first.name and next_.due == NOON + 1200
    assert take(store, project, event(2), "ann") == [first]


def test_an_event_after_midnight_joins_the_run_of_the_evening(
    store: ArtifactStore, flights: Callable[..., Project], clock: list[float]
) -> None:
    project = flights(new_data=NEW_DATA | {"debounce": "PT10M"})
    clock[0] = NOON + 12 * 3600 - 60
    (first,) = take(store, project, event(1), "ann")
    clock[0] += 120
    assert take(store, project, event(2), "ann") == [first]


def test_what_exceeds_the_limit_of_a_day_makes_one_run_the_next_day(
    store: ArtifactStore, flights: Callable[..., Project], clock: list[float]
) -> None:
    project = flights(new_data=NEW_DATA | {"per_day": 2})
    orders = [take(store, project, event(number), "ann")[0] for number in range(5)]
    assert [order.due for order in orders[:2]] == [NOON, NOON]
    assert len({*names(orders)}) == 3 and {order.due for order in orders[2:]} == {NOON + 12 * 3600}
    clock[0] = NOON + 13 * 3600
    assert [take(store, project, event(number), "ann")[0].due for number in (4, 5)] == [NOON + 12 * 3600, clock[0]]


def test_many_at_once_make_one_order_of_each_event(store: ArtifactStore, flights: Callable[..., Project]) -> None:
    project, orders = flights(new_data=NEW_DATA), list[Order]()
    works = [
        lambda number=number: orders.extend(take(store, project, event(number), "ann")) for number in [1, 2, 3] * 4
    ]
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(orders) == 12 and len({*names(orders)}) == 3
    assert len([key for key in store.objects.list("triggers") if "/events/" not in key]) == 3


def _killed_in_turn(tmp_path: Path, work: Callable[[ArtifactStore], object]) -> Iterator[ArtifactStore]:
    """Stores in which work was killed before its first change, its second, and so on; the last one was not killed."""
    for number in itertools.count():
        store = ArtifactStore.open(tmp_path / f"store-{number}")
        with killed_at(store, number + 1, changes=("put_bytes", "delete")):
            killed = was_killed(lambda store=store: work(store))
        yield store
        if not killed:
            assert number > 5
            return


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the runs whose process was started, in place of the processes."""
    ids: list[str] = []

    def start(command: list[str], env: dict[str, str], **_: Any) -> SimpleNamespace:
        assert "GATEHOUSE_TRIGGERS_SECRET" not in env
        ids.append(command[3])
        return SimpleNamespace(pid=os.getpid())

    monkeypatch.setattr("subprocess.Popen", start)
    monkeypatch.setattr(events, "_LAPSES", -1.0)
    return ids


def test_killed_at_any_step_a_repeat_starts_one_run_here(
    tmp_path: Path, flights: Callable[..., Project], monkeypatch: pytest.MonkeyPatch, started: list[str]
) -> None:
    project = flights(new_data=NEW_DATA)

    def work(store: ArtifactStore) -> list[Order]:
        return [submit(store, project.folder, None, order) for order in take(store, project, EVENT, "ann")]

    for store in _killed_in_turn(tmp_path, work):
        first, again = work(store), work(store)
        assert first == again and first[0].run == first[0].name
        assert submit_due(store, project, None, days=1)
        assert {*started} == {first[0].run}
        assert [key for key in store.objects.list("runs") if key.endswith("submitted.json")] == [
            f"runs/{first[0].run}/submitted.json"
        ]
        started.clear()


def test_what_a_killed_server_left_is_submitted_by_the_next(
    store: ArtifactStore, flights: Callable[..., Project], started: list[str]
) -> None:
    project = flights(new_data=NEW_DATA | {"debounce": "PT1H"})
    take(store, project, EVENT, "ann")
    assert submit_due(store, project, None) and not started, "it is not due"
    keys = [key for key in store.objects.list("triggers") if key.endswith("000001.json")]
    body = json.loads(store.objects.get_bytes(keys[0])) | {"due": time.time() - 1}
    (Path(store.address) / keys[0]).unlink()
    store.record(keys[0], body)
    assert submit_due(store, project, None) and submit_due(store, project, None)
    assert started == [body["name"]]


def test_a_run_that_cannot_start_now_starts_later(
    store: ArtifactStore, flights: Callable[..., Project], started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = flights(new_data=NEW_DATA)
    (order,) = take(store, project, EVENT, "ann")
    with monkeypatch.context() as patch:
        patch.setattr(pipelines, "MOST_QUEUED", 0)
        with pytest.raises(pipelines.TooManyRunsError):
            submit(store, project.folder, None, order)
        assert not submit_due(store, project, None)
    assert submit_due(store, project, None) and started == [order.name]


def test_a_run_of_an_order_that_was_killed_is_started_again_and_at_last_has_failed(
    store: ArtifactStore, flights: Callable[..., Project], started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEHOUSE_TRIGGERS_SECRET", "whsec_x")
    project = flights(new_data=NEW_DATA)
    (order,) = take(store, project, EVENT, "ann")
    submit(store, project.folder, None, order)
    restart_lost(store, project)
    assert started == [order.name], "its process lives"
    monkeypatch.setattr(pipelines, "_lives_here", lambda _: False)
    for _ in range(5):
        restart_lost(store, project)
    assert started == [order.name] * 3
    ended = pipelines.run(store, order.name)
    assert (ended.state, ended.error) == ("failed", "KilledError")


def test_a_run_of_another_machine_is_lost_after_a_long_silence(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.record("runs/r/submitted.json", {"pipeline": "training", "by": "ann", "at": "2030-01-15T12:00:00Z"})
    store.record("runs/r/process.json", {"host": "elsewhere", "pid": 1, "started": "1"})
    for hours, lost in ((47, False), (49, True)):
        monkeypatch.setattr(pipelines, "time", SimpleNamespace(time=lambda hours=hours: NOON + 3600 * hours))
        assert pipelines.is_lost(store, "r") is lost
    store.record("runs/r/ended.json", {"exit_code": 0, "failure": None})
    assert not pipelines.is_lost(store, "r")


def test_a_second_process_of_a_run_that_ended_does_nothing(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.record("runs/r/submitted.json", {"pipeline": "training", "arguments": {}, "until": ""})
    store.record("runs/r/ended.json", {"exit_code": 3, "failure": None})
    assert pipelines.main("r", "nowhere", store.address) == 3


@pytest.fixture
def on_kfp(
    project: Path, tmp_path: Path, kfp_server: KfpServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[ArtifactStore], Path]:
    """The profile of a platform with a store; its pipelines are small ones."""

    def profile(store: ArtifactStore) -> Path:
        folder = tmp_path / "profiles"
        folder.mkdir(exist_ok=True)
        body = {"name": "here", "store": store.address, "endpoint": kfp_server.endpoint}
        body |= {"pods": {"volumes": [{"claim": "data", "path": str(tmp_path)}]}}
        path = folder / f"{len(list(folder.iterdir()))}.yaml"
        path.write_text(yaml.safe_dump(body))
        return path

    def cluster(folder: Path, profile: Path) -> Cluster:
        api = KfpApi.connect(kfp_server.endpoint, patience=PERSISTENT)
        return Cluster(load_project(folder), load_platform(profile), api)

    def uploads(_: Cluster, names: list[str]) -> dict[str, Upload]:
        return {name: Upload("flights", name, PIPELINE) for name in names}

    monkeypatch.setattr(Cluster, "of", cluster)
    monkeypatch.setattr(Cluster, "compiled", uploads)
    return profile


def test_killed_at_any_step_a_repeat_submits_one_run_to_kfp(
    tmp_path: Path,
    flights: Callable[..., Project],
    monkeypatch: pytest.MonkeyPatch,
    on_kfp: Callable[[ArtifactStore], Path],
    kfp_server: KfpServer,
) -> None:
    monkeypatch.setattr(events, "_LAPSES", -1.0)
    monkeypatch.setattr("gatehouse.store.turns.Turn.__enter__", lambda turn: turn)  # A killed holder's turn lapses.
    monkeypatch.setattr("gatehouse.store.turns.Turn.require", lambda turn: None)
    project = flights(new_data=NEW_DATA | {"parameters": {"word": "{subject}"}})

    def work(store: ArtifactStore) -> list[Order]:
        profile = on_kfp(store)
        return [submit(store, project.folder, profile, order) for order in take(store, project, EVENT, "ann")]

    for store in _killed_in_turn(tmp_path, work):
        (first,), (again,) = work(store), work(store)
        ((id_, run),) = kfp_server.objects.runs.items()
        assert first == again and first.run == id_ and first.name in run["display_name"]
        assert run["runtime_config"] == {"parameters": {"word": "raw/a.csv"}}
        assert pipelines.run(store, id_, lambda: KfpApi.connect(kfp_server.endpoint)).state == "pending"
        kfp_server.objects.runs.clear()


def test_the_state_of_a_run_on_kfp_follows_kfp_until_its_end_is_recorded(
    store: ArtifactStore, project: Path, on_kfp: Callable[[ArtifactStore], Path], kfp_server: KfpServer
) -> None:
    what = {"pipeline": "training", "arguments": {"word": "a"}, "reason": "why", "until": ""}
    name = pipelines.start(store, project, on_kfp(store), "n", what, "ann")
    connect = partial(KfpApi.connect, kfp_server.endpoint)
    assert pipelines.run(store, name, connect).state == "pending"
    assert (pipelines.run(store, name).by, pipelines.run(store, name).state) == ("ann", "pending")
    for kfp_state, state in (("RUNNING", "running"), ("FAILED", "failed")):
        kfp_server.objects.set_state(name, kfp_state)
        assert pipelines.run(store, name, connect).state == state
    assert "no stage recorded a failure" in pipelines.run(store, name, connect).message
    store.record(f"runs/{name}/end.json", {"state": "succeeded", "last": 1.0, "recorded": 1.0})
    assert pipelines.run(store, name, connect).state == "succeeded"


def test_each_submission_is_a_run_of_its_own(
    store: ArtifactStore,
    project: Path,
    on_kfp: Callable[[ArtifactStore], Path],
    kfp_server: KfpServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profile = on_kfp(store)
    submission = pipelines.Submission(pipeline="training")
    monkeypatch.setattr(pipelines.Submission, "arguments", {"word": "a"})
    first, second = (pipelines.submit(store, project, submission, "ann", profile) for _ in range(2))
    assert {first.id, second.id} == {*kfp_server.objects.runs} and first.id != second.id
    with pytest.raises(ConfigurationError):
        pipelines.submit(store, project, pipelines.Submission(until="split"), "ann", profile)
