"""The training program, in the test's own process: which errors are final, and how it ends with each."""

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
import torch.distributed as dist

from gatehouse.errors import HiddenValueError, StoreError
from gatehouse.launchers import wrapper
from gatehouse.launchers.launcher import FAILURE, JOB
from gatehouse.training import program
from gatehouse.training.compute import DivergedError
from tests.training.specs import network


def _end_of(
    error: Exception, directory: Path, monkeypatch: pytest.MonkeyPatch, hidden: tuple[str, ...] = ()
) -> BaseException:

    def train(*_: object) -> None:
        raise error

    job = {"spec": network().model_dump(mode="json"), "architecture": {}, "hidden": hidden}
    (directory / JOB).write_text(json.dumps(job))
    monkeypatch.setattr(sys, "argv", ["program", str(directory)])
    monkeypatch.setenv("RANK", "0")
    for name in ("die_with_parent", "follow_owner", "prepare_process"):
        monkeypatch.setattr(program, name, lambda *_: None)
    for name in ("init_process_group", "destroy_process_group"):
        monkeypatch.setattr(dist, name, lambda *_, **__: None)
    trainer = SimpleNamespace(train=train)
    monkeypatch.setattr("gatehouse.training.trainer.Trainer", lambda *_: trainer)
    with pytest.raises((SystemExit, type(error), HiddenValueError)) as ended:
        program.main()
    return ended.value


def test_a_store_that_is_away_is_worth_another_try_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = _end_of(StoreError("s3://bucket does not answer"), tmp_path, monkeypatch)
    assert isinstance(ended, SystemExit) and wrapper.exit_code(ended.code) == 128
    assert not (tmp_path / FAILURE).exists()


@pytest.mark.parametrize(("error", "ends"), [(DivergedError("the loss"), SystemExit), (KeyError("depth"), KeyError)])
def test_an_error_that_says_all_ends_the_program_without_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, ends: type[BaseException]
) -> None:
    ended = _end_of(error, tmp_path, monkeypatch)
    message = json.loads((tmp_path / FAILURE).read_text())["message"]
    assert message == ("the loss" if ends is SystemExit else "KeyError: 'depth'")
    assert isinstance(ended, ends) and (ends is KeyError or ended.args == (message,))


@pytest.mark.parametrize("hidden", [(), ("name",)])
@pytest.mark.parametrize(
    ("failed", "restarted"),
    [
        (lambda: IndexError("Target 918273 is out of bounds"), False),
        (lambda: pa.ArrowMemoryError("malloc of size 918273 failed"), True),
        (lambda: pa.ArrowNotImplementedError("918273"), True),
    ],
)
def test_a_training_process_quotes_no_row_where_a_column_is_sensitive(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failed: Callable[[], Exception],
    restarted: bool,
    hidden: tuple[str, ...],
) -> None:
    ended = _end_of(failed(), tmp_path, monkeypatch, hidden)
    failure = (tmp_path / FAILURE).read_text() if (tmp_path / FAILURE).exists() else ""
    assert ("918273" in failure + "".join(traceback.format_exception(ended))) == (not hidden)
    assert restarted or not hidden or "IndexError, whose words are not shown" in failure
    assert (failure == "") == restarted
