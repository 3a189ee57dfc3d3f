"""Secrets are refused in values that everybody may see, and are not in what a failure says."""

import os
import traceback
from collections.abc import Callable
from typing import Any, cast

import pytest
from pydantic import ValidationError

from gatehouse.data.sources.catalog import open_source, parse_source
from gatehouse.errors import ConfigurationError
from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.connection import Patience
from gatehouse.operations.diagnosing_stage import mlflow_finding
from gatehouse.operations.notice import post
from gatehouse.project.platforms import Platform
from gatehouse.registry.projection import registry_here
from gatehouse.runtime.redaction import error_text, holds_secret, public_address, redacted, require_encoded
from gatehouse.runtime.redaction import without_secrets as shown
from gatehouse.store.objects.opening import open_objects
from gatehouse.store.store import ArtifactStore

PASSWORDS = ("S3cr3tWord", "S3cr3t%2FTail", "S3cr3t@Tail", "S3cr3t/Tail", "a@S3cr3t/b", "80#S3cr3t")
TABLES = {"t": {"columns": {"a": "int64"}, "table": "t", "order_by": ["a"]}}
ODBC = "mssql+pyodbc:///?odbc_connect=DRIVER%3D%7BODBC+Driver+18%7D%3BUID%3Dme%3BPWD%3D{}%3BEncrypt%3Dyes"


def _state(source: dict[str, Any]) -> None:
    with open_source(parse_source({"name": "s"} | source), "", cast(ArtifactStore, None)) as reader:
        reader.state()


def _named(variable: str, ask: Callable[[], object]) -> Callable[[str], object]:
    def open_door(url: str) -> object:
        os.environ[variable] = url
        return ask()

    return open_door


SQL = _named("SOURCE_URL", lambda: _state({"kind": "sql", "url_env": "SOURCE_URL", "tables": TABLES}))
DOORS: dict[str, tuple[str, Callable[[str], object]]] = {
    "adbc": ("postgresql://me:{}@127.0.0.1:1/db", SQL),
    "sqlalchemy": ("postgresql+psycopg://me:{}@127.0.0.1:1/db", SQL),
    "declared": ("postgresql://me:{}@h/db", lambda url: _state({"kind": "sql", "url": url, "tables": TABLES})),
    "kfp": (
        "http://me:{}@127.0.0.1:1",
        lambda url: KfpApi.connect(url, patience=Patience(request=1, retry=0, first_pause=0, settle=0)).server(),
    ),
    "model registry": (
        "http://me:{}@127.0.0.1:1",
        _named("GATEHOUSE_MODEL_REGISTRY", lambda: list(registry_here().every("registered_models"))),  # type: ignore[union-attr]
    ),
    "webhook": ("http://me:{}@127.0.0.1/hook", lambda url: post(url, {}, "k", attempts=1)),
    "doctor": ("http://me:{}@127.0.0.1:1", mlflow_finding),
    "s3": ("http://me:{}@127.0.0.1:1", _named("AWS_ENDPOINT_URL", lambda: open_objects("s3://b/x"))),
    "gcs": ("http://me:{}@127.0.0.1:1", _named("STORAGE_EMULATOR_HOST", lambda: open_objects("gs://b/x"))),
    "store": ("s3://me:{}@b/x", open_objects),
    "profile": ("http://me:{}@127.0.0.1:1", lambda url: Platform(name="p", store="s3://b/x", endpoint=url)),
    "a value of a file": ("http://me:{}@127.0.0.1:1", lambda url: shown({"x": [url], "token": url})),
    "shown": ("http://me:{}@127.0.0.1:1/x?y=z", public_address),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_shows_a_password(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, ask = DOORS[door]
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for password in PASSWORDS:
        try:
            said = str(ask(form.format(password)))
        except ValidationError as error:
            said = str([item["msg"] for item in error.errors()])
        except Exception as error:
            said = "".join(traceback.format_exception(error))
        assert "TypeError" not in said and "S3cr3t" not in said, password


@pytest.mark.parametrize(
    ("address", "seen"),
    [
        ("postgresql://me:p%40%2F@h:1/db?x=y", "postgresql://h:1/db"),
        ("postgresql://u:!$&()*+,;=:-._~@a:1,b:2/db", "postgresql://a:1,b:2/db"),
        ("postgresql:///db?host=/run/postgresql", "postgresql:///db"),
        ("unix://u:p@/run/redis.sock?db=1", "unix:///run/redis.sock"),
        ("sqlite:////data/me@corp/a b.db", "sqlite:////data/me@corp/a b.db"),
        ("https://hooks.example/a@b/c", "https://hooks.example/a@b/c"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
        *(
            (address, "")
            for address in ("me:pw@host", "http://h:x/", "http://me:80/pw@h", "p:///me:pw@h/d", "a://h\n/")
        ),
    ],
)
def test_an_address_that_all_split_alike_is_shown_without_its_login_and_another_is_refused(
    address: str, seen: str
) -> None:
    assert public_address(address) == seen
    if seen:
        assert require_encoded(f"{address}\n", "PLACE") == address
    else:
        with pytest.raises(ConfigurationError, match="PLACE: expected an address"):
            require_encoded(address, "PLACE")


SECRET = """postgresql://me:hunter2@host/db\npostgresql://me:hun/ter2@host/db\npostgresql://me@host/db?p%61ssword=hunter2
mssql+pyodbc://me@host/db?Pwd=hunter2\nDATABASE_URL=postgresql://u:pw@h/db\nDB_PASS=hunter2\nX=Password=hunter2;S=h
S=x ghp_0123456789abcdef\nDB_PASSWORD=a\ntrain.py --api-key=abc123\n--token hf_abc
curl https://h/p?token=abc123 --lr 0.1"""
HARMLESS = """http://host/a@b\npostgresql://me:@host/db\npostgresql://me@host/db?sslmode=require\nsqlite:///passwords.db
data/me@corp\nPASSES=3\nKEYBOARD=us\nFIRST_PASS=true\nPWD=/work\nBYPASS=linear\nHF_TOKEN=\n--passes 30\n--tokenizer=gpt2
--pad-token <pad>\n--eos_token=EOS\n--max-token 131072\n--api-key {key}\n--use-token --lr=1\n--token=$T x
--token ${HF_TOKEN} x\npostgresql://u:$PW@h/db\nhttp://h:80/x@y\ns3://b/x"""


def test_what_looks_like_a_secret_is_told_from_what_does_not() -> None:
    secrets = [*SECRET.splitlines(), ODBC.format("hunter2"), ODBC.format("%7Bhunter2%3B1%7D")]
    assert [text for text in secrets if not holds_secret(text)] == []
    assert [text for text in [*HARMLESS.splitlines(), ODBC.split("%3BPWD")[0]] if holds_secret(text)] == []


def test_a_message_loses_the_secrets_of_its_process_and_those_that_look_like_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("X_TOKEN", "/planted")
    monkeypatch.setenv("SOURCE_URL", "postgresql://me:hush%2Fhush@h/db")
    monkeypatch.setenv("REDIS", "host:1,password=silent")
    text = "a /planted b hush%2Fhush c hush/hush d silent e PWD=other1 f"
    assert redacted(text) == "a *** b *** c *** d *** e PWD=*** f"
    assert error_text(OSError("no such\nfile of s3://a:b@c.")) == "OSError: no such file of s3://a:***@c"
