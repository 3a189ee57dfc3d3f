"""`gatehouse init`: creates a commented project to start from, or one for a given table."""

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from gatehouse.cli.place import LONGEST_NAME, whole_or_none
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.settings import feast_name

TEMPLATE = Path(__file__).parents[1] / "project" / "templates" / "project"
_NAME = re.compile(rf"[a-z][a-z0-9-]{{0,{LONGEST_NAME - 1}}}\Z")


def init(
    name: Annotated[str, typer.Argument(help="Name of the project, and of the folder to create.")],
    table: Annotated[
        Path | None, typer.Option("--from", help="A CSV with a header, or a Parquet file, to make the project from.")
    ] = None,
    label: Annotated[str, typer.Option(help="The column to predict; where it is missing, you are asked.")] = "",
    task: Annotated[
        Literal["", "binary", "multiclass", "regression"],
        typer.Option(
            metavar="TASK",
            help="binary (is it positive?), multiclass (which value?) or regression (which number?); "
            "where it is missing, two values mean binary, and else you are asked.",
        ),
    ] = "",
    positive: Annotated[str, typer.Option(help="Its positive value, or a condition such as '>= 7'.")] = "",
    time: Annotated[str, typer.Option(help="The column with the time of the decision; none for no column.")] = "",
    time_zone: Annotated[str, typer.Option(help="Zone of times that state none, e.g. Europe/Rome; default: UTC.")] = "",
    key: Annotated[str, typer.Option(help="The column that tells rows apart; none makes a key of their values.")] = "",
    known: Annotated[str, typer.Option(help="The column with the time at which the label is known, if any.")] = "",
    without: Annotated[
        list[str] | None, typer.Option(help="A column that no feature is made of, as it is known with the label only.")
    ] = None,
    group: Annotated[
        str,
        typer.Option(
            help="A column, such as a person, whose rows stay in one part, and no feature; none for no column."
        ),
    ] = "",
    nulls: Annotated[
        list[str] | None, typer.Option(help="A text that stands for a missing value in a CSV, such as nil.")
    ] = None,
    alarm: Annotated[
        float | None,
        typer.Option(
            min=0.5,
            max=1,
            help="ROC AUC above which a feature or a model is taken for a leak; default: 0.95, or 0.995 except for two "
            "classes.",
        ),
    ] = None,
) -> None:
    """Write a commented starting point for a project into a new folder; with --from, one that runs on that table."""
    if table is None:
        if any((label, task, positive, time, time_zone, key, known, without, group, nulls)):
            raise ConfigurationError(
                "--label, --task, --positive, --time, --time-zone, --key, --known, --without, --group and --nulls: "
                "expected --from FILE."
            )
        target = create_project(name, Path.cwd())
        typer.echo(
            f"{target} is ready. Edit project.yaml, put your tables into {name}/data, then: gatehouse run {name}"
        )
        return
    from gatehouse.cli.init_from import init_from
    from gatehouse.cli.table_roles import Wanted

    wanted = Wanted(label, task, positive, key, known, tuple(without or ()), group)
    init_from(new_folder(name, Path.cwd()), name, table, time, alarm, wanted, nulls or (), time_zone)


def new_folder(name: str, parent: Path) -> Path:
    """The folder of a new project with this name; it is not created.

    Raises:
        ConfigurationError: if the name is not a project's name or the folder exists.
    """
    if not _NAME.match(name):
        raise ConfigurationError(
            f"{name!r} is no project name: expected at most {LONGEST_NAME} lower-case letters, digits and '-', "
            "a letter first, e.g. returns."
        )
    target = parent / name
    if target.exists():
        raise ConfigurationError(
            f"{target} exists already: expected a name that is free. Choose another, or remove it."
        )
    return target


def create_project(name: str, parent: Path) -> Path:
    """Write the template as `<parent>/<name>`; nothing is overwritten. Raises as `new_folder`."""
    target = new_folder(name, parent)
    sources = sorted(path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    with whole_or_none(target) as made:
        for source in sources:
            written = made / source.relative_to(TEMPLATE)
            written.parent.mkdir(parents=True, exist_ok=True)
            text = source.read_text()
            text = text.replace("{name}", name).replace("{feast}", feast_name(name))
            written.write_text(text.replace("{{", "{").replace("}}", "}"))
    return target
