"""Mistakes of a project and of the command line: exit code and what the error names."""

import errno
import io
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from gatehouse.cli.init import create_project
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
        (["models", "--foo"], "gatehouse models", "--foo"),
        (["run", "--until"], "gatehouse", "--until"),
        (["run", "--unti", "split"], "gatehouse run", "--until"),
        (["data", "show"], "gatehouse data show", "reference"),
        (["run", "a", "b"], "gatehouse run", "(b)"),
        (["init", "x", "--from", "x.csv", "--task", "many"], "gatehouse init", "multiclass"),
        (["init", "x", "--from", "x.csv", "--alarm", "3"], "gatehouse init", "--alarm"),
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
        (["init", "x", "--from", ".", "--label", "a"], "."),
        (["data", "try", "nothing.csv"], "nothing.csv"),
        (["data", "head", "snapshots"], "'snapshots'"),
        (["data", "head", "datasets/none"], "datasets/none"),
        (["data", "show", f"datasets/none/sha256-{'0' * 64}"], "datasets/none/sha256-0"),
        (["report", "datasets/none/sha256-12"], "datasets/none/sha256-12"),
        (["tuning", "show", "nothing"], "expected the name of a model"),
        (["models", "show", "nothing"], "'nothing'"),
        (["data", "list", "../x"], "'../x'"),
        (["data", "list", "--store", "nowhere"], "'nowhere'"),
        (["data", "list", "--store", "ftp://host/x"], "gs://"),
        (["features", "list", "--project", "shop", "--store", "nowhere"], "'nowhere'"),
        (["features", "show", "order_content", "--project", "shop", "--store", "nowhere"], "'nowhere'"),
        (["features", "lineage", "order_content", "--project", "shop", "--store", "nowhere"], "'nowhere'"),
        (["models", "resolve", "delays@champion", "--store", "nowhere"], "'nowhere'"),
        (["models", "resolve", "delays@champion"], "delays@champion"),
        (["tuning", "list", "nothing"], "'nothing'"),
        (["why", "train", "--store", "nowhere"], "'nowhere'"),
        (["check", "nowhere"], "nowhere: expected the folder of a project"),
        (["why", "trian"], "(did you mean train?)"),
        (["gate", "try", "shop", "--on", "delays"], "shop"),
        (["data", "list", "--store", "x" * 300], "/project.yaml: file name too long."),
        (["runs", "list", "--uri", "nowhere"], "MLFLOW_TRACKING_URI"),
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


def test_a_store_without_artifacts_of_a_kind_is_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ArtifactStore.open(tmp_path / ".gatehouse/store")
    store.publish("models", "delays", {"model.json": "{}"})
    create_project("shop", tmp_path)
    monkeypatch.chdir(tmp_path)
    for words, told in (
        (["data", "list", "modls"], "holds no references of kind modls (did you mean models?)."),
        (["tuning", "list", "delays"], "has no experiments of delays"),
        (["features", "list", "--project", "shop"], "none yet"),
    ):
        assert _main(monkeypatch, *words) == 0
        output = capsys.readouterr()
        assert told in output.out + output.err


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
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space", "store.json"), "error: The disk is full while store.json was written. Free"),
        (MemoryError("no more"), "error: The command ran out of memory: this process may use "),
        (duckdb.OutOfMemoryException("Out of Memory Error: 1 block"), "error: The command ran out of memory: this "),
    ],
)
def test_a_full_disk_and_full_memory_are_errors_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, told: str
) -> None:
    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(ArtifactStore, "open", full)
    assert _main(monkeypatch, "data", "list", "--store", str(tmp_path)) == 1
    assert capsys.readouterr().err.startswith(told)


def test_an_unset_variable_of_the_source_is_a_warning_of_check_and_an_error_of_a_run(tmp_path: Path) -> None:
    project = create_project("returns", tmp_path) / "project.yaml"
    text = project.read_text().replace("  path: data\n", "  url_env: NO_SUCH_VARIABLE\n").replace("files", "sql")
    project.write_text(text.replace("      member: orders.csv", "      table: orders\n      order_by: [order_id]"))
    for words, exit_code in ((["check"], 0), (["run", "--until", "snapshot"], ConfigurationError.exit_code)):
        ended = subprocess.run(
            [sys.executable, "-m", "gatehouse.cli.main", *words], cwd=project.parent, capture_output=True, text=True
        )
        assert (ended.returncode, "NO_SUCH_VARIABLE" in ended.stdout + ended.stderr) == (exit_code, True), ended


def test_ctrl_c_at_a_question_is_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    model = store.publish("models", "delays", {"model.json": "{}"})

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def readline(self, *_: object) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Terminal())
    code = _main(monkeypatch, "data", "erase", str(model), "--reason", "x", "--store", store.address)
    assert (code, "interrupted" in capsys.readouterr().err, store.exists(model)) == (130, True, True)
