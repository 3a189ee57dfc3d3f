"""Studies in a database behind Optuna's proxy, and addresses that cannot be opened."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gatehouse.cli.tuning import app
from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning import storage as storage_module
from gatehouse.tuning.controller import Controller
from gatehouse.tuning.runner import Event
from gatehouse.tuning.storage import STORAGE, StorageAddressError, require_address
from gatehouse.tuning.study import ExperimentStudy, opened_study, read_study
from tests.ports import free_port
from tests.tuning.stand_in import SPACES, STEPS, Script, Scripted, experiment, trained

SPEC = experiment(max_trial_count=6, parameters=SPACES["tpe"], early_stopping="median")
SECRETS = ["s3cret", "s3/cret", "12/s3cret", "12?s3cret", "12#s3cret", "s3@cret", "s3[cret", "12%40s3cret"]
"""Passwords that no URL may have as they are."""


def _controlled(store: ArtifactStore, script: Script = trained) -> list[int]:
    runner = Scripted(script)
    with opened_study(store.objects, "k1", SPEC, 3, STEPS) as study:
        Controller(study, runner).run()
    return runner.started


def _serving(database: str, port: int) -> subprocess.Popen[str]:
    program = "from gatehouse.cli.main import main; main()"
    command = [sys.executable, "-c", program, "tuning", "serve-storage", "--port", str(port)]
    return subprocess.Popen(command, env=os.environ | {STORAGE: database}, stdout=subprocess.PIPE, text=True)


def test_an_experiment_continues_after_its_proxy_was_killed(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, port = f"sqlite:///{tmp_path}/studies.db?timeout=7", free_port()
    proxy = _serving(url, port)
    assert proxy.stdout and f"studies.db at grpc://127.0.0.1:{port}, without TLS" in proxy.stdout.readline()
    monkeypatch.setenv(STORAGE, f"grpc://127.0.0.1:{port}")

    def script(number: int, parameters: dict[str, Any]) -> Iterator[Event]:
        if number == 2:
            proxy.kill()
            proxy.wait()
        yield from trained(number, parameters)

    with pytest.raises(StoreError, match="the database of studies failed"):
        _controlled(store, script)
    storage_module._opened.cache_clear()
    again = _serving(url, port)
    assert again.stdout and again.stdout.readline()
    assert _controlled(store) == [2, 3, 4, 5]
    alone = Controller(ExperimentStudy(SPEC, 3, STEPS, "k1"), Scripted()).run()
    assert tuple(read_study(store.objects, "k1")[0]) == alone.trials
    assert not list(store.objects.list("tuning/k1/journal"))
    again.send_signal(signal.SIGTERM)
    output, _ = again.communicate()
    assert again.returncode == 0 and "timeout" not in output


def test_the_command_ends_by_sigterm_also_while_the_database_does_not_answer() -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        child = _serving(f"postgresql+psycopg://127.0.0.1:{silent.getsockname()[1]}/studies", free_port())
        connection, _ = silent.accept()
        with connection:
            child.send_signal(signal.SIGTERM)
            assert child.wait(30) == 0


@pytest.mark.parametrize(
    "url",
    [
        *("grpc://", "grpc://:13000", "grpc://db:port", "grpc://db:70000", "grpc://db:0", "grpc://db/studies"),
        *("grpc://db?token=s3cret", "grpc://db:13000/#s3cret", "grpc://[::1]:13000/?token=s3cret"),
        *("postgresql://me:s3cret@db:0/db", "postgresql://me:s3cret@db:99999/db", "oracel://me:s3cret@db/studies"),
        *(f"grpc://me:{secret}@db" for secret in SECRETS),
    ],
)
def test_an_address_that_can_never_be_opened_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(StorageAddressError, match=STORAGE) as raised:
        require_address(url)
    assert "cret" not in str(raised.value) and "me:" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "arguments", "message"),
    [
        ("", [], "found none"),
        (" grpc://db\n", [], "found grpc://db"),
        ("sqlite://", ["--host", "192.0.2.1"], "192.0.2.1:13000"),
    ],
)
def test_what_cannot_be_served_is_refused(
    url: str, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STORAGE, url)
    refused = CliRunner().invoke(app, ["serve-storage", *arguments]).exception
    assert isinstance(refused, ConfigurationError) and message in str(refused)
