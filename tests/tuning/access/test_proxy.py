"""Studies behind Optuna's proxy: the same experiment, also where answers are lost and the proxy is restarted."""

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import optuna
import pytest
from optuna.storages._grpc.auto_generated.api_pb2_grpc import add_StorageServiceServicer_to_server
from optuna.storages._grpc.servicer import OptunaStorageProxyService
from optuna.trial import TrialState
from typer.testing import CliRunner

from gatehouse.cli.tuning import app
from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.access import proxy as proxy_module
from gatehouse.tuning.access.address import STORAGE
from gatehouse.tuning.access.database import by_url
from gatehouse.tuning.access.proxy import ServedStorage, proxied
from gatehouse.tuning.access.storage import database
from gatehouse.tuning.controller import Controller
from gatehouse.tuning.opening import opened_study, read_study
from gatehouse.tuning.runner import Event
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.study import ExperimentStudy
from gatehouse.tuning.trial import Trial
from tests.ports import free_port
from tests.tuning.stand_in import SPACES, STEPS, Script, Scripted, experiment, trained

TPE = {"name": "tpe", "startup_trials": 2}
SPEC = experiment(algorithm=TPE, max_trial_count=6, parameters=SPACES["tpe"], early_stopping="median")
SECRETS = ["s3cret", "s3/cret", "12/s3cret", "12?s3cret", "12#s3cret", "s3@cret", "s3[cret", "12%40s3cret"]
"""Passwords that are no URL's, or leave a user and a port before them."""


class Proxy(grpc.ServerInterceptor):
    """Optuna's proxy in this process, which may lose answers; with each, it forgets what it knew, as by a restart.

    Attributes:
        losing: Whether every second answer of a method is lost.
        lost: The methods whose answers were lost.
        calls: How often each method was called.
        url: As clients name it.
    """

    def __init__(self, folder: Path) -> None:
        self.losing, self.lost, self.calls = False, list[str](), Counter[str]()
        self._database = by_url(f"sqlite:///{folder}/studies.db")
        self._begin()
        self._server = grpc.server(ThreadPoolExecutor(4), interceptors=[self])
        add_StorageServiceServicer_to_server(self._served, self._server)
        self.url = f"grpc://localhost:{self._server.add_insecure_port('localhost:0')}"
        self._server.start()

    def _begin(self) -> None:
        self._served = OptunaStorageProxyService(ServedStorage(self._database))

    def stop(self) -> None:
        """End it."""
        self._server.stop(None).wait()

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Answer, or have answered to nobody."""
        found, name = continuation(details), details.method.rpartition("/")[2]

        def answered(request: Any, context: Any) -> Any:
            answer = getattr(self._served, name)(request, context)
            self.calls[name] += 1
            if self.losing and self.calls[name] % 2 == 0:
                self.lost.append(name)
                self._begin()
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            return answer

        return grpc.unary_unary_rpc_method_handler(answered, found.request_deserializer, found.response_serializer)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy, one for all tests."""
    proxy = Proxy(tmp_path_factory.mktemp("database"))
    yield proxy
    proxy.stop()


@pytest.fixture
def proxy(shared: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The same, which loses nothing, as what studies lie in."""
    monkeypatch.setenv(STORAGE, shared.url)
    monkeypatch.setattr(proxy_module, "_PAUSE", 0.001)
    yield shared
    shared.losing = False
    shared.lost.clear()
    shared.calls.clear()


def _controlled(store: ArtifactStore, key: str, script: Script = trained, spec: ExperimentSpec = SPEC) -> Scripted:
    runner = Scripted(script)
    with opened_study(store.objects, key, spec, 3, STEPS) as study:
        Controller(study, runner).run()
    return runner


def _alone(key: str, spec: ExperimentSpec = SPEC) -> list[Trial]:
    return list(Controller(ExperimentStudy(spec, 3, STEPS, key), Scripted()).run().trials)


def test_no_trial_is_lost_where_every_second_answer_is(store: ArtifactStore, proxy: Proxy) -> None:
    proxy.losing = True
    assert _controlled(store, "lossy").started == list(range(6))
    assert {"CreateNewTrial", "SetTrialParameter", "SetTrialStateValues", "SetTrialUserAttribute"} <= set(proxy.lost)
    assert read_study(store.objects, "lossy")[0] == _alone("lossy")
    assert proxy.lost.count("CreateNewTrial") > 1
    begun = optuna.load_study(study_name="lossy", storage=database()).trials
    assert len(begun) == 6 + 1, "the answer to the last ask was not lost, or one before was begun for nothing"
    proxy.losing = False
    assert _controlled(store, "lossy").started == []
    more = SPEC.model_copy(update={"max_trial_count": 8})
    assert _controlled(store, "lossy", spec=more).started == [6, 7]
    assert read_study(store.objects, "lossy")[0] == _alone("lossy", more)


def test_a_trial_that_ended_in_another_way_is_not_ended_again(proxy: Proxy) -> None:
    study = optuna.create_study(storage=database(), study_name="ended")
    study.tell(asked := study.ask(), 0.5)
    assert study._storage.set_trial_state_values(asked._trial_id, TrialState.COMPLETE, [0.5])
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        study._storage.set_trial_state_values(asked._trial_id, TrialState.FAIL)
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        study._storage.set_trial_state_values(asked._trial_id, TrialState.COMPLETE, [0.25])


def test_a_proxy_that_is_away_is_named_at_once_and_may_be_there_for_the_next_attempt(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_module, "_FIRST", 0.5)
    monkeypatch.setenv(STORAGE, url := f"grpc://localhost:{free_port()}")
    with pytest.raises(
        StoreError, match=rf"expected Optuna's storage proxy at {url}, found UNAVAIL.* serve-storage"
    ) as raised:
        _controlled(store, "away")
    assert "refused" in str(raised.value) and not raised.value.permanent


def test_an_experiment_whose_proxy_stays_away_ends_and_goes_on_with_the_next(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxies = [Proxy(tmp_path)]

    def script(number: int, parameters: dict[str, Any]) -> Iterator[Event]:
        if number == 2:
            with monkeypatch.context() as patched:
                patched.setattr(proxy_module, "_LATER", 0.05)
                database().get_all_studies()  # type: ignore[union-attr]
            proxies.pop().stop()
        yield from trained(number, parameters)

    monkeypatch.setenv(STORAGE, proxies[0].url)
    with pytest.raises(StoreError, match=r"asked for 0\.05 s\. .* The experiment continues when it is run again"):
        _controlled(store, "k1", script)
    proxies.append(Proxy(tmp_path))
    monkeypatch.setenv(STORAGE, proxies[0].url)
    assert _controlled(store, "k1").started == list(range(2, 6))
    assert read_study(store.objects, "k1")[0] == _alone("k1")
    proxies[0].stop()


def test_what_answers_and_is_no_such_proxy_is_named(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    monkeypatch.setenv(STORAGE, f"grpc://localhost:{server.add_insecure_port('localhost:0')}")
    server.start()
    with pytest.raises(StoreError, match=r"found UNIMPLEMENTED: .*GetStudyIdFromName failed"):
        read_study(store.objects, "k1")
    server.stop(None).wait()


def test_an_error_of_the_database_is_told_and_does_not_wait(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, study_name: str) -> int:
        raise optuna.exceptions.StorageInternalError("the disk is full")

    monkeypatch.setattr(ServedStorage, "get_study_id_from_name", fail)
    with pytest.raises(StoreError, match=r"found UNKNOWN: .*the disk is full"):
        optuna.load_study(study_name="k1", storage=database())


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("grpc://", "grpc://"),
        ("grpc://:13000", "grpc://:13000"),
        ("grpc://db:port", "grpc://"),
        ("grpc://db:70000", "grpc://db:70000"),
        ("grpc://db:0", "grpc://db:0"),
        ("grpc://db/studies", "grpc://db"),
        ("grpc://db?token=s3cret", "grpc://db"),
        ("grpc://db:13000/#s3cret", "grpc://db:13000"),
        ("grpc://[::1]:13000/?token=s3cret", "grpc://[::1]:13000"),
        *((f"grpc://me:{each}@db", "grpc://") for each in SECRETS),
    ],
)
def test_what_names_no_proxy_is_refused_without_a_password(url: str, found: str) -> None:
    with pytest.raises(StoreError) as raised:
        proxied(url)
    assert f"{STORAGE}: expected grpc://HOST or grpc://HOST:PORT, found {found}" in str(raised.value)
    assert "cret" not in str(raised.value) and "me:" not in str(raised.value)


@pytest.mark.parametrize(("url", "address"), [("grpc://db/", "db:13000"), ("grpc://[::1]:1300", "[::1]:1300")])
def test_the_port_is_optunas_where_none_is_given(url: str, address: str) -> None:
    assert f"{proxied(url)._host}:{proxied(url)._port}" == address


def _serving(database: str, port: int) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-c",
        "from gatehouse.cli.main import main; main()",
        "tuning",
        "serve-storage",
        "--port",
        str(port),
    ]
    return subprocess.Popen(command, env=os.environ | {STORAGE: database}, stdout=subprocess.PIPE, text=True)


def test_an_experiment_goes_on_where_the_command_that_serves_it_is_killed_and_begun_again(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, port = f"sqlite:///{tmp_path}/studies.db?timeout=7", free_port()
    children = [_serving(url, port)]
    assert children[0].stdout and f"studies.db at grpc://127.0.0.1:{port}, without TLS" in children[0].stdout.readline()

    def script(number: int, parameters: dict[str, Any]) -> Iterator[Event]:
        if number == 2:
            children[0].kill()
            children[0].wait()
            children.append(_serving(url, port))
        yield from trained(number, parameters)

    monkeypatch.setenv(STORAGE, f"grpc://127.0.0.1:{port}")
    assert _controlled(store, "k1", script).started == list(range(6))
    assert read_study(store.objects, "k1")[0] == _alone("k1")
    assert read_study(store.objects, "another") == ([], "ended")
    assert not list(store.objects.list("tuning/k1/journal"))
    children[1].send_signal(signal.SIGTERM)
    said, _ = children[1].communicate()
    assert children[1].returncode == 0 and said.count("\n") == 1 and "timeout" not in said


def test_the_command_ends_by_sigterm_also_while_the_database_does_not_answer() -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        child = _serving(f"postgresql+psycopg://127.0.0.1:{silent.getsockname()[1]}/studies", free_port())
        connection, _ = silent.accept()
        with connection:
            child.send_signal(signal.SIGTERM)
            assert child.wait(30) == 0, "nothing handled SIGTERM, which process 1 of a pod ignores then"


@pytest.mark.parametrize(
    ("url", "arguments", "said"),
    [
        ("", [], "found none: studies are in the artifact store"),
        (" grpc://db\n", [], "found grpc://db, a proxy itself"),
        ("grpc://db?token=s3cret", [], "found grpc://db, a proxy itself"),
        *((f"grpc://me:{each}@db", [], STORAGE) for each in SECRETS),
        ("sqlite://", ["--host", "192.0.2.1"], "192.0.2.1:13000: expected an address on which a server can listen"),
    ],
)
def test_what_cannot_be_served_is_refused(
    url: str, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STORAGE, url)
    refused = CliRunner().invoke(app, ["serve-storage", *arguments]).exception
    assert isinstance(refused, ConfigurationError) and said in str(refused)
    assert "cret" not in str(refused) and "me:" not in str(refused)
