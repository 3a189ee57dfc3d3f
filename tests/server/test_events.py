"""Events over HTTP: who may send them, the runs that they start, and what the server tells of its own changes."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from gatehouse.api.pipelines import SUBMITTED
from gatehouse.cli.serve import _accounts
from gatehouse.configuration.trigger import Trigger
from gatehouse.errors import ConfigurationError
from gatehouse.operations.outbox import Destination
from gatehouse.project.project import Project, load_project
from gatehouse.runtime.variables import TRIGGERS_SECRET
from gatehouse.server import background
from gatehouse.server.access import Rate, ServiceAccounts
from gatehouse.server.app import create_app
from gatehouse.server.problems import ProblemError
from gatehouse.store.store import ArtifactStore
from tests.api.test_events import S3, STRUCTURED
from tests.api.test_events import on_kfp as on_kfp
from tests.api.test_events import started as started
from tests.operations.hook import hooked
from tests.registry.gate import NAME, make_gate
from tests.server.serving import Client, client, serving
from tests.stand_ins.kfp_api import KfpServer
from tests.stand_ins.kubernetes_api import kubernetes

TRIGGERS = {
    "new-data": {"pipeline": "training", "type": "object.*"},
    "minio": {"pipeline": "scoring", "type": "com.amazonaws.s3.ObjectCreated:*", "subject": "flights/*"},
    "approve": {"pipeline": "promotion", "type": "approved"},
}
SECRET = b"an example of 24 bytes.."
CLOUD = {"Content-Type": "application/cloudevents+json"}


@pytest.fixture
def flights(project: Path) -> Project:
    loaded = load_project(project)
    triggers = {name: Trigger.model_validate(body) for name, body in TRIGGERS.items()}
    return replace(loaded, file=loaded.file.model_copy(update={"triggers": triggers}))


@pytest.fixture
def callers(store: ArtifactStore, flights: Project, started: list[str]) -> Iterator[dict[str, Client]]:
    """A server of the project, and callers by their scope."""
    by_scope = {scope: client(store, "", scope, scope) for scope in ("read", "run", "promote")}
    by_scope |= {"all": client(store, "", "all", "run", "promote"), "nobody": Client("", "")}
    with serving(create_app(store, flights, Rate(1000, 1000))) as address:
        for caller in by_scope.values():
            caller.address = address
        yield by_scope


def send(caller: Client, body: Any = None, **headers: str) -> requests.Response:
    data = body if isinstance(body, bytes) else json.dumps(STRUCTURED if body is None else body).encode()
    own = {"Authorization": f"Bearer {caller.secret}"} if caller.secret else {}
    return requests.post(f"{caller.address}/v1/events", data, headers=CLOUD | own | headers, timeout=60)


def test_an_event_starts_a_run_once_in_every_mode(callers: dict[str, Client], started: list[str]) -> None:
    first = send(callers["run"])
    assert first.status_code == 202, first.text
    ((order),) = first.json()
    assert (order["trigger"], order["pipeline"], order["by"], order["run"]) == (
        "new-data",
        "training",
        "run",
        started[0],
    )
    binary = {f"ce-{name}": value for name, value in STRUCTURED.items()} | {"Content-Type": "application/json"}
    assert send(callers["all"], b"{}", **binary).json() == send(callers["run"]).json() == [order]
    assert started == [order["run"]]
    run = callers["read"].get(f"/v1/runs/{order['run']}").json()
    assert (run["state"], run["by"], run["pipeline"], run["reason"]) == ("pending", "run", "training", "event new-data")


def test_a_notification_of_minio_starts_the_run_of_its_trigger(callers: dict[str, Client], started: list[str]) -> None:
    ((order),) = send(callers["run"], S3, **{"Content-Type": "application/json"}).json()
    assert (order["pipeline"], order["run"]) == ("scoring", started[0])


@pytest.mark.parametrize(("caller", "status"), [("nobody", 401), ("read", 403), ("promote", 403), ("forged", 401)])
def test_who_may_not_run_starts_nothing(
    callers: dict[str, Client], store: ArtifactStore, started: list[str], caller: str, status: int
) -> None:
    forged = Client(callers["run"].address, callers["run"].secret[:-1] + "!")
    assert send(callers.get(caller, forged)).status_code == status
    assert not started and not list(store.objects.list("triggers"))


def test_an_event_that_promotes_needs_both_scopes(callers: dict[str, Client], started: list[str]) -> None:
    approved = STRUCTURED | {"type": "approved"}
    assert send(callers["run"], approved).status_code == 403 and not started
    assert send(callers["all"], approved).status_code == 202 and len(started) == 1
    for pipeline in ("promotion", "rollout"):
        assert callers["run"].post("/v1/runs", pipeline=pipeline).status_code == 403
        assert callers["all"].post("/v1/runs", pipeline=pipeline).status_code == 202


@pytest.mark.parametrize(
    ("body", "status"), [(b"x", 422), (b"{}", 422), (b"x" * 70_000, 413), (STRUCTURED | {"type": "other"}, 202)]
)
def test_what_starts_nothing(callers: dict[str, Client], started: list[str], body: Any, status: int) -> None:
    answer = send(callers["run"], body)
    assert (answer.status_code, started) == (status, [])
    assert status != 202 or answer.json() == []


def signed(body: bytes, secret: bytes = SECRET, late: float = 0.0, key: str = "1") -> dict[str, str]:
    moment = str(int(time.time() - late))
    digest = hmac.new(secret, f"{key}.{moment}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": key, "webhook-timestamp": moment, "webhook-signature": f"v1,AAAA {signature}"}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 202),
        ({"secret": b"another secret"}, 401),
        ({"late": 400.0}, 401),
        ({"late": -400.0}, 401),
        ({"body": b"{}"}, 401),
        ({"webhook-id": "2"}, 401),
        ({"webhook-timestamp": "²"}, 401),
        ({"webhook-timestamp": "9" * 400}, 401),
        ({"webhook-signature": "v1,é"}, 401),
        ({"webhook-signature": ""}, 401),
    ],
)
def test_a_signature_stands_for_a_token(
    callers: dict[str, Client], started: list[str], monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], status: int
) -> None:
    body = json.dumps(STRUCTURED).encode()
    arguments = {name: value for name, value in change.items() if name in ("secret", "late")}
    headers = signed(change.get("body", body), **arguments)
    headers |= {name: value for name, value in change.items() if name.startswith("webhook")}
    headers = {name: value.encode() for name, value in headers.items()}  # type: ignore[misc]
    assert send(callers["nobody"], body, **headers).status_code == 401, "this server has no secret"
    monkeypatch.setenv(TRIGGERS_SECRET, f"whsec_{base64.b64encode(SECRET).decode()}")
    assert send(callers["nobody"], body, **headers).status_code == status
    assert len(started) == (status == 202)


def test_a_run_whose_time_has_not_come_is_started_by_the_server(
    store: ArtifactStore, flights: Project, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_PAUSE", 0.05)
    trigger = flights.file.triggers["new-data"].model_copy(update={"debounce": _seconds(1.0)})
    debounced = replace(flights, file=flights.file.model_copy(update={"triggers": {"new-data": trigger}}))
    caller = client(store, "", "rune", "run")
    with serving(create_app(store, debounced)) as caller.address:
        ((order),) = send(caller).json()
        assert order["run"] == "" and not started
        assert send(caller, STRUCTURED | {"id": "2"}).json() == [order]
        _until(lambda: started == [order["name"]])
        _until(lambda: send(caller).json()[0]["run"] == order["name"])
    assert started == [order["name"]]


def _seconds(number: float) -> Any:
    from datetime import timedelta

    return timedelta(seconds=number)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_with_a_platform_runs_go_to_kfp_and_their_state_comes_from_there(
    store: ArtifactStore,
    flights: Project,
    on_kfp: Callable[[ArtifactStore], Path],
    kfp_server: KfpServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trigger = flights.file.triggers["new-data"].model_copy(update={"parameters": {"word": "{subject}"}})
    worded = replace(flights, file=flights.file.model_copy(update={"triggers": {"new-data": trigger}}))
    monkeypatch.setattr("gatehouse.api.pipelines.Submission.arguments", {"word": "hello"})
    caller = client(store, "", "rune", "run")
    with serving(create_app(store, worded, profile=on_kfp(store))) as caller.address:
        submitted = caller.post("/v1/runs", pipeline="training", reason="try")
        assert submitted.status_code == 202, submitted.text
        ((order),) = send(caller).json()
        assert {submitted.json()["id"], order["run"]} == {*kfp_server.objects.runs}
        place = submitted.headers["Location"]
        assert [caller.get(place).json()[name] for name in ("state", "by", "reason")] == ["pending", "rune", "try"]
        for state, expected in (("RUNNING", "running"), ("FAILED", "failed")):
            kfp_server.objects.set_state(submitted.json()["id"], state)
            assert caller.get(place).json()["state"] == expected
    assert json.loads(store.objects.get_bytes(f"runs/{order['run']}/{SUBMITTED}"))["by"] == "rune"


def test_a_change_at_the_server_is_told_at_once(
    store: ArtifactStore, flights: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)
    gate = make_gate(store)
    gate.run(gate.model(1))
    gate.run(gate.model(2))
    update = {"events": {"ops": Destination(types=("gatehouse.model.rolled-back",))}, "model": NAME}
    told = replace(flights, file=flights.file.model_copy(update=update))
    caller = client(store, "", "paul", "promote")
    with hooked(200) as hook, serving(create_app(store, told)) as caller.address:
        monkeypatch.setenv("GATEHOUSE_EVENTS_OPS_WEBHOOK", hook.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
        assert caller.post(f"/v1/models/{NAME}/rollback", version=2, reason="worse").status_code == 200
        _until(lambda: bool(hook.bodies))
    assert (hook.bodies[0]["subject"], hook.bodies[0]["data"]["by"]) == (f"{NAME}:1", "paul")


SENSOR = "eyJhbGciOiJS.eyJzdWIiOiJzZW5zb3I.c2lnbmF0dXJl"


def test_a_pod_calls_with_the_token_of_its_service_account(
    store: ArtifactStore, flights: Project, started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kubernetes(lambda *_: None) as cluster:
        monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig(tmp_path))
        cluster.accounts = {
            SENSOR: ("system:serviceaccount:argo-events:sensor", ["gatehouse"]),
            SENSOR + "B": ("system:serviceaccount:argo-events:sensor", ["https://kubernetes.default.svc"]),
            SENSOR + "C": ("system:serviceaccount:other:sensor", ["gatehouse"]),
            SENSOR + "D": ("sensor", ["gatehouse"]),
        }
        app = create_app(store, flights, accounts=_accounts(["argo-events:sensor=run"]))
        with serving(app) as address:
            for token, status in ((SENSOR, 202), (SENSOR + "B", 401), (SENSOR + "C", 401), (SENSOR + "D", 401)):
                for _ in range(2):
                    assert send(Client(address, token)).status_code == status, token
            assert send(Client(address, SENSOR + "E")).status_code == 401
            assert cluster.requests.count("POST /apis/authentication.k8s.io/v1/tokenreviews") == 5, "kept for a minute"
            refused = Client(address, SENSOR).post(f"/v1/models/{NAME}/rollback", version=2)
            assert refused.status_code == 403
            cluster.token = "another"
            assert send(Client(address, SENSOR)).status_code == 202
            assert send(Client(address, SENSOR + "F")).status_code in (409, 503), "Kubernetes does not answer"
    assert len(started) == 1
    written = "".join(path.read_text(errors="replace") for path in Path(store.address).rglob("*") if path.is_file())
    assert SENSOR not in written and "system:serviceaccount:argo-events:sensor" in written


def test_made_up_tokens_do_not_flood_kubernetes() -> None:
    reviewed, refused = list[Any](), 0

    def review(body: Any) -> dict[str, Any]:
        reviewed.append(body)
        return {}

    accounts = ServiceAccounts({}, review)
    for number in range(200):
        try:
            assert accounts.token_of(f"{SENSOR}{number}") is None
        except ProblemError as error:
            refused += error.status == 429
    assert 50 <= len(reviewed) == 200 - refused < 100


@pytest.mark.parametrize("text", ["", "sensor=run", "a:b=", "a:b=all", "a:b=run,", "A:b=run"])
def test_a_service_account_needs_a_name_and_scopes(text: str) -> None:
    with pytest.raises(ConfigurationError):
        _accounts([text])
