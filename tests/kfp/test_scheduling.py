"""Schedules against a server that fails at every call in turn: they end as wanted, and nothing is doubled."""

from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gatehouse.configuration.schedule import Schedule
from gatehouse.kfp.scheduling import Applying, DeclaredSchedule, kfp_schedules, plan
from gatehouse.kfp.submission import Upload
from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.connection import KfpError, Patience
from tests.stand_ins.kfp_api import FAULTS, IMPATIENT, PERSISTENT, PIPELINE, KfpServer, Objects, impatient, serving

WEEKLY = {"cron": "0 0 4 * * 1", "parameters": {"word": "hello"}}


def declared(name: str = "weekly", text: str = PIPELINE, **changes: Any) -> DeclaredSchedule:
    schedule = Schedule.model_validate(WEEKLY | changes)
    return DeclaredSchedule("talks", name, schedule, Upload("talks", "say", text), "talks")


def apply(server: KfpServer, *schedules: DeclaredSchedule, patience: Patience = PERSISTENT) -> str:
    """Apply schedules at the server's own time; returns the signs of the plan."""
    api = KfpApi.connect(server.endpoint, patience=patience)

    def now() -> datetime:
        return datetime.fromtimestamp(server.objects.clock, UTC)

    def sleep(seconds: float) -> None:
        server.objects.clock += seconds
        server.objects.fire()

    return "".join(change.sign for change in Applying(api, now, sleep).apply(list(schedules), "talks"))


def schedules(server: KfpServer) -> list[dict[str, Any]]:
    return list(server.objects.recurring_runs.values())


def test_a_schedule_is_made_as_it_stands(kfp_server: KfpServer) -> None:
    assert apply(kfp_server, declared(max_concurrency=3, end="2030-01-01", catch_up=True)) == "+"
    (made,) = schedules(kfp_server)
    assert made["trigger"] == {"cron_schedule": {"cron": "0 0 4 * * 1", "end_time": "2030-01-01T00:00:00Z"}}
    assert (made["max_concurrency"], made["no_catchup"], made["status"]) == ("3", False, "ENABLED")
    assert made["runtime_config"] == {"parameters": {"word": "hello"}}
    kfp_server.objects.clock += 8 * 86_400
    assert len(kfp_server.objects.fire()) in (1, 2)


def test_a_change_takes_the_place_of_the_old_one(kfp_server: KfpServer) -> None:
    apply(kfp_server, declared())
    assert apply(kfp_server, declared(cron="0 0 5 * * 1")) == "~"
    (made,) = schedules(kfp_server)
    assert made["trigger"]["cron_schedule"]["cron"] == "0 0 5 * * 1" and made["status"] == "ENABLED"
    calls = [call.rpartition(":")[2] for call in kfp_server.writes if "recurringruns" in call]
    assert calls[1:] == ["POST recurringruns", "disable", "enable", "DELETE recurringruns/{recurring_run_id}"]


def test_runs_under_way_outlive_the_replacing(kfp_server: KfpServer) -> None:
    apply(kfp_server, declared())
    kfp_server.objects.clock += 8 * 86_400
    (run, *_) = kfp_server.objects.fire()
    apply(kfp_server, declared(cron="0 0 5 * * 1"))
    assert kfp_server.objects.runs[run["run_id"]]["state"] == "RUNNING"


def test_the_replacement_runs_nothing_from_before_it_was_made(kfp_server: KfpServer) -> None:
    start = (datetime.now(UTC) - timedelta(days=30)).strftime("%Y-%m-%dT00:00:00Z")
    daily = declared(cron="@daily", start=start, catch_up=True, max_concurrency=10)
    kfp_server.objects.clock = datetime.now(UTC).timestamp()
    apply(kfp_server, daily)
    assert len(kfp_server.objects.fire()) >= 29, "the first one catches up"
    apply(kfp_server, replace(daily, schedule=daily.schedule.model_copy(update={"max_concurrency": 9})))
    assert kfp_server.objects.fire() == []


def test_what_is_no_longer_wanted_is_removed_and_what_is_not_ours_stays(kfp_server: KfpServer) -> None:
    apply(kfp_server, declared(), declared("gone"))
    foreign = dict(schedules(kfp_server)[0], recurring_run_id="theirs", description="by hand")
    kfp_server.objects.recurring_runs["theirs"] = foreign
    assert apply(kfp_server, declared()) == "=-"
    assert sorted(schedule["description"].partition("[")[0] for schedule in schedules(kfp_server)) == ["", "by hand"]


def _watching(hours: float) -> str:
    """A pipeline whose task watches over a schedule with this SLA, as that of monitoring does."""
    watched = f"{{schedules: {{runtimeValue: {{constant: {{nightly: {{sla_hours: {hours}}}}}}}}}}}"
    return PIPELINE.replace(
        "taskInfo: {name: say}", f"taskInfo: {{name: say}}\n        inputs: {{parameters: {watched}}}"
    )


def test_a_plan_names_every_field_with_the_old_and_the_new_value(kfp_server: KfpServer) -> None:
    before = declared(text=_watching(6.0), start="2026-01-01", parameters={"word": "hello", "tone": "kind"})
    apply(kfp_server, before)
    api = KfpApi.connect(kfp_server.endpoint)
    after = declared(
        text=_watching(8.0),
        cron="",
        interval="PT6H",
        start="2027-01-01",
        end="2030-01-01",
        catch_up=True,
        enabled=False,
        parameters={"word": "bye", "times": 2},
    )
    (change,) = plan(api, [replace(after, experiment="others")], kfp_schedules(api, "talks"))
    experiment = api.find_experiment("talks")
    assert experiment is not None
    assert change.details == (
        "cron: 0 0 4 * * 1 -> none",
        "interval: none -> 21600",
        "end: none -> 2030-01-01T00:00:00+00:00",
        "catch_up: False -> True",
        "start: 2026-01-01T00:00:00+00:00 -> 2027-01-01T00:00:00+00:00",
        "parameters.word: hello -> bye",
        "parameters.times: none -> 2",
        "enabled: True -> False",
        f"experiment: {experiment.id} -> others",
        f"version: {before.upload.display_name} -> {after.upload.display_name}",
        "parameters.tone: kind -> none",
    )
    added = str(next(plan(api, [declared("new", start="2027-01-01", sla_hours=3)], [])))
    assert "start: 2027-01-01" in added and "sla_hours: 3.0" in added


def pause(server: KfpServer) -> None:
    """As a person does in the UI."""
    for schedule in schedules(server):
        server.objects.enable(schedule["recurring_run_id"], "DISABLE")


def test_what_a_person_paused_stays_paused(kfp_server: KfpServer) -> None:
    apply(kfp_server, declared())
    pause(kfp_server)
    assert apply(kfp_server, declared()) == "!"
    for hour in (5, 6):
        assert apply(kfp_server, declared(cron=f"0 0 {hour} * * 1")) == "~"
        (made,) = schedules(kfp_server)
        assert made["status"] == "DISABLED" and f" {hour} " in made["trigger"]["cron_schedule"]["cron"]
    kfp_server.objects.enable(made["recurring_run_id"])
    assert apply(kfp_server, declared(cron="0 0 6 * * 1")) == "="
    assert apply(kfp_server, declared(cron="0 0 7 * * 1")) == "~"
    assert [schedule["status"] for schedule in schedules(kfp_server)] == ["ENABLED"]


@pytest.fixture(scope="module")
def before() -> Objects:
    """What the server has when one schedule was applied; each test takes a copy."""
    with serving() as server:
        apply(server, declared())
        return server.objects


@pytest.fixture(scope="module")
def calls(before: Objects) -> int:
    """The number of API calls needed to replace one schedule and to create another."""
    with serving(objects=deepcopy(before)) as server:
        apply(server, declared(cron="0 0 5 * * 1"), declared("new"))
        return len(server.calls)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_call_ends_as_wanted(before: Objects, calls: int, fault: str) -> None:
    with serving() as server:
        for number in range(calls):
            server.objects = deepcopy(before)
            after = declared(cron="0 0 5 * * 1"), declared("new")
            server.faults = {len(server.calls) + number: fault}
            try:
                apply(server, *after, patience=impatient(fault))
            except KfpError:
                server.down = False
                enabled = [schedule for schedule in schedules(server) if schedule["status"] == "ENABLED"]
                assert sum("weekly" in schedule["display_name"] for schedule in enabled) <= 1
            server.faults = {}
            apply(server, *after)
            names = sorted(schedule["display_name"] for schedule in schedules(server))
            assert names == sorted(item.display_name for item in after), f"call {number}: {server.calls[-calls:]}"
            assert all(entry["status"] == "ENABLED" for entry in schedules(server))
            assert apply(server, *after) == "=="


@pytest.mark.parametrize("cut", range(12))
def test_nothing_is_run_twice_where_replacing_is_cut_off_over_due_times(cut: int) -> None:
    """What was due while the one was disabled and the other not enabled yet is missed, but for the last of it."""
    with serving() as server:
        apply(server, declared(cron="@hourly"))
        after = declared(cron="@hourly", max_concurrency=2)
        server.faults = {len(server.calls) + cut: "down after"}
        try:
            apply(server, after, patience=IMPATIENT)
        except KfpError:
            server.down = False
        for _ in range(3):
            server.objects.clock += 3600
            server.objects.fire()
        apply(server, after)
        server.objects.fire()
        times = [run["scheduled_at"] for run in server.objects.runs.values()]
        assert len(times) == len(set(times))
        assert max(times) == datetime.fromtimestamp(server.objects.clock // 3600 * 3600, UTC).strftime("%FT%TZ")


@pytest.mark.parametrize("paused", [False, True])
def test_what_was_cut_off_is_replaced_by_what_is_wanted_next(before: Objects, calls: int, paused: bool) -> None:
    """What was disabled on the way there was paused by nobody; what a person had paused before still is."""
    with serving() as server:
        for number in range(calls):
            server.objects = deepcopy(before)
            if paused:
                pause(server)
            server.faults = {len(server.calls) + number: "down after"}
            with suppress(KfpError):
                apply(server, declared(cron="0 0 5 * * 1"), patience=IMPATIENT)
            server.down, server.faults = False, {}
            apply(server, declared(cron="0 0 6 * * 1"))
            (made,) = schedules(server)
            assert made["status"] == ("DISABLED" if paused else "ENABLED"), f"call {number}"
            assert made["trigger"]["cron_schedule"]["cron"] == "0 0 6 * * 1"


def test_no_one_is_replaced_at_the_moment_it_is_due(kfp_server: KfpServer) -> None:
    apply(kfp_server, declared(cron="@hourly"))
    kfp_server.objects.clock = (kfp_server.objects.clock // 3600 + 1) * 3600 - 10
    apply(kfp_server, declared(cron="@hourly", max_concurrency=2))
    kfp_server.objects.fire()
    assert len(kfp_server.objects.runs) == 1


def test_due_times_of_an_interval_count_from_its_start() -> None:
    made = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
    every = Schedule(interval=timedelta(hours=6), end=datetime(2026, 1, 1, 13, tzinfo=UTC))
    assert every.following(made, made) == made + timedelta(hours=6)
    assert every.following(made + timedelta(hours=6), made) == made + timedelta(hours=12)
    assert every.following(made + timedelta(hours=12), made) is None
