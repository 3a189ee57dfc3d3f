"""What a door says of an address never depends on the password in it: fifty passwords, over every door."""

import logging
import os
import socketserver
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
import requests
import yaml
from pydantic import ValidationError

from gatehouse.api.projects import create_project
from gatehouse.data.sources.catalog import open_source, parse_source
from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.connection import Patience
from gatehouse.online.redis import RedisOnline, connect_redis
from gatehouse.operations.diagnosing_stage import mlflow_finding, tracking_finding
from gatehouse.operations.notice import post
from gatehouse.project.platforms import Platform
from gatehouse.registry.projection import registry_here
from gatehouse.runtime.redaction import (
    error_text,
    names_password,
    public_address,
    redacted,
    require_encoded,
    without_secrets,
)
from gatehouse.server.access import create_token
from gatehouse.server.app import create_app
from gatehouse.store.objects.opening import open_objects
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of
from gatehouse.tracking.place import warning_on_failure
from tests.operations.hook import hooked
from tests.server.serving import serving
from tests.stand_ins.http_server import Handler, listening

_MARKS = (*"@/#?[]%:\\'\"&=+;,<>{}|^`$!*()~é密", " ", "\t", "\u00a0")
PASSWORDS = [
    *(f"S3cr3t{mark}Tail" for mark in _MARKS),
    *("a@S3cr3t/b", "12/S3cr3t", "12?S3cr3t@x", "80#S3cr3t", "S3cr3t%zz", "S3cr3t%41", "S3cr3t@host:1/x", "//S3cr3t"),
    *("a", "1", "@", "/", "ab", "host", "password", "database", "refused", "postgresql", "MLflow"),
]
ENCODED, BARE = "S3cr3tWord", "S3cr3t@Word"
"""A password that needs no encoding, and one that is refused without it: what doors say of these, they say of all."""
TABLES = {"t": {"columns": {"a": "int64"}, "table": "t", "order_by": ["a"]}}
NO_STORE = cast(ArtifactStore, None)
"""No source of these tests keeps anything."""
IMPATIENT = Patience(request=1, retry=0, first_pause=0, settle=0)
Door = Callable[[str], object]


def _state(source: dict[str, Any]) -> None:
    with open_source(parse_source({"name": "s"} | source), "", NO_STORE) as reader:
        reader.state()


def _source(url: str, **source: Any) -> None:
    os.environ["SOURCE_URL"] = url
    _state(source)


def _sql(url: str) -> None:
    _source(url, kind="sql", url_env="SOURCE_URL", tables=TABLES)


def _catalog(url: str) -> None:
    os.environ["PYICEBERG_CATALOG__MAIN__URI"] = url
    table = {"columns": {"a": "int64"}, "identifier": "shop.t", "sort_on_ingest": True}
    _state({"kind": "iceberg", "catalog": "main", "tables": {"t": table}})


def _named(variable: str, ask: Callable[[], object]) -> Door:
    def open_door(url: str) -> object:
        os.environ[variable] = url
        return ask()

    return open_door


DOORS: dict[str, tuple[str, Door]] = {
    "adbc": ("postgresql://me:{}@127.0.0.1:1/db", _sql),
    "sqlalchemy": ("postgresql+psycopg://me:{}@127.0.0.1:1/db", _sql),
    "no driver": ("mysql+nosuch://me:{}@127.0.0.1:1/db", _sql),
    "declared": (
        "postgresql://me:{}@127.0.0.1:1/db",
        lambda url: _state({"kind": "sql", "url": url, "tables": TABLES}),
    ),
    "iceberg": ("postgresql+psycopg://me:{}@127.0.0.1:1/db", _catalog),
    "kfp": ("http://me:{}@127.0.0.1:1", lambda url: KfpApi.connect(url, patience=IMPATIENT).server()),
    "model registry": (
        "http://me:{}@127.0.0.1:1",
        _named("GATEHOUSE_MODEL_REGISTRY", lambda: list(registry_here().every("registered_models"))),  # type: ignore[union-attr]
    ),
    "webhook": ("http://me:{}@127.0.0.1/hook", lambda url: post(url, {}, "k", attempts=1)),
    "doctor": ("http://me:{}@127.0.0.1:1", mlflow_finding),
    "doctor, without a port": ("http://me:{}@localhost/nothing", mlflow_finding),
    "doctor, a database": ("postgresql://me:{}@127.0.0.1:1/db", mlflow_finding),
    "s3": ("http://me:{}@127.0.0.1:1", _named("AWS_ENDPOINT_URL", lambda: open_objects("s3://b/x"))),
    "gcs": ("http://me:{}@127.0.0.1:1", _named("STORAGE_EMULATOR_HOST", lambda: open_objects("gs://b/x"))),
    "store": ("s3://me:{}@b/x", open_objects),
    "profile": ("http://me:{}@127.0.0.1:1", lambda url: Platform(name="p", store="s3://b/x", endpoint=url)),
    "profile's registry": (
        "http://me:{}@127.0.0.1:1",
        lambda url: Platform.model_validate({"name": "p", "store": "s3://b/x", "model_registry": {"server": url}}),
    ),
    "a value of a file": ("http://me:{}@127.0.0.1:1", lambda url: without_secrets({"x": [url]})),
    "shown": ("http://me:{}@127.0.0.1:1/x?y={}#z", public_address),
}


class _Echo(socketserver.BaseRequestHandler):
    """A Redis that knows no command and says so as old ones do, repeating what it was sent."""

    def handle(self) -> None:
        while sent := self.request.recv(4096):
            words = " ".join(sent.decode(errors="replace").split())
            self.request.sendall(f"-ERR unknown command, with args beginning with: {words}\r\n".encode())


@cache
def _echo() -> int:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Echo)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_address[1])


def _shown_by(door: str, password: str, log: Callable[[], str]) -> str:
    """All that a door shows: what it returns, or its error with the traceback that a log would hold, and its log."""
    form, door_of = DOORS[door]
    url = form.replace("{}", password)
    before = dict(os.environ)
    try:
        answer = str(door_of(url))
    except ValidationError as error:
        answer = str([(item["loc"], item["msg"]) for item in error.errors()])
    except Exception as error:
        answer = "".join(traceback.format_exception(error))
    finally:
        os.environ.clear()
        os.environ.update(before)
    return answer + log()


@pytest.mark.parametrize("door", DOORS)
def test_what_a_door_says_does_not_depend_on_the_password(door: str, caplog: pytest.LogCaptureFixture) -> None:
    def log() -> str:
        lines = str(caplog.messages)
        caplog.clear()
        return lines

    caplog.set_level(logging.DEBUG)
    passed, refused = _shown_by(door, ENCODED, log), _shown_by(door, BARE, log)
    assert "S3cr3t" not in passed + refused and "Word" not in passed + refused
    assert "TypeError" not in passed + refused, "a mistake of this test says the same for all passwords too"
    for password in PASSWORDS:
        assert _shown_by(door, quote(password, safe=""), log) == passed, password
        assert _shown_by(door, password, log) in (passed, refused), password


@pytest.mark.parametrize("password", [item for item in PASSWORDS if set(item) & set("@/#?[]\\ '\"\t")])
def test_a_password_that_drivers_split_differently_is_refused_with_what_to_write(password: str) -> None:
    with pytest.raises(ConfigurationError, match=r"PLACE: .*write each @ of the password as %40"):
        require_encoded(f"postgresql://me:{password}@host/db", "PLACE")


@pytest.mark.parametrize(
    ("address", "seen"),
    [
        ("postgresql://me:p%40%2F@h:1/db?x=y", "postgresql://h:1/db"),
        ("postgresql://u:!$&()*+,;=:-._~@a:1,b:2/db", "postgresql://a:1,b:2/db"),
        ("postgresql:///db?host=/run/postgresql", "postgresql:///db"),
        ("oracle+cx_oracle://u:p@h/db", "oracle+cx_oracle://h/db"),
        ("unix://u:p@/run/redis.sock?db=1", "unix:///run/redis.sock"),
        ("sqlite:////data/me@corp/a b.db", "sqlite:////data/me@corp/a b.db"),
        ("sqlite://", "sqlite://"),
        ("https://hooks.example/a@b/c", "https://hooks.example/a@b/c"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
    ],
)
def test_an_address_that_all_split_alike_passes_and_is_shown_without_its_login(address: str, seen: str) -> None:
    assert require_encoded(f"{address}\n", "PLACE") == address
    assert public_address(address) == seen


@pytest.mark.parametrize(
    "address", ["me:pw@host", "http://h:x/", "http://me:80/pw@h", "postgresql:///me:pw@h/db", "a://h\n/b"]
)
def test_what_may_be_read_in_two_ways_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError):
        require_encoded(address, "PLACE")
    assert public_address(address) == ""


def test_an_error_is_told_with_its_cause_but_without_what_it_repeats() -> None:
    error = OSError("a://me:hush@h: Connection refused, as hush is wrong.")
    assert error_text(error, True) == "OSError: Connection refused; more is not shown, as it may repeat a password"
    assert error_text(OSError("no such\nfile."), secret=False) == "OSError: no such file"
    assert error_text(GatehouseError("our words."), secret=True) == "GatehouseError: our words"


ODBC = "mssql+pyodbc:///?odbc_connect=DRIVER%3D%7BODBC+Driver+18%7D%3BUID%3Dme%3BPWD%3D{}%3BEncrypt%3Dyes"


@pytest.mark.parametrize(
    ("written", "holds"),
    [
        ("postgresql://me:hunter2@host/db", True),
        ("postgresql://me:hun/ter2@host/db", True),
        ("postgresql://me@host/db?password=hunter2", True),
        ("postgresql://me@host/db?p%61ssword=hunter2", True),
        ("mssql+pyodbc://me@host/db?Pwd=hunter2", True),
        (ODBC.format("hunter2"), True),
        (ODBC.format("%7Bhunter2%3B1%7D"), True),
        (ODBC.split("%3BPWD")[0], False),
        ("http://host/a@b", False),
        ("postgresql://me:@host/db", False),
        ("postgresql://me@host/db?sslmode=require", False),
        ("sqlite:///data/passwords.db", False),
        ("data/me@corp", False),
    ],
)
def test_a_password_is_found_wherever_it_stands(written: str, holds: bool) -> None:
    assert names_password(written) == holds


@pytest.mark.parametrize(
    "declared",
    [
        {"kind": "sql", "url": ODBC.format("hunter2"), "tables": TABLES},
        {"kind": "files", "path": "s3://me:hunter2@b", "tables": {"t": {"member": "t.csv", "columns": {"a": "int64"}}}},
        {
            "kind": "delta",
            "tables": {"t": {"uri": "s3://me:hunter/2@b", "columns": {"a": "int64"}, "sort_on_ingest": True}},
        },
    ],
)
def test_a_declared_password_is_refused_and_not_shown(declared: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="holds a password") as caught:
        parse_source({"name": "s"} | declared)
    assert "hunter" not in redacted(str([error["msg"] for error in caught.value.errors()]))


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_connection_string_of_redis_is_not_shown(password: str) -> None:
    def door(word: str) -> str:
        try:
            RedisOnline(connect_redis(f"127.0.0.1:{_echo()},password={word},db=0"), "p").state("v")
        except Exception as error:
            return "".join(traceback.format_exception(error))
        return ""

    assert door(password) in (door(ENCODED), door("a,b")) and "S3cr3t" not in door(ENCODED) + door("S3cr3t,S3cr3t=1")
    with pytest.raises(ConfigurationError, match="expected host:port") as caught:
        connect_redis(f"redis://:{password}@127.0.0.1:1")
    assert "S3cr3t" not in str(caught.value)


class _Unwilling(Handler):
    """An MLflow server that refuses all, and repeats what it was sent."""

    def do_POST(self) -> None:
        self.sent()
        self.answer(403, {"error_code": "PERMISSION_DENIED", "message": f"{self.path} {self.headers}"})

    do_GET = do_POST


def test_what_mlflow_says_is_told_without_its_password(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(RUN_ID, "run-1")

    def log_of(password: str) -> str:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:{password}@127.0.0.1:{port}")
        caplog.clear()
        tracking = tracking_of(store)
        assert tracking is not None
        with warning_on_failure(store, "train:tracking"), tracking.client() as client:
            client.search_experiments(max_results=1)
        # The class tells only whether HTTP can send the password at all: its header has no letters beyond Latin 1.
        return f"{caplog.messages} {tracking_finding(store)}".replace("RestException", "MlflowException")

    with listening(_Unwilling) as port:
        passed, refused = log_of(ENCODED), log_of(BARE)
        assert "MlflowException" in passed and "%40" in refused
        for password in PASSWORDS:
            assert log_of(quote(password, safe="")) == passed
            assert log_of(password) in (passed, refused)
    content = str([event.body for _, event in events(store, "run-1")]) + passed + refused
    assert "S3cr3t" not in content


@cache
def _files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("password", ["a@S3cr3t/b", "S3cr3t%2FTail"])
def test_a_run_that_fails_leaves_no_part_of_a_password(tmp_path: Path, password: str) -> None:
    project = create_project("shop", tmp_path)
    body = yaml.safe_load((project / "project.yaml").read_text())
    table = body["source"]["tables"]["orders"]
    del table["member"]
    tables = {"orders": table | {"table": "orders", "order_by": ["order_id"]}}
    body["source"] = {"name": "shop", "kind": "sql", "url_env": "SHOP_URL", "tables": tables}
    (project / "project.yaml").write_text(yaml.safe_dump(body | {"alerts": "always"}))
    with hooked() as hook:
        arguments = {
            "SHOP_URL": f"postgresql://reader:{password}@127.0.0.1:1/db",
            "MLFLOW_TRACKING_URI": f"http://me:{password}@127.0.0.1:1",
            "GATEHOUSE_ALERT_WEBHOOK": hook.url,
        }
        command = [sys.executable, "-m", "gatehouse.cli.main", "run", str(project), "--until", "snapshot"]
        ended = subprocess.run(command, env=os.environ | arguments, capture_output=True, text=True, check=False)
    store = ArtifactStore.open(project / ".gatehouse" / "store")
    token = create_token(store, "ros", ["read"], 1)
    (run,) = store.objects.folders("runs")
    with serving(create_app(store)) as address:
        who = {"headers": {"Authorization": f"Bearer {token}"}, "cookies": {"gatehouse": token}}
        pages = [
            requests.get(f"{address}{path}", timeout=60, **who).text for path in ("/runs", f"/runs/{run}", "/v1/runs")
        ]
    shown_parts = ended.stdout + ended.stderr + str(hook.posts) + "".join(pages)
    assert ended.returncode and hook.posts
    assert "S3cr3t" not in shown_parts and b"S3cr3t" not in _files(Path(store.address))
    assert ("Connection refused" if "@" not in password else "percent-encoded") in ended.stdout + ended.stderr
    assert "***" not in str(hook.posts)
