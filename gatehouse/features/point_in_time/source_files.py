"""The Parquet files of a Feast source as SQL for DuckDB: all rows that may count in a time span.

A source is a file, a folder with all its subfolders, or a pattern, on this machine or in an object store. Files outside
the span are skipped by path in a Hive-partitioned folder (`date=2024-05-01/…`), if the source's tag
`gatehouse.event_date` names the key that is the UTC date of the event; a row with another date than its folder is an
error. Other rows outside the span are skipped by the statistics of their row groups.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from pathlib import Path

import duckdb
from feast import FileSource
from feast.data_format import ParquetFormat
from feast.data_source import DataSource

from gatehouse.errors import ConfigurationError
from gatehouse.features.database import quoted, text_literal, time_literal
from gatehouse.store.objects.listed_files import ListedFiles, Read, list_objects

EVENT_DATE = "gatehouse.event_date"
_SUFFIXES = (".parquet", ".parq", ".pq")
_PATTERN = re.compile(r"[*?\[]")
_NO_DATE = "__HIVE_DEFAULT_PARTITION__"
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"}


class SourceFiles:
    """Reads sources in one DuckDB connection, whose time zone must be UTC."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, repo_path: Path | None) -> None:
        """Take the connection, and the base of relative paths."""
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

        Args:
            source: A FileSource of Parquet files.
            since: The first time that counts; None for no bound.
            until: The last time that counts; None for no bound.
            event: Column of the event; by default that of the source.

        Raises:
            ConfigurationError: if the source is not of Parquet files, there are no files, a file is of another kind, or
                the files' paths have no date for the tag `gatehouse.event_date`.
        """
        if not isinstance(source, FileSource) or not isinstance(source.file_format, ParquetFormat | None):
            kind = getattr(getattr(source, "file_format", None), "__class__", type(source)).__name__
            name = source.name if source else "none"
            raise ConfigurationError(
                f"AsofOfflineStore reads Parquet files: expected a FileSource of them, found {kind} (source {name})."
            )
        files = self._files(source)
        day = source.tags.get(EVENT_DATE, "")
        near = [path for path in files if not day or _near(_day(source, path, day), since, until)]
        # Where no file is in the span, one file still gives the columns.
        chosen = [files[path] for path in near or list(files)[:1]]
        options = ["union_by_name = true"] if len(chosen) > 1 else []
        hive = "true" if all(_hive(path) for path in near or files) else "false"
        options += [f"hive_partitioning = {hive}", "hive_types_autocast = false"]
        listed = ", ".join(text_literal(address) for address in chosen)
        in_table = {new: old for old, new in source.field_mapping.items()}
        event = event or in_table.get(source.timestamp_field, source.timestamp_field)
        conditions = _within(event, since, until) if event else []
        if day:
            conditions.append(_of_its_date(source.name, event, day))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"(SELECT * FROM read_parquet([{listed}], {', '.join(options)}){where})"

    def _files(self, source: FileSource) -> dict[str, str]:
        """The location for DuckDB of each file of a source, by path below the source's folder; in order."""
        remote = "://" in source.path and not source.path.startswith("file://")
        path = source.path if remote else str(self._local(source.path))
        base = path if not _PATTERN.search(path) else path[: path.rindex("/", 0, _first_pattern(path))]
        found: Mapping[str, tuple[int, Read] | None]
        found = list_objects(base, _options(source)) if remote else _list_local(Path(base))
        wanted = {each: read for each, read in found.items() if path == base or _fits(each, path)}
        files = {}
        for address in sorted(wanted):
            inside = address[len(base) :].strip("/")
            if any(part.startswith(("_", ".")) and "=" not in part for part in inside.split("/")) or address[-1] == "/":
                continue
            if inside and path == base and not address.lower().endswith(_SUFFIXES):
                raise ConfigurationError(
                    f"The source {source.name}: expected Parquet files (*.parquet) below {source.path}, found "
                    f"{inside}. Move it, or give a pattern such as folder/*.parquet."
                )
            files[inside or address.rsplit("/", 1)[-1]] = self._readable(address, wanted[address])
        if not files:
            raise ConfigurationError(
                f"The source {source.name}: expected Parquet files at {source.path}, found none. Correct the path, or "
                "compute the table first."
            )
        return files

    def _local(self, path: str) -> Path:
        local = Path(path.removeprefix("file://"))
        return local if local.is_absolute() or self._repo_path is None else Path(self._repo_path) / local

    def _readable(self, address: str, found: tuple[int, Read] | None) -> str:
        if found is None:
            return address
        if self._listed is None:
            self._listed = ListedFiles(self._connection)
        return self._listed.add(address, *found)


def _list_local(base: Path) -> dict[str, None]:
    files: Iterable[Path] = (path for path in base.rglob("*") if path.is_file()) if base.is_dir() else [base]
    return {str(path): None for path in files if path.is_file()}


def _options(source: FileSource) -> dict[str, str]:
    given = source.resolve_credentials() or {}
    options = {ours: given[name] for name, ours in _CREDENTIALS.items() if given.get(name)}
    return options | ({"endpoint_url": source.s3_endpoint_override} if source.s3_endpoint_override else {})


def _fits(path: str, pattern: str) -> bool:
    if "**" in pattern:
        return fnmatchcase(path, pattern) or fnmatchcase(path, pattern.replace("**/", ""))
    return fnmatchcase(path, pattern) and path.count("/") == pattern.count("/")


def _first_pattern(path: str) -> int:
    found = _PATTERN.search(path)
    return found.start() if found else len(path)


def _hive(path: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)


def _day(source: FileSource, path: str, key: str) -> date | None:
    value = _hive(path).get(key, "")
    try:
        return None if value == _NO_DATE else date.fromisoformat(value)
    except ValueError as error:
        raise ConfigurationError(
            f"The source {source.name}: {EVENT_DATE} says that folders are named {key}=<YYYY-MM-DD>, found {path}. "
            "Correct the tag or the path."
        ) from error


def _near(day: date | None, since: datetime | None, until: datetime | None) -> bool:
    if day is None:
        return True
    return (since is None or day >= since.astimezone(UTC).date()) and (
        until is None or day <= until.astimezone(UTC).date()
    )


def _within(event: str, since: datetime | None, until: datetime | None) -> list[str]:
    bounds = [(">=", since)] if since else []
    bounds += [("<=", until)] if until else []
    return [f"{quoted(event)}::TIMESTAMPTZ {sign} {time_literal(bound)}" for sign, bound in bounds]


def _of_its_date(source: str, event: str, key: str) -> str:
    message = text_literal(f"the source {source} has rows whose event is not on the UTC date of their folder's {key}")
    same = f"{quoted(event)}::DATE IS NOT DISTINCT FROM TRY_CAST({quoted(key)} AS DATE)"
    return f"CASE WHEN {same} THEN true ELSE error({message}) END"
