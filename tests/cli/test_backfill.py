"""`gatehouse backfill`: one run for each window, and what a failed one does to the others."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gatehouse.cli import backfill as command
from gatehouse.cli.main import app
from gatehouse.cli.run import from_here
from gatehouse.kfp.local_run import LocalRun
from tests.small_example import EXAMPLE

app.command("backfill")(command.backfill)
WINDOWS = "2013-01-01/2013-04-01/P1M"


@pytest.mark.parametrize(("codes", "exit_code"), [((0, 2, 0), 2), ((0, 0, 0), 0), ((0, 130), 130)])
def test_each_window_is_one_run_and_a_failed_one_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...], exit_code: int
) -> None:
    asked: list[dict[str, Any]] = []

    def ran(project: Path, pipeline: str, store: object, arguments: dict[str, Any]) -> LocalRun:
        asked.append(arguments)
        return LocalRun(f"run-{len(asked)}", tmp_path / "log", exit_code=codes[len(asked) - 1])

    monkeypatch.setattr(command, "run_on_screen", ran)
    options = ["--windows", WINDOWS, "--store", str(tmp_path / "store"), "--param", "rerun=score"]
    options += ["--param", "keys=asked.csv", "--source", "s3://raw/flights"]
    result = CliRunner().invoke(app, ["backfill", str(EXAMPLE), *options])
    assert result.exit_code == exit_code, result.output
    starts = ["2013-01-01T00:00:00Z", "2013-02-01T00:00:00Z", "2013-03-01T00:00:00Z"][: len(codes)]
    assert [each["since"] for each in asked] == starts
    assert all(each["rerun"] == "score" for each in asked)
    assert {(each["keys"], each["source"]) for each in asked} == {(str(Path.cwd() / "asked.csv"), "s3://raw/flights")}


def test_a_file_of_keys_is_found_from_where_it_is_typed_and_a_reference_is_no_file() -> None:
    reference = f"keys/flights/sha256-{'0' * 64}"
    assert from_here({"keys": reference, "seed": 7}) == {"keys": reference, "seed": 7}
    assert from_here({"keys": "asked.csv"}) == {"keys": str(Path.cwd() / "asked.csv")}
    assert from_here({"predictions": "log"}) == {"predictions": str(Path.cwd() / "log")}
    assert from_here({"predictions": "latest"}) == {"predictions": "latest"}
