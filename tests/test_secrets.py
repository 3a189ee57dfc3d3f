"""Secrets that the environment of a run holds are found nowhere: in no artifact, record, log, page, answer or error."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import requests

from gatehouse.errors import GatehouseError
from gatehouse.kfp.local_run import LocalRun
from gatehouse.runtime.redaction import redacted
from gatehouse.server.access import create_token
from gatehouse.server.app import create_app
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.stage import Declaration, Stage, StageModel
from gatehouse.store.store import ArtifactStore
from tests.server.serving import serving
from tests.small_example import MODEL, PLANTED

WORD = b"planted-"
"""What every planted secret begins with."""


def _bytes_of(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of every file; of tables, which are compressed, also what they hold."""
    for path in (item for item in folder.rglob("*") if item.is_file()):
        yield str(path), path.read_bytes()
        if path.suffix == ".parquet":
            table = pq.ParquetFile(path)
            for group in range(table.num_row_groups):
                rows = table.read_row_group(group)
                texts = [name for name in rows.column_names if str(rows.schema.field(name).type) in ("string", "json")]
                yield f"{path} {texts}", repr([*map(str, rows.schema.metadata or {}), rows.select(texts)]).encode()


def test_a_run_leaves_no_secret_of_its_environment(first: tuple[ArtifactStore, LocalRun]) -> None:
    store, outcome = first
    assert outcome.log.read_bytes()
    content = dict(_bytes_of(Path(store.address)))
    assert not [name for name, data in content.items() if WORD in data]
    # The search finds what is there: in a record, in MLflow's database and in a page.
    for part in ("/registry/", "mlflow.db", ".html"):
        assert [name for name, data in content.items() if part in name and MODEL.encode() in data], part


def test_no_answer_of_the_server_holds_a_secret(copy: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, secret in PLANTED.items():
        monkeypatch.setenv(name, secret)
    token = create_token(copy, "ros", ["read"], 1)
    version = f"{MODEL}@champion"
    paths = ["/v1/models", f"/v1/models/{MODEL}", f"/v1/resolve/{version}", f"/v1/explain/{version}"]
    paths += ["/v1/nothing", "/metrics", "/health/ready", "/", f"/models/{MODEL}", f"/models/{MODEL}/1", "/runs"]
    who = {"headers": {"Authorization": f"Bearer {token}"}, "cookies": {"gatehouse": token}}
    with serving(create_app(copy)) as address:
        answers = {path: requests.get(address + path, timeout=60, **who) for path in paths}
    assert [path for path, answer in answers.items() if answer.status_code == 200] == [
        path for path in paths if path != "/v1/nothing"
    ]
    assert not [path for path, item in answers.items() if WORD in item.content or token.encode() in item.content]


class _Nothing(StageModel):
    """What a stage is asked and gives that only fails."""


def test_an_error_is_recorded_without_the_secrets_that_it_tells(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reveal(request: _Nothing, store: ArtifactStore) -> _Nothing:
        raise GatehouseError(f"no answer: {PLANTED}")

    monkeypatch.setenv(RUN_ID, "run-1")
    for name, secret in PLANTED.items():
        monkeypatch.setenv(name, secret)
    with pytest.raises(GatehouseError):
        Stage(Declaration("tell", "Tell"), reveal)(_Nothing(), store)
    (failed,) = [event for _, event in events(store, "run-1") if event.event == "failed"]
    assert WORD.decode() not in str(failed.body)
    assert "postgresql://reader:***@db.example/flights" in failed.body["message"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("redis:6379,password=hunter22,db=1", "redis:6379,password=***,db=1"),
        ("postgresql://h/db?user=u&sslPassword=hidden/word&x=1", "postgresql://h/db?user=u&sslPassword=***&x=1"),
        ("passwd=hidden; client_secret=word token=other", "passwd=***; client_secret=*** token=***"),
        ("postgresql://u:hidden/word@host/db", "postgresql://u:***@host/db"),
        ("sftp://a:b/c@d and 'sftp://a:b/c@d@e'", "sftp://a:***@d and 'sftp://a:***@e'"),
        ("postgresql://u:hidden@word@host:1/a@b", "postgresql://u:***@b"),
    ],
)
def test_a_password_is_cleared_wherever_an_address_has_it(text: str, kept: str) -> None:
    assert redacted(text) == kept
