"""`gatehouse init`, `data try`, `check` and `compile`: new projects, first looks, and a project without its data."""

import shlex
import shutil
import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated, Literal

import typer

from gatehouse.api import projects
from gatehouse.api.projects import Look, Roles
from gatehouse.cli.output import JsonOption, ProjectArgument, echo, show
from gatehouse.errors import ConfigurationError
from gatehouse.project.place import LONGEST_NAME, project_folder, store_address
from gatehouse.project.platforms import load_platform
from gatehouse.runtime.plural import counted
from gatehouse.store.store import ArtifactStore

NullsOption = Annotated[
    list[str] | None, typer.Option("--nulls", help="A text that stands for a missing value in a CSV, such as nil.")
]
TimeZoneOption = Annotated[
    str, typer.Option("--time-zone", help="Zone of times that state none, e.g. Europe/Rome; default: UTC.")
]


def init(
    name: Annotated[str, typer.Argument(help="Name of the project, and of the folder to create.")],
    table: Annotated[Path | None, typer.Option("--from", help="A CSV with a header, or a Parquet file.")] = None,
    label: Annotated[str, typer.Option(help="The column to predict; needed with --from.")] = "",
    task: Annotated[
        Literal["", "binary", "multiclass", "regression"],
        typer.Option(metavar="TASK", help="binary, multiclass or regression; default: by values."),
    ] = "",
    positive: Annotated[str, typer.Option(help="Its positive value, or a condition such as '>= 7'.")] = "",
    time: Annotated[str, typer.Option(help="The column with the time of the decision; none for no column.")] = "",
    time_zone: TimeZoneOption = "",
    key: Annotated[str, typer.Option(help="The column that identifies a row; none makes a key of its values.")] = "",
    known: Annotated[str, typer.Option(help="The column with the time at which the label is known, if any.")] = "",
    without: Annotated[list[str] | None, typer.Option(help="A column that is known with the label only.")] = None,
    group: Annotated[str, typer.Option(help="A column whose rows stay in one part of the split; no feature.")] = "",
    nulls: NullsOption = None,
    alarm: Annotated[
        float | None, typer.Option(min=0.5, max=1, help="ROC AUC above which a feature is a leak.")
    ] = None,
) -> None:
    """Write a commented starting point for a project into a new folder; with --from, one that runs on that table."""
    roles = Roles(label, task, positive, time, key, known, tuple(without or ()), group, alarm)
    if table is None:
        if roles != Roles("") or time_zone or nulls:
            raise ConfigurationError("Expected --from FILE, as the other options are about its columns.")
        target = projects.create_project(name, Path.cwd())
        typer.echo(
            f"{target} is ready. Edit project.yaml, put your tables into {name}/data, then: gatehouse run {name}"
        )
        return
    target, look, words = projects.create_from_table(name, Path.cwd(), table, roles, nulls or (), time_zone)
    _print_look(look)
    typer.echo()
    show(words)
    _print_warnings(look)
    typer.echo(f"\n{target} is ready: gatehouse run {name}")


def attempt(
    file: Annotated[Path, typer.Argument(help="A CSV with a header (.csv, .tsv, .txt, also .gz), or Parquet.")],
    store: Annotated[str, typer.Option(help="Where the snapshot is written; default: .gatehouse/store.")] = "",
    nulls: NullsOption = None,
    time_zone: TimeZoneOption = "",
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Look at a file: how it is read, what it holds. Takes a snapshot, validates it, and shows the report.

    `gatehouse init NAME --from FILE` writes a project that reads the file so, with the contract that it meets.
    """
    look = projects.look_at(file, ArtifactStore.open(store_address(store)), nulls or (), time_zone)
    if as_json:
        show(look, as_json)
        return
    _print_look(look)
    rows = counted(look.rows, "row") + (f", {look.rejected:,} rejected" if look.rejected else "")
    typer.echo()
    show({"snapshot": f"{look.snapshot}  {rows}", "report": ", ".join(map(str, look.pages))})
    _print_warnings(look)
    project = projects.table_name(file).replace("_", "-")[:LONGEST_NAME].rstrip("-")
    echo(f"\nto make a project of it: gatehouse init {project} --from {shlex.quote(str(file))} --label COLUMN")
    if open_page:
        webbrowser.open(look.pages[0].resolve().as_uri())


def _print_look(look: Look) -> None:
    echo((look.file, "bold"), f"  {look.reading}")
    show(look.columns)


def _print_warnings(look: Look) -> None:
    for line in look.warnings:
        echo((line, "yellow"))


def check(project: ProjectArgument = None) -> None:
    """Check every file and query of a project, and every name that they use, before anything runs.

    The data is not read: `gatehouse run --until validate` judges it.
    """
    from gatehouse.project.checking import check_project

    checked = check_project(project_folder(project))
    if any(settings.on_failure == "warn" for settings in checked.file.stages.values()):
        from gatehouse.pipelines.catalog import build, names

        for name in names():  # Some checks need the built pipelines.
            build(name, checked)
    for warning in checked.warnings:
        echo((f"warning: {warning}", "yellow"))
    warned = f"; {counted(len(checked.warnings), 'warning')}" if checked.warnings else ""
    typer.echo(f"✓ {checked.name}: files, queries and the names that they use fit each other{warned}.")


def compile_specs(
    project: ProjectArgument = None,
    platform: Annotated[Path | None, typer.Option(help="Profile of the platform; without: this machine only.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for the YAML files.")] = Path("compiled"),
    publish: Annotated[bool, typer.Option(help="Also publish the configuration that the specs name.")] = False,
    store: Annotated[str, typer.Option(help="Where to publish; default: the platform's store, or the project's.")] = "",
    check: Annotated[bool, typer.Option(help="Write nothing: fail where files are stale or break the policy.")] = False,
    release: Annotated[bool, typer.Option(help="Refuse what must not be released: images without digest.")] = False,
) -> None:
    """Compile every pipeline of a project."""
    from gatehouse.kfp.compilation.compiling import broken, compile_project, refuse, stale
    from gatehouse.project.checking import check_project

    profile = load_platform(platform) if platform else None
    if release and profile is None:
        raise ConfigurationError(
            "--release: expected --platform FILE too: specs without a platform are for this machine only."
        )
    if output.exists() and not output.is_dir():
        raise ConfigurationError(f"--output: expected a folder, found the file {output}.")
    loaded = check_project(project_folder(project))
    with tempfile.TemporaryDirectory() as folder:
        specs = compile_project(loaded, Path(folder), profile)
        findings = broken(specs, output, release=release)
        refuse([*(stale(loaded, specs, output) if check else ()), *findings])
        if check:
            typer.echo(f"{loaded.name}: the specs in {output} are current and keep the policy")
        else:
            output.mkdir(parents=True, exist_ok=True)
            for path in specs:
                typer.echo(shutil.move(path, output / path.name))
    if publish:
        opened = ArtifactStore.open(store_address(store or (profile.store if profile else ""), loaded.folder))
        for config in loaded.configs():
            typer.echo(opened.address_of(config.publish(opened)))
