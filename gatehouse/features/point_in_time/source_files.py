"""The Parquet files of a Feast source as SQL for DuckDB: all rows that may count in a time span.

A source is a file, a folder with all its subfolders, or a pattern, on this machine or in an object store. Rows outside
the span are skipped by the statistics of their row groups.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path

import duckdb
from feast import FileSource
from feast.data_format import ParquetFormat
from feast.data_source import DataSource

from gatehouse.errors import ConfigurationError
from gatehouse.store.database import quoted, text_literal, time_literal
from gatehouse.store.objects.listed_files import ListedFiles, Read, list_objects

_SUFFIXES = (".parquet", ".parq", ".pq")
_PATTERN = re.compile(r"[*?\[]")
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"}


class SourceFiles:
    """Reads sources in one DuckDB connection on UTC; `repo_path` is the base of relative paths."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, repo_path: Path | None) -> None:
        self._connection = connection
        self._repo_path = repo_path
        self._listed: ListedFiles | None = None

    def scan(
        self,
        source: DataSource | None,
        since: datetime | None = None,
        until: datetime | None = None,
        event: str = "",
    ) -> str:
        """SQL that can follow FROM: all rows of `source` with an event from `since` to `until`, and possibly others.

        `event` is the column of the event; by default as the source says. Raises ConfigurationError if there are no
        files, or one is not Parquet.
        """
        if not isinstance(source, FileSource) or not isinstance(source.file_format, ParquetFormat | None):
            kind = getattr(getattr(source, "file_format", None), "__class__", type(source)).__name__
            name = source.name if source else "none"
            raise ConfigurationError(
                f"AsofOfflineStore reads Parquet files: expected a FileSource of them, found {kind} (source {name})."
            )
        files = self._files(source)
        options = ["union_by_name = true"] if len(files) > 1 else []
        # Folders that are partitioned as in Hive give their keys as text columns.
        hive = "true" if all(any("=" in part for part in path.split("/")[:-1]) for path in files) else "false"
        options += [f"hive_partitioning = {hive}", "hive_types_autocast = false"]
        listed = ", ".join(text_literal(address) for address in files.values())
        in_table = {new: old for old, new in source.field_mapping.items()}
        event = quoted(event or in_table.get(source.timestamp_field, source.timestamp_field))
        conditions = [f"{event}::TIMESTAMPTZ >= {time_literal(since)}"] if since else []
        conditions += [f"{event}::TIMESTAMPTZ <= {time_literal(until)}"] if until else []
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"(SELECT * FROM read_parquet([{listed}], {', '.join(options)}){where})"

    def _files(self, source: FileSource) -> dict[str, str]:
        """The location for DuckDB of each file of a source, by path below the source's folder; in order."""
        remote = "://" in source.path and not source.path.startswith("file://")
        path = source.path if remote else str(Path(self._repo_path or "") / source.path.removeprefix("file://"))
        pattern = _PATTERN.search(path)
        base = path[: path.rindex("/", 0, pattern.start())] if pattern else path
        listed: Mapping[str, tuple[int, Read] | None]
        if remote:
            credentials = source.resolve_credentials() or {}
            options = {option: credentials[name] for name, option in _CREDENTIALS.items() if credentials.get(name)}
            options |= {"endpoint_url": source.s3_endpoint_override} if source.s3_endpoint_override else {}
            listed = list_objects(base, options)
        else:
            local = Path(base).rglob("*") if Path(base).is_dir() else [Path(base)]
            listed = {str(file): None for file in local if file.is_file()}
        files = {}
        for address in sorted(listed):
            inside = address[len(base) :].strip("/")
            ignored = any(part.startswith(("_", ".")) and "=" not in part for part in inside.split("/"))
            if ignored or address.endswith("/") or (pattern and not _fits(address, path)):
                continue
            if inside and not pattern and not address.lower().endswith(_SUFFIXES):
                raise ConfigurationError(
                    f"The source {source.name}: expected Parquet files (*.parquet) below {source.path}, found "
                    f"{inside}. Move it, or give a pattern such as folder/*.parquet."
                )
            location, reader = address, listed[address]
            if reader is not None:
                self._listed = self._listed or ListedFiles(self._connection)
                location = self._listed.add(address, *reader)
            files[inside or address.rsplit("/", 1)[-1]] = location
        if not files:
            raise ConfigurationError(f"The source {source.name}: expected Parquet files at {source.path}, found none.")
        return files


def _fits(path: str, pattern: str) -> bool:
    if "**" in pattern:
        return fnmatchcase(path, pattern) or fnmatchcase(path, pattern.replace("**/", ""))
    return fnmatchcase(path, pattern) and path.count("/") == pattern.count("/")
