"""The training program: which errors are final, and which are worth another try."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from gatehouse.components.training import agent, program
from gatehouse.components.training.launcher import FAILURE, JOB
from gatehouse.components.training.spec import TrainSpec
from gatehouse.errors import ConfigurationError, StoreError


def _code(monkeypatch: pytest.MonkeyPatch, directory: Path, error: Exception) -> object:
    """What the agent ends with where training ends in `error`."""

    def train(*_: object) -> None:
        raise error

    (directory / JOB).write_text(json.dumps({"spec": TrainSpec().model_dump(mode="json"), "architecture": {}}))
    monkeypatch.setattr(sys, "argv", ["program", str(directory)])
    monkeypatch.setenv("RANK", "0")
    for name in ("die_with_parent", "follow_owner", "prepare_process"):
        monkeypatch.setattr(program, name, lambda *_: None)
    for name in ("init_process_group", "destroy_process_group"):
        monkeypatch.setattr(dist, name, lambda *_, **__: None)
    monkeypatch.setattr(program, "framework_of", lambda spec: SimpleNamespace(train=train))
    with pytest.raises((SystemExit, type(error))) as ended:
        program.main()
    return agent.code(ended.value.code if isinstance(ended.value, SystemExit) else 1)


def test_a_store_that_is_away_is_worth_another_try_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert _code(monkeypatch, tmp_path, StoreError("s3://bucket does not answer")) == 128
    assert not (tmp_path / FAILURE).exists()
    assert _code(monkeypatch, tmp_path, ConfigurationError("too few rows")) == 1
    assert json.loads((tmp_path / FAILURE).read_text())["message"] == "too few rows"
