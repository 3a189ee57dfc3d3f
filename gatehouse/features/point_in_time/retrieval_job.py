"""A retrieval that runs when its result is requested, and returns it whole or in batches."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from feast import OnDemandFeatureView
from feast.data_format import ParquetFormat
from feast.infra.offline_stores.file_source import SavedDatasetFileStorage
from feast.infra.offline_stores.offline_store import RetrievalJob, RetrievalMetadata
from feast.saved_dataset import SavedDatasetStorage

from gatehouse.errors import ConfigurationError
from gatehouse.store.objects.listed_files import list_objects, upload

Tables = Callable[[Path], Iterator[pa.Table]]


class AsofRetrievalMetadata(RetrievalMetadata):
    """Feast's metadata, and the time rule used for each view: `bitemporal` or `event-time-only`."""

    def __init__(
        self,
        features: list[str],
        keys: list[str],
        min_event_timestamp: datetime | None,
        max_event_timestamp: datetime | None,
        point_in_time: dict[str, str],
    ) -> None:
        super().__init__(features, keys, min_event_timestamp, max_event_timestamp)
        self.point_in_time = point_in_time


class AsofRetrievalJob(RetrievalJob):
    """A query that runs each time its result is requested."""

    def __init__(
        self,
        tables: Tables,
        full_feature_names: bool = False,
        on_demand: Sequence[OnDemandFeatureView] = (),
        metadata: Callable[[], RetrievalMetadata] | None = None,
        repo_path: Path | None = None,
    ) -> None:
        """Take the query.

        `tables` gives the result in parts, at least one; it may write into the directory that it gets, which is removed
        after the last part. `repo_path` is the base of relative paths of saved datasets.
        """
        self._tables = tables
        self._full_feature_names = full_feature_names
        self._on_demand = list(on_demand)
        self._metadata = metadata
        self._repo_path = repo_path

    def to_arrow_batches(self) -> pa.RecordBatchReader:
        """The result with on-demand features, in batches, so that a result can be larger than memory.

        Its temporary files are removed after the last batch, or when the reader is dropped.
        """
        parts = self._parts()
        first = next(parts)
        schema = first.schema

        def batches() -> Iterator[pa.RecordBatch]:
            yield from first.to_batches()
            for part in parts:
                yield from part.cast(schema).to_batches()

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _parts(self) -> Iterator[pa.Table]:
        """The result in parts, on which Feast's own code computes the on-demand features."""

        def job(part: pa.Table) -> AsofRetrievalJob:
            return AsofRetrievalJob(lambda _: iter([part]), self._full_feature_names, self._on_demand, self._metadata)

        for table in self._stored():
            yield job(table).to_arrow() if self._on_demand else table

    def _stored(self) -> Iterator[pa.Table]:
        with tempfile.TemporaryDirectory(prefix="gatehouse-features-") as folder:
            yield from self._tables(Path(folder))

    def _to_arrow_internal(self, timeout: int | None = None) -> pa.Table:
        tables = list(self._stored())
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _to_df_internal(self, timeout: int | None = None) -> pd.DataFrame:
        frame: pd.DataFrame = self._to_arrow_internal().to_pandas()
        return frame

    @property
    def full_feature_names(self) -> bool:
        """Whether features are called `<view>__<feature>`."""
        return self._full_feature_names

    @property
    def on_demand_feature_views(self) -> list[OnDemandFeatureView]:
        """On-demand views that Feast computes on the result."""
        return self._on_demand

    @property
    def metadata(self) -> RetrievalMetadata | None:
        """The request and its time rules; None for data that Feast pulls from a source."""
        return self._metadata() if self._metadata else None

    def persist(self, storage: SavedDatasetStorage, allow_overwrite: bool = False, timeout: int | None = None) -> None:
        """Write the result with on-demand features to a Parquet file, on this machine or in an object store.

        Raises ConfigurationError if the storage is no Parquet file; if it exists and may not be overwritten; or if the
        time of the entity rows is not called `event_timestamp`, the name that Feast reads in saved datasets.
        """
        if not isinstance(storage, SavedDatasetFileStorage) or not isinstance(
            storage.file_options.file_format, ParquetFormat | None
        ):
            raise ConfigurationError(
                f"AsofOfflineStore saves datasets as Parquet files, found {type(storage).__name__}."
            )
        address = storage.file_options.uri
        endpoint = storage.file_options.s3_endpoint_override
        options = {"endpoint_url": endpoint} if endpoint else {}
        remote = "://" in address
        path = Path(self._repo_path or "", address)
        if not allow_overwrite and (bool(list_objects(address, options)) if remote else path.exists()):
            name = address.rsplit("/", 1)[-1]
            raise ConfigurationError(f"The saved dataset {name} exists. Give another name, or allow_overwrite=True.")
        if remote:
            with tempfile.TemporaryDirectory(prefix="gatehouse-features-") as folder:
                upload(self._write(Path(folder) / "dataset.parquet"), address, options)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".saving-", dir=path.parent) as folder:
            shutil.move(self._write(Path(folder) / path.name), path)

    def _write(self, path: Path) -> Path:
        reader = self.to_arrow_batches()
        if "event_timestamp" not in reader.schema.names:
            raise ConfigurationError(
                "A saved dataset needs the column event_timestamp, by which Feast reads it: rename the time of the "
                f"entity rows. Found {', '.join(reader.schema.names)}."
            )
        with pq.ParquetWriter(path, reader.schema.remove_metadata(), compression="zstd") as writer:
            for batch in reader:
                writer.write_batch(batch.replace_schema_metadata(None))
        return path
