"""Imports: modules as if one were not there, and the modules that declare stages."""

import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath


@contextmanager
def without(*packages: str) -> Iterator[None]:
    """Inside this context, these packages seem not to be installed; packages that are already imported stay."""
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: Python's own way to say there is none.
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def unpack_tar(archive: tarfile.TarFile, folder: Path) -> None:
    """Write the files of an archive below `folder`.

    Python before 3.11.4 has no filter for this. Raises tarfile.TarError, and writes nothing, if a member is a link or a
    device, or lies outside.
    """
    for member in archive.getmembers():
        path = PurePosixPath(member.name)
        if not (member.isfile() or member.isdir()) or path.is_absolute() or ".." in path.parts:
            raise tarfile.TarError(f"expected files and folders inside it, found {member.name}")
        member.mode = 0o755 if member.isdir() else 0o644
    archive.extraction_filter = lambda member, path: member
    archive.extractall(folder)


def stage_modules() -> list[str]:
    """Dotted names of the modules that declare stages."""
    root = Path(__file__).parents[1]
    paths = (path.relative_to(root).with_suffix("") for path in sorted(root.rglob("*stage.py")))
    return [".".join(("gatehouse", *path.parts)) for path in paths]
