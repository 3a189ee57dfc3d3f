"""A year of the example's features from scratch, against one more day added to them."""

import argparse
import statistics
import tarfile
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import _flights
import pyarrow.parquet as pq

import gatehouse
from gatehouse.features.computing.stage import ComputeRequest, compute_features
from gatehouse.features.database import connect, open_tables
from gatehouse.features.definitions.published import published_files
from gatehouse.features.definitions.repository import read_repository
from gatehouse.store.store import ArtifactStore

END = datetime(2014, 1, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)
LIMIT = 20
GROWING = ("flights", "weather")


def raw_tables(folder: Path) -> dict[str, Path]:
    """The raw tables of the year, as Parquet."""
    files = {"flights": folder / "flights.parquet"}
    pq.write_table(_flights.read_flights(), files["flights"])
    with tarfile.open(_flights.source_archive()) as packed, connect() as connection:
        names = {Path(name).name: name for name in packed.getnames()}
        for table in ("weather", "planes", "airports"):
            member = packed.extractfile(names[f"{table}.csv"])
            assert member is not None
            (folder / f"{table}.csv").write_bytes(member.read())
            files[table] = folder / f"{table}.parquet"
            timed = " REPLACE (time_hour::TIMESTAMPTZ AS time_hour)" if table == "weather" else ""
            rows = f"read_csv('{folder / table}.csv', nullstr = ['NA', ''], sample_size = -1)"
            connection.execute(f"COPY (SELECT *{timed} FROM {rows}) TO '{files[table]}' (FORMAT parquet)")
    return files


def snapshot(store: ArtifactStore, raw: dict[str, Path], until: datetime, folder: Path) -> str:
    """The raw tables with the rows before `until`: those that grow as a source does that delivers a file a month."""
    datasets, part = {}, folder / "part.parquet"
    with connect() as connection:
        open_tables(connection, {name: [path] for name, path in raw.items()})
        for name in raw:
            queries = [f"FROM raw.{name}"]
            if name in GROWING:
                before = f"time_hour < TIMESTAMPTZ '{until.isoformat()}'"
                months = f"SELECT DISTINCT strftime(time_hour, '%Y-%m') FROM raw.{name} WHERE {before} ORDER BY ALL"
                queries = [
                    f"FROM raw.{name} WHERE {before} AND strftime(time_hour, '%Y-%m') = '{month}'"
                    for (month,) in connection.execute(months).fetchall()
                ]
            files = {}
            for number, query in enumerate(queries):
                connection.execute(f"COPY ({query}) TO '{part}' (FORMAT parquet)")
                files[f"part-{number:05d}.parquet"] = part.read_bytes()
            datasets[name] = store.publish("datasets", name, files)
    details = {"as_of": (until + DAY).isoformat(), "window": ""}
    return str(store.publish("snapshots", "flights", {"source.json": "{}"}, derived_from=datasets, details=details))


def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        store = ArtifactStore.open(folder / "store")
        repository = read_repository(Path(gatehouse.__file__).parent / "feature_repo")
        definitions = str(store.publish("config", "flights-features", published_files(repository)))
        raw = raw_tables(folder)
        earlier, later = (snapshot(store, raw, until, folder) for until in (END - DAY, END))

        def compute(of: str, parent: str = "") -> tuple[str, tuple[float, float]]:
            started, worked = time.perf_counter(), time.process_time()
            request = ComputeRequest(snapshot=of, definitions=definitions, project="flights", parent=parent)
            tables = compute_features.function(request, store).feature_tables
            return tables, (time.perf_counter() - started, time.process_time() - worked)

        parent, _ = compute(earlier)
        whole, more = [], []
        for _ in range(runs):
            scratch, seconds = compute(later)
            whole.append(seconds)
            # A day takes so little that one measurement says less than the median of a few.
            for _ in range(3):
                added, seconds = compute(later, parent)
                more.append(seconds)
                assert scratch == added, "from scratch and incremental differ"
        for place, kind in enumerate(("elapsed", "CPU")):
            year, day = (statistics.median(sample[place] for sample in several) for several in (whole, more))
            ratio = f"{year / day:.1f} times less (limit {LIMIT})"
            print(f"{kind}: a year from scratch {year:.2f} s, one more day {day:.2f} s: {ratio}")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=3)
    main(arguments.parse_args().runs)
