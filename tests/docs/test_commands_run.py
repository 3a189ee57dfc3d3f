"""Every command line that a page shows is run here as it stands, with names of what is there, or it says why not."""

import ast
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
from tests.source_tree import ROOT

pytestmark = pytest.mark.timeout(600)

_TABLE = "tests/docs/test_first_table.py::test_every_line_runs_and_prints_what_the_page_says"
_MODELS = "tests/registry/test_models_command.py::"
_DRIFT = (
    "tests/pipelines/test_monitoring.py::"
    "test_planted_drift_is_found_trained_for_once_and_the_new_model_becomes_the_champion"
)
_COMPILE = "tests/cli/test_compile.py::test_specs_for_a_platform_are_released_and_checked"
ELSEWHERE = {
    "data try orders.csv": ("data try", _TABLE),
    "data try orders.csv --no-open": ("data try --no-open", _TABLE),
    "init churn --from customers.csv --label churned": ("init --from --label", _TABLE),
    "run returns": ("run returns", _TABLE),
    "run": ("run", _TABLE),
    "run --pipeline monitoring": ("run --pipeline monitoring", _DRIFT),
    "run --pipeline monitoring --param since=2013-11-01T00:00:00Z --param until=2013-12-01T00:00:00Z": (
        "run --pipeline monitoring --param since",
        _DRIFT,
    ),
    "run --pipeline monitoring --param predictions=latest": (
        "predictions latest",
        "tests/monitoring/test_logs.py::test_the_latest_log_is_the_one_of_the_champion_that_knows_most",
    ),
    "backfill --pipeline scoring --windows 2013-01-01/2013-07-01/P1M": (
        "backfill --windows",
        "tests/cli/test_run.py::test_each_window_is_one_run_and_a_failed_one_stops_no_other",
    ),
    "models approve flight-delays:4 --reason 'the slices hold'": (
        "approve --reason",
        _MODELS + "test_promote_rollback_and_archive",
    ),
    "models promote flight-delays:4": ("promote", _MODELS + "test_promote_rollback_and_archive"),
    "models handoff flight-delays@canary --out flight-delays-canary": (
        "handoff --out",
        "tests/registry/test_handoff.py::test_the_command_writes_all_of_it",
    ),
    "models reproduce flight-delays@champion": (
        "reproduce @champion",
        "tests/registry/test_reproduction.py::test_the_command_ends_with_one_where_the_model_is_another",
    ),
    "models exempt 'models/flight-delays/sha256-3f9c…' --rule 'slice carrier=OO' --until 2026-12-31 "
    "--reason 'its fleet is being replaced'": (
        "exempt --rule --until --reason",
        _MODELS + "test_an_exemption_is_shown_wherever_the_verdict_is",
    ),
    "tuning show flights --follow": (
        "follow",
        "tests/cli/test_tuning.py::test_following_prints_a_line_for_each_event_and_ends_with_the_controller",
    ),
    "submit --platform platforms/cluster.yaml --param seed=7 --dry-run": (
        "submit --dry-run --param seed=7",
        "tests/cli/test_submit.py::test_a_pipeline_is_submitted_once",
    ),
    "compile returns --platform returns/platforms/cluster.yaml --output compiled": ("--platform --output", _COMPILE),
    "compile returns --platform returns/platforms/cluster.yaml": ("--platform", _COMPILE),
}
"""Lines that train, score or judge, which take long or need a second model: what of each stands in the test that does
the same, and that test. A test of a page runs all lines of the page."""
NOWHERE = {
    "doctor cluster PROJECT --platform platforms/cluster.yaml": "a cluster with kubectl",
    "run returns --store gs://acme-ml/gatehouse": "a bucket of Google",
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


LINES = sorted(set(_shown()) - ELSEWHERE.keys() - NOWHERE.keys(), key=lambda line: (not line.startswith("init"), line))


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
    cli._register("")
    return cli.app


def test_lines_that_are_not_run_here_are_on_a_page() -> None:
    assert not (ELSEWHERE.keys() | NOWHERE.keys()) - set(_shown())


@pytest.mark.parametrize(("line", "told"), ELSEWHERE.items())
def test_a_line_that_is_not_run_here_is_run_by_the_test_that_is_named(line: str, told: tuple[str, str]) -> None:
    words, test = told
    file, _, name = test.partition("::")
    source = (ROOT / file).read_text(encoding="utf-8")
    (body,) = [
        ast.get_source_segment(source, node) or ""
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    pages = re.findall(r'"docs" / "([a-z-]+\.md)"', body)
    body += "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in pages)
    assert [word for word in words.split() if word not in line or word not in body] == []


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
    found = first[0].manifest(first[1].result("retrieve_training_set")["training_set"])
    left_out = [*found.details["numeric"], *found.details["categorical"], "label", "label_time"]
    table = pq.read_table(first[0].paths(found.reference)).slice(0, 5).drop_columns(left_out)
    table.rename_columns({"decision_time": "event_timestamp"}).to_pandas().to_csv(path, index=False)
