"""`gatehouse init`: a commented project to start from."""

import re
from pathlib import Path
from typing import Annotated

import typer

from gatehouse.errors import ConfigurationError

TEMPLATE = Path(__file__).parent.parent / "templates" / "project"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}\Z")


def init(name: Annotated[str, typer.Argument(help="Name of the project, and of the folder to create.")]) -> None:
    """Write a commented starting point for a project into a new folder."""
    target = create_project(name, Path.cwd())
    typer.echo(f"{target} is ready. Edit project.yaml, put your tables into {name}/data, then: gatehouse run {name}")


def create_project(name: str, parent: Path) -> Path:
    """Write the template as `<parent>/<name>`; nothing is overwritten.

    Raises:
        ConfigurationError: if the name is not a project's name or the folder exists.
    """
    if not _NAME.match(name):
        raise ConfigurationError(
            f"{name!r} is no project name: expected lower-case letters, digits and '-', e.g. returns."
        )
    target = parent / name
    if target.exists():
        raise ConfigurationError(
            f"{target} exists already: expected a name that is free. Choose another, or remove it."
        )
    for source in sorted(path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        written = target / source.relative_to(TEMPLATE)
        written.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text()
        written.write_text(text.replace("{name}", name).replace("{{", "{").replace("}}", "}"))
    return target
