"""Mistakes of a project and of the command line: how commands end with them."""

import subprocess
import sys
from pathlib import Path

import pytest

from gatehouse.cli import main
from gatehouse.commands.init import create_project
from gatehouse.errors import ConfigurationError


@pytest.mark.parametrize("command", [["check"], ["compile"], ["run"]])
def test_commands_find_a_broken_query_before_anything_else(tmp_path: Path, command: list[str]) -> None:
    path = create_project("broken", tmp_path) / "features/views/customer_history.sql"
    path.write_text(path.read_text().replace("count(*)", "cout(*)"))
    ended = subprocess.run(
        [sys.executable, "-m", "gatehouse.cli", *command, str(tmp_path / "broken")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == ConfigurationError.exit_code
    assert "views/customer_history.sql does not run" in ended.stdout + ended.stderr
    assert not list(tmp_path.glob("compiled/*.yaml"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["modls"], "error: gatehouse: No such command 'modls'. Did you mean 'models'? `gatehouse --help` lists"),
        (
            ["run", "--unti", "split"],
            "found --unti (did you mean --until?). `gatehouse run --help` lists",
        ),
        (["data", "show"], "gatehouse data show: expected reference, found none: "),
        (["run", "a", "b"], "gatehouse run: "),
        (["init", "x", "--from", "x.csv", "--task", "many"], "--task: expected one of binary, multi"),
        (["init", "x", "--from", "x.csv", "--alarm", "3"], "--alarm: expected at most 1, found 3"),
        (["init", "x", "--from", "x.csv", "--alarm=much"], "--alarm: expected a valid number, found much"),
    ],
)
def test_a_mistake_on_the_command_line_does_not_end_as_a_verdict_does_and_is_told_in_our_words(
    words: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gatehouse", *words])  # What a shell would give.
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == ConfigurationError.exit_code != 2
    assert told in capsys.readouterr().err
