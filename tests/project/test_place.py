"""Which project and store a command means, and `gatehouse backfill`: one run for each window."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gatehouse.api.projects import create_project
from gatehouse.cli import run as command
from gatehouse.kfp import driver
from gatehouse.kfp.local_run import LocalRun
from gatehouse.project.place import open_store, store_address
from tests.small_example import EXAMPLE

backfill = typer.Typer()
backfill.command()(command.backfill)


def test_the_store_is_the_project_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert store_address("") == ".gatehouse/store"
    created = create_project("returns", tmp_path)
    assert store_address("", created) == str(created / ".gatehouse/store")
    text = (created / "project.yaml").read_text()
    (created / "project.yaml").write_text(text.replace("store: .gatehouse/store", "store: ../shared"))
    monkeypatch.chdir(created)
    (tmp_path / "shared").mkdir()
    assert open_store("").address == str(tmp_path / "shared")
    assert store_address("mine") == "mine"
    monkeypatch.chdir(tmp_path)
    assert open_store("returns").address.endswith("shared"), "a folder of a project stands for its store"
    monkeypatch.chdir(created)
    (created / "project.yaml").write_text(text.replace("store: .gatehouse/store", "store: gs://acme/gatehouse"))
    assert store_address("") == "gs://acme/gatehouse"


def test_a_run_is_in_the_folder_of_its_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There every relative path of the project starts; what the shell says keeps the meaning that it had there."""
    created = create_project("returns", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([".", "/mine"]))
    monkeypatch.setattr(driver, "follow_owner", lambda: None)
    folders: list[tuple[str, str]] = []
    monkeypatch.setattr(driver, "_run", lambda *_: folders.append((os.getcwd(), os.environ["PYTHONPATH"])))
    arguments = ["--project", "returns", "--pipeline", "training", "--store", str(tmp_path / "store")]
    monkeypatch.setattr(sys, "argv", ["driver", *arguments])
    assert driver.main() == 0
    assert folders == [(str(created), os.pathsep.join([str(tmp_path), "/mine"]))]


@pytest.mark.parametrize(("codes", "exit_code"), [((0, 2, 0), 2), ((0, 0, 0), 0), ((0, 130), 130)])
def test_each_window_is_one_run_and_a_failed_one_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...], exit_code: int
) -> None:
    runs: list[dict[str, Any]] = []

    def record(project: Path, pipeline: str, store: object, arguments: dict[str, Any]) -> LocalRun:
        runs.append(arguments)
        return LocalRun(f"run-{len(runs)}", tmp_path / "log", exit_code=codes[len(runs) - 1])

    monkeypatch.setattr(command, "run_on_screen", record)
    options = ["--windows", "2013-01-01/2013-04-01/P1M", "--store", str(tmp_path / "store"), "--param", "rerun=score"]
    options += ["--param", "keys=asked.csv", "--source", "s3://raw/flights"]
    result = CliRunner().invoke(backfill, [str(EXAMPLE), *options])
    assert result.exit_code == exit_code, result.output
    starts = ["2013-01-01T00:00:00Z", "2013-02-01T00:00:00Z", "2013-03-01T00:00:00Z"][: len(codes)]
    assert [arguments["since"] for arguments in runs] == starts
    common = {"rerun": "score", "keys": str(Path.cwd() / "asked.csv"), "source": "s3://raw/flights"}
    assert all(arguments.items() >= common.items() for arguments in runs)
