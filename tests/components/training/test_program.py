"""The training program, in the test's own process: how it ends where training does not."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from gatehouse.components.training import program
from gatehouse.components.training.divergence import DivergedError


@pytest.mark.parametrize(("error", "ends"), [(DivergedError("the loss"), SystemExit), (KeyError("depth"), KeyError)])
def test_an_error_that_says_all_ends_the_program_without_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, ends: type[BaseException]
) -> None:
    def train(*_: Any) -> NoReturn:
        raise error

    for name in ("die_with_parent", "follow_owner", "prepare_process"):
        monkeypatch.setattr(program, name, lambda *_: None)
    group = SimpleNamespace(init_process_group=lambda *_, **__: None, destroy_process_group=lambda: None)
    monkeypatch.setattr(program, "dist", group)
    monkeypatch.setattr(program, "framework_of", lambda _: SimpleNamespace(train=train))
    monkeypatch.setattr(sys, "argv", ["program", str(tmp_path)])
    monkeypatch.setenv("RANK", "0")
    (tmp_path / "job.json").write_text(json.dumps({"spec": {}, "architecture": {}}))
    with pytest.raises(ends) as caught:
        program.main()
    message = json.loads((tmp_path / "failure.json").read_text())["message"]
    assert message == ("the loss" if ends is SystemExit else "KeyError: 'depth'")
    assert ends is KeyError or caught.value.args == (message,)
