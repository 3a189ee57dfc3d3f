"""Every command line that a page shows is run here as it stands, with names of what is there, or it says why not."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer
import yaml
from typer.testing import CliRunner

from gatehouse.cli import main as cli
from gatehouse.kfp.local_run import LocalRun
from gatehouse.store.store import ArtifactStore
from tests.docs.test_commands import _lines, _pages
from tests.small_example import EXAMPLE

pytestmark = pytest.mark.timeout(600)

ELSEWHERE = {
    "data try orders.csv",
    "data try orders.csv --no-open",
    "init churn --from customers.csv --label churned",
    "run returns",
    "run",
    "run --pipeline monitoring",
    "run --pipeline monitoring --param since=2013-11-01T00:00:00Z --param until=2013-12-01T00:00:00Z",
    "run --pipeline monitoring --param predictions=latest",
    "backfill --pipeline scoring --windows 2013-01-01/2013-07-01/P1M",
    "models approve flight-delays:4 --verdict 'sha256-3f9c…' --reason 'the slices hold'",
    "models live outcomes.parquet --model flight-delays --label-time landed",
    "models promote flight-delays:4",
    "models promote flight-delays:5 --to canary --share 0.05",
    "models promote flight-delays:5 --to canary --share 0.25",
    "models reproduce flight-delays@champion",
    "models exempt 'models/flight-delays/sha256-3f9c…' --rule 'slice carrier=OO' --until 2026-12-31 "
    "--reason 'its fleet is being replaced'",
    "tuning show flights --follow",
    "submit --platform platforms/cluster.yaml --param seed=7 --dry-run",
    "compile returns --platform returns/platforms/cluster.yaml --output compiled",
    "compile returns --platform returns/platforms/cluster.yaml",
}
"""Lines that train, score or judge, which take long or need a second model: other tests run them."""
NOWHERE = {
    "deploy flight-delays": "a cluster with kubectl",
    "deploy flight-delays --file deploy/flight-delays.yaml": "a bucket of Google",
    "deploy flight-delays --rollback": "a cluster with kubectl",
    "doctor cluster PROJECT --platform platforms/cluster.yaml": "a cluster with kubectl",
    "run returns --store gs://acme-ml/gatehouse": "a bucket of Google",
    "predictor flight-delays --log all": "somebody who stops it",
    "features stream --every 5": "a topic of Kafka",
    "serve --project flights --platform flights/platforms/cluster.yaml": "a cluster",
    "serve --store s3://acme-ml/gatehouse --project flights": "a bucket",
}
"""Lines that need what no test has."""
CHANGED = {
    "flight-delays:[234]": "flight-delays:1",
    "pipelines/projects/flights": str(EXAMPLE),
    r"gs://acme-ml/gatehouse": "elsewhere",
    r"datasets/orders/sha256-3f9c": "{snapshot}",
    r"snapshots/nycflights13/sha256-dc0b50eed65c": "{snapshot}",
    "--service both": "--service flight_delay",
    "--view basket": "--view origin_weather",
    r"\b(REF|REFERENCE|A|B)\b": "{snapshot}",
    r"\bRUN[12]?\b": "{run}",
    r"^report (\S+)$": r"report \1 --no-open",
}
"""What stands on a page, and what is there."""


def _shown() -> Iterator[str]:
    for page in _pages():
        for line, whole in _lines(page):
            if whole:
                lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
                lexer.whitespace_split = True
                yield shlex.join([*_until_end(lexer)][1:])


def _until_end(words: shlex.shlex) -> Iterator[str]:
    for word in words:
        if word in ("|", "&&", ";", ">", "<"):
            return
        yield word


LINES = sorted(set(_shown()) - ELSEWHERE - NOWHERE.keys(), key=lambda line: (not line.startswith("init"), line))


@pytest.fixture(scope="module")
def place(first: tuple[ArtifactStore, LocalRun], project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small example with the store of its first run, as its user has it, and a new project beside it."""
    folder = tmp_path_factory.mktemp("docs") / "flights"
    shutil.copytree(project, folder)
    shutil.copytree(first[0].address, folder / ".gatehouse" / "store")
    file = folder / "project.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"store": ".gatehouse/store"}))
    return folder


@pytest.fixture(scope="module")
def program() -> typer.Typer:
    cli.register(*cli._COMMANDS)
    return cli.app


@pytest.mark.parametrize("line", LINES)
def test_a_line_runs(
    line: str,
    place: Path,
    program: typer.Typer,
    first: tuple[ArtifactStore, LocalRun],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(place)
    names = {"snapshot": first[1].result("snapshot")["snapshot"], "run": first[1].run}
    for shown, there in CHANGED.items():
        line = re.sub(shown, there, line)
    if "rows.csv" in line:
        _write_rows(first, place / "rows.csv")
    result = CliRunner().invoke(program, shlex.split(line.format(**names)))
    assert result.exit_code == 0, f"{result.output}{result.exception!r}"


def _write_rows(first: tuple[ArtifactStore, LocalRun], path: Path) -> None:
    """Keys, times and what a request says of a few decisions."""
    output = first[0].manifest(first[1].result("retrieve_training_set")["training_set"])
    left_out = [*output.details["numeric"], *output.details["categorical"], "label", "label_time"]
    table = pq.read_table(first[0].paths(output.reference)).slice(0, 5).drop_columns(left_out)
    table.rename_columns({"decision_time": "event_timestamp"}).to_pandas().to_csv(path, index=False)
