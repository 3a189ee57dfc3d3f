"""Finds the project and the store of a command that names none: those of the current folder."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gatehouse.errors import ConfigurationError

LONGEST_NAME = 40
"""Characters of a project's name at most."""
PROJECT_FILE = "project.yaml"
DEFAULT_STORE = ".gatehouse/store"


def project_folder(folder_option: Path | None) -> Path:
    """The folder of the project: the given one, else the current one.

    Raises ConfigurationError if neither holds a project.
    """
    folder = folder_option or Path.cwd()
    if (folder / PROJECT_FILE).is_file():
        return folder
    near = sorted(path.parent.name for path in folder.glob(f"*/{PROJECT_FILE}"))
    meant = f" There is one in {', '.join(near)}: name it." if near else " `gatehouse init NAME` writes one."
    raise ConfigurationError(f"{folder}: expected the folder of a project, found no {PROJECT_FILE} in it.{meant}")


def store_address(address: str, project: Path | None = None) -> str:
    """The address of the store: the given one, else that of the project, else `.gatehouse/store` in this folder.

    `address` is the option of the command line, relative to this folder; `project` is by default the current folder.
    """
    folder = project or Path.cwd()
    if address or not (folder / PROJECT_FILE).is_file():
        return address or DEFAULT_STORE
    from gatehouse.configuration.yaml_lines import read_yaml  # Late, because it imports pydantic.

    try:
        body = read_yaml((folder / PROJECT_FILE).read_text(), PROJECT_FILE)
    except (OSError, UnicodeError, ConfigurationError):
        body = None  # The command that reads the project reports its problems.
    named = body.get("store") if isinstance(body, dict) else None
    return in_folder(folder, str(named or DEFAULT_STORE))


def prices_of(folder: Path) -> str | None:
    """The price table of the project in a folder, as JSON; None if it has none."""
    from gatehouse.configuration.yaml_lines import read_yaml
    from gatehouse.tracking.provenance import Prices

    path = folder / PROJECT_FILE
    body = read_yaml(path.read_text(), str(path)) if path.is_file() else None
    prices = body.get("prices") if isinstance(body, dict) else None
    return Prices.model_validate(prices).model_dump_json() if prices else None


def in_folder(folder: Path, address: str) -> str:
    """An address unchanged, or a path relative to a folder."""
    return address if "://" in address else str(folder / address)


@contextmanager
def whole_or_none(target: Path) -> Iterator[Path]:
    """A temporary folder for a new project; it is moved to its place when it is complete."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as beside:
        made = Path(beside, target.name)
        made.mkdir()
        yield made
        made.rename(target)
