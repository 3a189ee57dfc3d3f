"""Mistakes of a project and of the command line: how commands end with them."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from gatehouse.cli import _refused, main
from gatehouse.commands.init import create_project
from gatehouse.components.artifacts.store import ArtifactStore
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
        (["modls"], "error: gatehouse: expected one of backfill, check, compile, "),
        (["modls"], ", found modls (did you mean models?). `gatehouse --help` lists what it takes."),
        (
            ["models", "--foo"],
            "error: gatehouse models: expected one of --help, found --foo. `gatehouse models --help`",
        ),
        (["run", "--until"], "error: gatehouse run: --until: expected a value, found none. `gatehouse run --help`"),
        (["check", "--data=3"], "--data: expected no value, found one. `gatehouse check --help`"),
        (
            ["run", "--unti", "split"],
            "found --unti (did you mean --until?). `gatehouse run --help` lists",
        ),
        (["data", "show"], "gatehouse data show: expected reference, found none: "),
        (["run", "a", "b"], "gatehouse run: expected nothing after PROJECT, found b. "),
        (["models", "list", "a", "b", "c"], "gatehouse models list: expected nothing after NAME, found b c. "),
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["init", "x", "--from", "nothing.csv"], "nothing.csv: no such file"),
        (["init", "x", "--from", "."], ".: expected a file"),
        (["data", "try", "nothing.csv"], "nothing.csv: no such file"),
        (["data", "try", "nul.csv"], "expected text, found a NUL byte in line 3"),
        (["data", "head", "snapshots"], "'snapshots' is not a reference"),
        (["data", "head", "datasets/none"], "datasets/none is not in the store"),
        (["data", "show", f"datasets/none/sha256-{'0' * 64}"], "is not in the store"),
        (["report", "datasets/none/sha256-12"], "is not in the store"),
        (["tuning", "show", "nothing"], "expected the name of a model"),
        (["models", "show", "nothing"], "expected the name of one, found 'nothing'"),
        (["data", "list", "--store", "nowhere"], "found nothing at 'nowhere'"),
        (["data", "list", "--store", "ftp://host/x"], "The address of the store: expected a folder, or one of gs://"),
        (["check", "nowhere"], "expected the folder of a project"),
        (["why", "trian"], "(did you mean train?)"),
        (["why", "train", "nothing", "--project", "nowhere"], "found nothing at 'nowhere'"),
    ],
)
def test_what_is_named_wrongly_is_one_kind_of_mistake(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    ArtifactStore.open(tmp_path / ".gatehouse/store")
    Path("nul.csv").write_bytes(b"a,b\n1,2\n3,\0\n")
    monkeypatch.setattr(sys, "argv", ["gatehouse", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert told in (said := capsys.readouterr().err), said
    assert ended.value.code == ConfigurationError.exit_code


def test_a_choice_that_no_option_names_is_told() -> None:
    assert _refused(typer.BadParameter("'x' is not one of 'a', 'b'")).endswith("expected one of a, b, found x")


@pytest.mark.parametrize(
    ("ending", "code", "told"),
    [
        (EOFError, 1, "error: expected an answer to the question, found the end"),
        (KeyboardInterrupt, 130, "interrupted"),
    ],
)
def test_the_end_of_the_input_is_no_interruption(
    ending: type[BaseException],
    code: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Ended(io.StringIO):
        def isatty(self) -> bool:
            return True

        def readline(self, *_: object) -> str:
            raise ending

    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{n},{n % 2}\n" for n in range(40)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gatehouse", "init", "x", "--from", "t.csv"])  # What a shell would give.
    monkeypatch.setattr(sys, "stdin", Ended())  # A terminal at which somebody presses these keys.
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert told in capsys.readouterr().err
