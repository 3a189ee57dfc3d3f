"""Which project and store a command means: those of the folder in which it is typed, and never the example's."""

import os
import sys
from pathlib import Path

import pytest

from gatehouse.cli.init import create_project
from gatehouse.cli.output import open_store
from gatehouse.cli.place import store_address
from gatehouse.kfp import driver


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
