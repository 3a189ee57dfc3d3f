"""The client against a server that fails, is slow, restarts, and refuses."""

import threading
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.connection import KfpError, KfpRefusedError, Patience
from gatehouse.kfp_api.specs import parts_of
from tests.stand_ins.kfp_api import FAULTS, IMPATIENT, PERSISTENT, PIPELINE, KfpServer, Objects, impatient, serving


def connect(server: KfpServer, patience: Patience = PERSISTENT, **arguments: Any) -> KfpApi:
    return KfpApi.connect(server.endpoint, patience=patience, **arguments)


def submit(api: KfpApi, name: str = "run-1") -> Any:
    """A run of the small pipeline, from nothing."""
    pipeline = api.pipeline("say", tags={"project": "flights"})
    version = api.upload_version(pipeline.id, PIPELINE)
    return api.create_run(name, pipeline.id, version.id, {"word": "hello"}, "talks")


@pytest.fixture
def api(kfp_server: KfpServer) -> KfpApi:
    return connect(kfp_server)


def test_a_run_is_of_its_version_and_experiment(api: KfpApi, kfp_server: KfpServer) -> None:
    run = submit(api)
    result = api.run(run.id)
    assert (result.name, result.state, result.parameters) == ("run-1", "PENDING", {"word": "hello"})
    assert result.finished_at is None and result.history[0][0] == "PENDING"
    assert api.version(result.pipeline, result.version).spec == parts_of(PIPELINE)[0]
    assert [item.id for item in api.runs("talks")] == [run.id]
    assert not list(api.runs("another experiment"))


def calls_of_a_submission() -> int:
    with serving() as server:
        submit(connect(server))
        return len(server.calls)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_call_doubles_nothing(fault: str) -> None:
    calls = calls_of_a_submission()
    with serving() as server:
        for number in range(calls):
            server.objects, server.faults = Objects(), {len(server.calls) + number: fault}
            api = connect(server, impatient(fault))
            with suppress(KfpError):
                submit(api)
            server.down, server.faults = False, {}
            submit(connect(server) if fault == "slow" else api)
            kept = server.objects
            counts = [len(made) for made in (kept.pipelines, kept.pipeline_versions, kept.experiments, kept.runs)]
            assert counts == [1, 1, 2, 1], f"call {number}: {server.calls[-calls:]}"


def test_lists_are_read_page_by_page(api: KfpApi, kfp_server: KfpServer) -> None:
    submit(api)
    first = kfp_server.objects.runs[next(iter(kfp_server.objects.runs))]
    for number in range(230):
        kfp_server.objects.create_run({**_body(first), "display_name": f"more-{number}"})
    names = [run.name for run in api.runs("talks")]
    assert names == [f"more-{number}" for number in reversed(range(230))] + ["run-1"]
    since = datetime.fromisoformat(kfp_server.objects.runs[list(kfp_server.objects.runs)[-10]]["created_at"])
    assert len(list(api.runs(since=since))) == 10


@pytest.mark.parametrize("state", ["SUCCEEDED", "SKIPPED", "FAILED", "CANCELED"])
def test_waiting_ends_however_the_run_ends(api: KfpApi, kfp_server: KfpServer, state: str) -> None:
    run = submit(api)
    later(lambda: kfp_server.objects.set_state(run.id, state))
    ended = api.wait(run.id, timeout=20)
    assert ended.state == state and ended.finished_at is not None


def test_waiting_outlives_a_restart_and_a_cancelled_and_retried_run(api: KfpApi, kfp_server: KfpServer) -> None:
    run = submit(api)
    api.terminate(run.id)
    assert api.run(run.id).state == "CANCELING"
    api.terminate(run.id)
    kfp_server.objects.set_state(run.id, "CANCELED")
    kfp_server.objects.set_state(run.id, "RUNNING")
    waiting = connect(kfp_server, IMPATIENT)
    kfp_server.down = True

    def back() -> None:
        kfp_server.objects.set_state(run.id, "SUCCEEDED")
        kfp_server.down = False

    later(back, 0.5)
    assert waiting.wait(run.id, timeout=20).state == "SUCCEEDED"


def test_waiting_ends_in_time_and_where_the_run_is_deleted(api: KfpApi, kfp_server: KfpServer) -> None:
    run = submit(api)
    with pytest.raises(KfpError, match=r"has not ended within 0\.02 s; it was PENDING last"):
        api.wait(run.id, timeout=0.02)
    later(lambda: kfp_server.objects.runs.pop(run.id))
    with pytest.raises(KfpRefusedError, match="not found"):
        api.wait(run.id, timeout=20)


def test_requests_name_the_namespace(kfp_server: KfpServer) -> None:
    submit(connect(kfp_server, namespace="team-a"))
    named = dict(zip(kfp_server.calls, kfp_server.namespaces, strict=True))
    assert {call for call, namespace in named.items() if namespace == "team-a"} >= {
        *("GET pipelines/names/{name}", "POST pipelines", "GET experiments", "POST experiments", "GET runs"),
    }


def test_a_server_of_several_users_needs_a_namespace() -> None:
    with serving(multi_user=True) as server, pytest.raises(ConfigurationError, match="GATEHOUSE_KFP_NAMESPACE"):
        connect(server).server()


def test_a_server_of_one_user_has_no_namespace(kfp_server: KfpServer) -> None:
    with pytest.raises(ConfigurationError, match="kubeflow"):
        connect(kfp_server, namespace="kubeflow").server()


def test_a_token_is_read_again_when_it_is_refused(
    kfp_server: KfpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, answer = tmp_path / "token", kfp_server.answer
    file.write_text("old\n")
    kfp_server.token = "a"

    def renewing(*request: Any) -> Any:
        answered = answer(*request)
        file.write_text("a\n")
        return answered

    kfp_server.answer = renewing  # type: ignore[method-assign, assignment]
    monkeypatch.setenv("GATEHOUSE_KFP_TOKEN_FILE", str(file))
    assert submit(connect(kfp_server)).name == "run-1"
    monkeypatch.setenv("GATEHOUSE_KFP_TOKEN", "old")
    with pytest.raises(KfpRefusedError, match=r"401.*GATEHOUSE_KFP_TOKEN"):
        submit(connect(kfp_server))


def test_an_address_is_needed_and_must_be_that_of_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GATEHOUSE_KFP_ENDPOINT", raising=False)
    with pytest.raises(ConfigurationError, match="set GATEHOUSE_KFP_ENDPOINT"):
        KfpApi.connect()
    with pytest.raises(ConfigurationError, match="expected an address"):
        KfpApi.connect("localhost:8888")
    with pytest.raises(KfpError, match="does not answer GET healthz"):
        KfpApi.connect("http://127.0.0.1:9", patience=IMPATIENT).server()


def later(action: Any, seconds: float = 0.03) -> None:
    """Do something while the test waits for its effect."""
    threading.Timer(seconds, action).start()


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["PENDING", "RUNNING", "CANCELING", "FAILED"], "CANCELED"),
        (["PENDING", "RUNNING", "CANCELING", "FAILED", "RUNNING", "FAILED"], "FAILED"),
        (["PENDING", "RUNNING", "SUCCEEDED"], "SUCCEEDED"),
    ],
)
def test_a_run_that_a_user_terminated_is_cancelled_though_kfp_says_failed(
    api: KfpApi, kfp_server: KfpServer, states: list[str], state: str
) -> None:
    """As seen on Kubeflow Pipelines 2.17."""
    run = submit(api)
    for entry in states[1:]:
        kfp_server.objects.set_state(run.id, entry)
    assert api.run(run.id).state == state
    assert [item for item, _ in api.run(run.id).history] == states


def test_tasks_have_the_times_at_which_they_began(api: KfpApi, kfp_server: KfpServer) -> None:
    run = submit(api)
    kfp_server.objects.begin_task(run.id, "say")
    kfp_server.objects.begin_task(run.id, "omitted", state="")
    assert list(api.run(run.id).tasks) == list(next(api.runs()).tasks) == ["say", "executor"]


def _body(run: dict[str, Any]) -> dict[str, Any]:
    return {key: run[key] for key in ("experiment_id", "runtime_config", "pipeline_version_reference")}


@pytest.mark.parametrize("token", ["first\nsecond", "two words", "naïve"])
def test_a_token_that_no_header_takes_is_refused_and_not_shown(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEHOUSE_KFP_TOKEN", token)
    with (
        serving() as server,
        pytest.raises(ConfigurationError, match="GATEHOUSE_KFP_TOKEN: expected one word") as caught,
    ):
        connect(server).server()
    assert token not in str(caught.value) and caught.value.__cause__ is None


@pytest.mark.parametrize("fault", ["dropped", "after", "slow"])
def test_a_post_that_got_no_answer_is_not_sent_again(fault: str) -> None:
    """The server may carry it out later than we look."""
    with serving(late=1.0) as server:
        api = connect(server)
        submit(api, "run-0")
        pipeline = api.pipeline("say")
        version = next(api.versions(pipeline.id))
        server.faults = {len(server.calls) + 2: fault}
        server.objects.create_run = lambda *received: {}  # type: ignore[method-assign]
        patience = replace(PERSISTENT, request=0.5, settle=0.02)
        with pytest.raises(KfpError, match="may still do it"):
            connect(server, patience).create_run("run-1", pipeline.id, version.id, {"word": "hello"}, "talks")
        assert server.calls.count("POST runs") == 2
        server.errors.clear()
