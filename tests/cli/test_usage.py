"""Mistakes of a project and of the command line: exit code and what the error names."""

import errno
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from gatehouse.api.projects import create_project
from gatehouse.cli.main import main
from gatehouse.errors import ConfigurationError
from gatehouse.registry.alias import Resolver
from gatehouse.store.atomic_file import write_json
from gatehouse.store.store import ArtifactStore


def _main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    """The exit code of the command line with these words."""
    monkeypatch.setattr(sys, "argv", ["gatehouse", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize("command", [["check"], ["compile"], ["run"]])
def test_commands_find_a_broken_query_before_anything_else(tmp_path: Path, command: list[str]) -> None:
    path = create_project("broken", tmp_path) / "features/views/customer_history.sql"
    path.write_text(path.read_text().replace("count(*)", "cout(*)"))
    ended = subprocess.run(
        [sys.executable, "-m", "gatehouse.cli.main", *command, str(tmp_path / "broken")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == ConfigurationError.exit_code
    assert "views/customer_history.sql" in ended.stdout + ended.stderr
    assert not list(tmp_path.glob("compiled/*.yaml"))


@pytest.mark.parametrize(
    ("words", "command", "named"),
    [
        (["modls"], "gatehouse", "modls"),
        (["run", "--until"], "gatehouse", "--until"),
        (["run", "--unti", "split"], "gatehouse run", "--until"),
        (["data", "show"], "gatehouse data show", "reference"),
        (["run", "a", "b"], "gatehouse run", "(b)"),
        (["data", "list", "--store", "a", "--project=b"], "gatehouse data list", "found both"),
        (["init", "x", "--from", "x.csv", "--alarm", "3"], "gatehouse init", "--alarm"),
        (["deploy", "x", "--kind", "knative"], "gatehouse deploy", "--kind"),
        (["deploy", "x", "--timeout", "-1"], "gatehouse deploy", "--timeout"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_no_verdict(
    words: list[str], command: str, named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(monkeypatch, *words) == ConfigurationError.exit_code != 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {command}: ") and named in error
    assert error.endswith(f"`{command} --help` lists what it takes.\n")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["init", "x", "--from", "nothing.csv", "--label", "a"], "nothing.csv"),
        (["data", "head", "snapshots"], "'snapshots'"),
        (["predictor", "x", "--spool", "y"], "--log"),
        (["data", "show", f"datasets/none/sha256-{'0' * 64}"], "datasets/none/sha256-0"),
        (["report", "datasets/none/sha256-12"], "datasets/none/sha256-12"),
        (["tuning", "show", "nothing"], "expected the name of a model"),
        (["models", "show", "nothing"], "'nothing'"),
        (["data", "list", "../x"], "'../x'"),
        (["data", "list", "--store", "nowhere"], "'nowhere'"),
        (["features", "list", "--project", "shop", "--store", "nowhere"], "'nowhere'"),
        (["features", "lineage", "order_content", "--project", "shop", "--store", "nowhere"], "'nowhere'"),
        (["models", "resolve", "delays@champion", "--store", "nowhere"], "'nowhere'"),
        (["why", "train", "--store", "nowhere"], "'nowhere'"),
        (["check", "nowhere"], "nowhere: expected the folder of a project"),
        (["why", "trian"], "(did you mean train?)"),
        (["gate", "try", "shop", "--on", "delays"], "shop"),
        (["data", "list", "--store", "x" * 300], "/project.yaml: file name too long."),
        (["runs", "list", "--uri", "sqlite:///nowhere"], "--uri"),
        (["why", "train", "nothing", "--project", "nowhere"], "'nowhere'"),
    ],
)
def test_a_wrong_name_is_a_configuration_error_that_quotes_it(
    words: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GATEHOUSE_CACHE", str(tmp_path / "cache"))
    ArtifactStore.open(tmp_path / ".gatehouse/store")
    create_project("shop", tmp_path)
    assert _main(monkeypatch, *words) == ConfigurationError.exit_code
    assert named in (error := capsys.readouterr().err), error
    assert not Path("nowhere").exists()


def test_a_store_that_is_not_mounted_is_not_created_and_an_alias_resolves_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, version = ArtifactStore.open(tmp_path / "store"), {"version": 1, "model": "models/delays/sha256-1"}
    monkeypatch.setenv("GATEHOUSE_CACHE", str(tmp_path / "cache"))
    resolver = Resolver(store.address, "delays")
    (resolver.folder / version["model"]).mkdir(parents=True)
    write_json(resolver.folder / version["model"] / ".verified.json", {"stamps": {}, "digests": {}})
    write_json(resolver.folder / "ledger.json", {"size": 1, "aliases": {"champion": version}, "at": 0.0})
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    assert _main(monkeypatch, "models", "resolve", "delays@champion", "--store", store.address) == 0
    output = capsys.readouterr()
    assert output.out.strip() == str(resolver.folder / str(version["model"]))
    assert "The store does not answer" in output.err
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space", "store.json"), "error: The disk is full while store.json was written. Free"),
        (MemoryError("no more"), "error: The command ran out of memory: this process may use "),
        (duckdb.OutOfMemoryException("Out of Memory Error: 1 block"), "error: The command ran out of memory: this "),
    ],
)
def test_a_full_disk_and_full_memory_are_errors_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, message: str
) -> None:
    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(ArtifactStore, "open", full)
    assert _main(monkeypatch, "data", "list", "--store", str(tmp_path)) == 1
    assert capsys.readouterr().err.startswith(message)
