"""Gets a pinned source archive of the package index, and verifies it before anything in it is read."""

import errno
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gatehouse.errors import SourceError
from gatehouse.store.canonical import sha256_of
from gatehouse.store.store import ArtifactStore


@dataclass(frozen=True)
class Pinned:
    """One archive of one version of a project, by the digest of its bytes."""

    project: str
    version: str
    sha256: str


def archive_of(pinned: Pinned, location: str, store: ArtifactStore) -> Path:
    """The archive on this machine, verified against its digest.

    Args:
        pinned: The archive.
        location: Where it is already, on this machine; empty to fetch it.
        store: Its scratch space keeps what was fetched for the next time.

    Raises:
        SourceError: if it cannot be had, or has another digest than pinned.
        OSError: if the disk is full.
    """
    if location:
        if not Path(location).is_file():
            raise SourceError(
                f"The source {location!r} does not exist: expected a folder, or the archive of {pinned.project}."
            )
        return _verified(Path(location), pinned)
    kept = store.scratch("downloads") / f"{pinned.project}-{pinned.version}-{pinned.sha256[:12]}.tar.gz"
    if kept.is_file() and sha256_of(kept) == pinned.sha256:
        return kept
    with tempfile.TemporaryDirectory(dir=kept.parent) as directory:
        fetched = _verified(_download(pinned, Path(directory)), pinned)
        fetched.replace(kept)
    return kept


def _download(pinned: Pinned, directory: Path) -> Path:
    """Let pip fetch the archive; pip compares the pinned digest before it reads anything inside.

    Raises:
        SourceError: if it cannot be had, or has another digest than pinned.
        OSError: if the disk is full.
    """
    requirement = f"{pinned.project}=={pinned.version}"
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{requirement} --hash=sha256:{pinned.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", f"--no-binary={pinned.project}", "-r", str(requirements), "-d", str(directory)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = list(directory.glob("*.tar.gz"))
    if "DO NOT MATCH THE HASHES" in ended.stderr:
        got = re.search(r"Got\s+([0-9a-f]{64})", ended.stderr)
        raise SourceError(_not_pinned(requirement, pinned, got[1] if got else "another"))
    if ended.returncode and os.strerror(errno.ENOSPC) in ended.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))
    if ended.returncode or len(archives) != 1:
        last = ended.stderr.strip().splitlines()[-3:]
        raise SourceError(
            f"The source archive of {requirement} could not be fetched from the package index: {' '.join(last)} "
            "Check the network, or give the archive with --source."
        )
    return archives[0]


def _verified(archive: Path, pinned: Pinned) -> Path:
    found = sha256_of(archive)
    if found != pinned.sha256:
        raise SourceError(_not_pinned(archive.name, pinned, found))
    return archive


def _not_pinned(what: str, pinned: Pinned, found: str) -> str:
    return (
        f"{what} is not the pinned archive: expected SHA-256 {pinned.sha256}, found {found}. "
        "If the new content is wanted, pin its digest in source.sha256; otherwise fetch it again."
    )
