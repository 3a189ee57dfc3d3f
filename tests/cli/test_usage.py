"""Mistakes of a project and of the command line: how commands end with them."""

import errno
import io
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
import typer

from gatehouse.cli.init import create_project
from gatehouse.cli.main import _refused, main
from gatehouse.errors import ConfigurationError
from gatehouse.registry.alias import Resolver
from gatehouse.store.atomic_file import write_json
from gatehouse.store.store import ArtifactStore


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
        (["data", "show"], "gatehouse data show: expected REFERENCE, found none: "),
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
        (["features", "list", "--project", "shop", "--store", "nowhere"], "found nothing at 'nowhere'"),
        (["features", "show", "order_content", "--project", "shop", "--store", "nowhere"], "nothing at 'nowhere'"),
        (["features", "lineage", "order_content", "--project", "shop", "--store", "nowhere"], "nothing at 'nowhere'"),
        (["models", "resolve", "delays@champion", "--store", "nowhere"], "found nothing at 'nowhere'"),
        (["models", "resolve", "delays@champion"], "delays@champion: no version of this name holds an alias"),
        (["tuning", "list", "nothing"], "has the models (none): expected the name of one, found 'nothing'"),
        (["why", "train", "--store", "nowhere"], "found nothing at 'nowhere'"),
        (["check", "nowhere"], "expected the folder of a project"),
        (["why", "trian"], "(did you mean train?)"),
        (["gate", "try", "shop", "--on", "delays"], "shop: expected a file in ., found a folder"),
        (["data", "list", "--store", "x" * 300], "/project.yaml: file name too long."),
        (
            ["runs", "list", "--uri", "nowhere"],
            "MLFLOW_TRACKING_URI, or what names MLflow: expected an address such as https://HOST",
        ),
        (["runs", "list", "--uri", "sqlite:///nowhere"], "--uri: expected a database of MLflow at nowhere, found none"),
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
    monkeypatch.setenv("GATEHOUSE_CACHE", str(tmp_path / "cache"))
    ArtifactStore.open(tmp_path / ".gatehouse/store")
    create_project("shop", tmp_path)
    Path("nul.csv").write_bytes(b"a,b\n1,2\n3,\0\n")
    monkeypatch.setattr(sys, "argv", ["gatehouse", *words])  # What a shell would give.
    with pytest.raises(SystemExit) as ended:
        main()
    assert told in (said := capsys.readouterr().err), said
    assert ended.value.code == ConfigurationError.exit_code
    assert not Path("nowhere").exists()


def test_what_a_store_may_hold_and_does_not_is_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ArtifactStore.open(tmp_path / ".gatehouse/store")
    store.publish("models", "delays", {"model.json": "{}"})
    create_project("shop", tmp_path)
    monkeypatch.chdir(tmp_path)
    for words, told in (
        (["data", "list", "experiments"], "holds no references of kind experiments."),
        (["data", "list", "modls"], "holds no references of kind modls (did you mean models?)."),
        (["tuning", "list", "delays"], "has no experiments of delays"),
        (["features", "list", "--project", "shop"], "none yet"),
    ):
        monkeypatch.setattr(sys, "argv", ["gatehouse", *words])  # What a shell would give.
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code, told in said.out + said.err) == (0, True), said


def test_a_store_that_is_not_mounted_is_away_and_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, known = ArtifactStore.open(tmp_path / "store"), {"version": 1, "model": "models/delays/sha256-1"}
    monkeypatch.setenv("GATEHOUSE_CACHE", str(tmp_path / "cache"))
    resolver = Resolver(store.address, "delays")
    (resolver.folder / known["model"]).mkdir(parents=True)
    write_json(resolver.folder / known["model"] / ".verified.json", {"stamps": {}, "digests": {}})
    write_json(resolver.folder / "ledger.json", {"size": 1, "aliases": {"champion": known}, "at": 0.0})
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    monkeypatch.setattr(
        sys, "argv", ["gatehouse", "models", "resolve", "delays@champion", "--store", store.address]
    )  # What a shell would give.
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out.strip()) == (0, str(resolver.folder / str(known["model"])))
    assert "The store does not answer, so this is what was known before" in said.err
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space", "store.json"), "error: The disk is full while store.json was written. Free"),
        (MemoryError("no more"), "error: The command ran out of memory: this process may use "),
        (duckdb.OutOfMemoryException("Out of Memory Error: 1 block"), "error: The command ran out of memory: this "),
    ],
)
def test_a_full_disk_and_full_memory_are_told_in_words(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    told: str,
) -> None:
    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(ArtifactStore, "open", full)
    monkeypatch.setattr(sys, "argv", ["gatehouse", "data", "list", "--store", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(told)


@pytest.mark.parametrize("key", ["url_env", "settings_env"])
def test_a_variable_that_a_source_names_and_nobody_sets_is_a_mistake_for_a_run_alone(tmp_path: Path, key: str) -> None:
    project = create_project("returns", tmp_path) / "project.yaml"
    text = project.read_text().replace("  path: data\n", f"  {key}: NO_SUCH_VARIABLE\n")
    if key == "url_env":
        text = text.replace("kind: files", "kind: sql")
        text = text.replace("      member: orders.csv", "      table: orders\n      order_by: [order_id]")
    else:
        text = text.replace("kind: files", "kind: kafka\n  servers: localhost:1")
        text = text.replace("      member: orders.csv", "      topic: orders")
    project.write_text(text)
    line = next(number for number, each in enumerate(text.splitlines(), 1) if key in each)
    told = f"project.yaml:{line}: source.{key}: the environment variable NO_SUCH_VARIABLE is not set here"

    def ended(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "gatehouse.cli.main", *words], cwd=project.parent, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    code, said = ended("check")
    assert (code, f"warning: {told}" in said) == (0, True), said
    code, said = ended("check", "--data")
    assert (code, "NO_SUCH_VARIABLE is not set" in said) == (ConfigurationError.exit_code, True), said
    code, said = ended("run")
    assert (code, told in said, "Snapshot" in said) == (ConfigurationError.exit_code, True, False), said
    if key == "url_env":
        code, said = ended("compile")
        assert (code, "NO_SUCH_VARIABLE" in said) == (0, False), said


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
