"""Retrieval from a plain Feast repository: each store against a naive join, what the replay finds, what is refused."""

import io
import random
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from feast.infra.offline_stores.dask import DaskOfflineStore

from gatehouse.errors import ConfigurationError
from gatehouse.features.leakage.retrieved import Retrieved, retrieve
from tests.features.point_in_time.feast_stores import TIME, Row, expected, minute

SETTINGS = "project: drivers\nprovider: local\nregistry: data/registry.db\nentity_key_serialization_version: 3\n"
DEFINITIONS = """
from datetime import timedelta
import pandas as pd
from feast import Entity, FeatureService, FeatureView, Field, FileSource, RequestSource, ValueType
from feast.on_demand_feature_view import on_demand_feature_view
from feast.types import Float64, Int64, String

driver = Entity(name="driver", join_keys=["driver_id"], value_type=ValueType.STRING)
source = FileSource(path="data/trips.parquet", timestamp_field="event_timestamp", created_timestamp_column="created")
schema = [Field(name="driver_id", dtype=String), Field(name="value", dtype=Int64)]
trips = FeatureView(name="trips", entities=[driver], ttl=timedelta(minutes=30), source=source, schema=schema)
asked = RequestSource(name="asked", schema=[Field(name="extra", dtype=Int64)])

@on_demand_feature_view(sources=[trips, asked], schema=[Field(name="total", dtype=Float64)])
def totals(inputs: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"total": (inputs["value"] + inputs["extra"]).astype("float64")})

alone = FeatureService(name="alone", features=[trips, totals])
sides = [trips.with_name(name).with_join_key_map({"driver_id": f"{name}_id"}) for name in ("from", "to")]
pairs = FeatureService(name="pairs", features=sides)
"""
SOURCE = [Row("a", 0, 0, 1), Row("a", 10, 60, 2), Row("b", 5, 5, 3)]


def repository(folder: Path, rows: list[Row] = SOURCE, definitions: str = DEFINITIONS) -> Path:
    (folder / "repo" / "data").mkdir(parents=True)
    (folder / "repo" / "feature_store.yaml").write_text(SETTINGS)
    (folder / "repo" / "definitions.py").write_text(definitions)
    times = [pa.array(minute(*(getattr(row, name) for row in rows)), TIME) for name in ("event", "created")]
    columns = {"driver_id": [row.key for row in rows], "value": [row.value for row in rows]}
    table = pa.table(columns | dict(zip(("event_timestamp", "created"), times, strict=True)))
    pq.write_table(table, folder / "repo" / "data" / "trips.parquet")
    return folder / "repo"


def entities(*rows: tuple[str | None, int], **columns: Any) -> pa.Table:
    times = pa.array(minute(*(time for _, time in rows)), TIME)
    keys = {"driver_id": [key for key, _ in rows], "event_timestamp": times, "extra": range(len(rows))}
    return pa.table(keys | columns)


def joined(place: Path, rows: pa.Table, **options: Any) -> Retrieved:
    (workspace := place.parent / f"work-{len(list(place.parent.iterdir()))}").mkdir()
    return retrieve(str(place), rows, workspace, **options)


@pytest.mark.parametrize("store", ["", "gatehouse"])
@pytest.mark.parametrize("known", [False, True])
def test_each_store_gives_what_a_naive_join_gives(store: str, known: bool, tmp_path: Path) -> None:
    chance = random.Random(3)
    source = [Row(chance.choice("abc"), at := chance.randrange(100), at + chance.choice([0, 20]), n) for n in range(60)]
    # Of rows with equal event timestamps, Feast's Dask store keeps any.
    source = [*{(row.key, row.event, store and row.created): row for row in source}.values()]
    places = [(chance.choice([*"abcd", None]), chance.randrange(130)) for _ in range(40)]
    rows = entities(*places, *places[3:8])  # Some keys and times twice.
    place = repository(tmp_path, source)
    got = joined(place, rows, service="alone", offline_store=store, filter_by_created_timestamp=known)
    by_event = not (known or store)
    want = [expected(key, time, source, 30, by_event) for key, time in (*places, *places[3:8])]
    assert got.table.select(rows.column_names) == rows and got.table["value"].to_pylist() == want
    totals = [None if value is None else value + extra for extra, value in enumerate(want)]
    assert got.table["total"].to_pandas().replace({float("nan"): None}).to_list() == totals
    assert got.features == ["value", "total"] and not got.differences
    assert got.judged({}, "")[0] == ("inconclusive" if by_event else "pass")
    assert len(list(place.rglob("*"))) == 4  # Nothing is written beside the definitions.


def test_a_later_value_fails_and_an_unchecked_view_needs_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, real = repository(tmp_path), DaskOfflineStore.get_historical_features
    late = joined(place, entities(("a", 10)), features=["trips:value"])
    assert late.judged({}, "")[0] == "inconclusive" and late.judged({"trips": "Loaded later."}, "")[:2] == ("pass", [])

    def leaky(entity_df: pd.DataFrame, **options: Any) -> Any:
        later = entity_df["event_timestamp"] + pd.Timedelta(minutes=10)
        return real(entity_df=entity_df.assign(event_timestamp=later), **options)

    monkeypatch.setattr(DaskOfflineStore, "get_historical_features", staticmethod(leaky))
    verdict, reasons, _, page = joined(place, entities(("a", 1), ("b", 6)), features=["trips:value"]).judged({}, "")
    assert verdict == "fail" and "trips.value" in reasons[0] and "1 of 2" in reasons[0] and reasons[0] in page
    with pytest.raises(ConfigurationError, match="trip"):
        late.judged({"trip": "No such view."}, "")


def test_a_view_without_any_value_is_inconclusive(tmp_path: Path) -> None:
    place, unknown = repository(tmp_path), entities(("A", 1), ("B", 6))
    options: dict[str, Any] = {"service": "alone", "offline_store": "gatehouse"}
    verdict, reasons, warnings, _ = joined(place, unknown, **options).judged({}, "")
    assert verdict == "inconclusive" and [reason.split(":")[0] for reason in reasons] == ["trips", "totals"]
    assert ["value" in warning or "total" in warning for warning in warnings] == [True, True]
    allowed = {"trips": "New drivers alone.", "totals": "They follow."}
    for late in (unknown, entities(("a", -1))):
        result = joined(place, late, **options, filter_by_created_timestamp=True)
        verdict, excused, warnings, _ = result.judged(allowed, "")
        assert (verdict, excused) == ("inconclusive", reasons) and not [text for text in warnings if "New" in text]
    with_b = entities(("A", 1), ("b", 6))
    assert joined(place, with_b, **options).judged({}, "")[:3] == ("pass", [], [])


def test_on_demand_features_of_other_rows_fail(tmp_path: Path) -> None:
    mean = DEFINITIONS.replace('inputs["value"] +', 'inputs["value"].mean() +')
    rows = entities(("a", 1), ("b", 6), ("b", 7))
    result = joined(repository(tmp_path, definitions=mean), rows, service="alone", offline_store="gatehouse")
    assert result.judged({}, "")[0] == "fail" and "total" in result.differences[0]


def test_a_view_joins_by_other_names_and_repositories_do_not_mix(tmp_path: Path) -> None:
    rows = entities(("a", 1), ("b", 6)).rename_columns(["from_id", "at", "extra"])
    rows = rows.append_column("to_id", rows["from_id"].take(pa.array([1, 0])))
    naive = rows.set_column(1, "at", rows["at"].cast(pa.timestamp("us")))
    for number, table in enumerate((rows, naive)):
        source = [Row(row.key, row.event, row.event, (row.value or 0) + number) for row in SOURCE]
        named = DEFINITIONS.replace('"pairs"', f'"pairs{number}"')
        place = repository(tmp_path / str(number), source, definitions=named)
        got = joined(place, table, service=f"pairs{number}", time="at", full_feature_names=True)
        assert got.features == ["from__value", "to__value"] and got.judged({}, "")[:2] == ("pass", [])
        assert got.table["from__value"].to_pylist() == [1 + number, 3 + number]
        assert got.table["to__value"].to_pylist() == [None, 1 + number]


@pytest.mark.parametrize(
    ("rows", "options", "named"),
    [
        (entities(("a", 1)), {"features": ["trips:valu"]}, "trips:value"),
        (entities(("a", 1)), {"service": "alon"}, "alone"),
        (entities(("a", 1)), {}, "pairs"),
        (entities(("a", 1)).drop_columns("event_timestamp"), {"service": "alone"}, "event_timestamp"),
        (entities(("a", 1)).drop_columns("driver_id"), {"service": "alone"}, "driver_id"),
        (entities(("a", 1), value=[1]), {"service": "alone"}, "value"),
        (entities(("a", 1)), {"service": "alone", "offline_store": "none"}, "none"),
    ],
)
def test_a_wrong_request_is_refused(rows: pa.Table, options: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=named):
        joined(repository(tmp_path), rows, **options)


def test_archives_stay_inside_their_folder(tmp_path: Path) -> None:
    place, rows = repository(tmp_path), entities(("b", 6))
    with zipfile.ZipFile(tmp_path / "good", "w") as good, zipfile.ZipFile(tmp_path / "zip", "w") as bad:
        for file in filter(Path.is_file, place.rglob("*")):
            for archive in (good, bad):
                archive.write(file, file.relative_to(tmp_path))
        bad.writestr("../outside.py", "")
    with tarfile.open(tmp_path / "tar", "w:gz") as tar:
        tar.add(place, "repo")
        tar.addfile(tarfile.TarInfo("../outside.py"), io.BytesIO())
    (tmp_path / "text").write_text("no archive")
    assert joined(tmp_path / "good", rows, service="alone").table["value"].to_pylist() == [3]
    for name in ("zip", "tar", "text", "missing"):
        with pytest.raises(ConfigurationError, match=name):
            joined(tmp_path / name, rows, service="alone")
    assert not list(tmp_path.rglob("outside.py"))
