"""Feature tables and training sets in pieces: the same references whatever runs them, and however they are cut."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing import feature_tables
from gatehouse.features.computing import sources as raw_sources
from gatehouse.features.computing.spans import ALL_TIME, FileHours, Span, divided
from gatehouse.features.computing.stage import ComputeRequest, compute_features
from gatehouse.features.database import connect, write_parquet
from gatehouse.features.leakage.stage import LeakageRequest, check_leakage
from gatehouse.features.point_in_time import join_pieces
from gatehouse.features.point_in_time.stage import RetrieveRequest, retrieve_training_set
from gatehouse.features.table_files import view_tables
from gatehouse.pieces import piece as pieces
from gatehouse.runtime.variables import ENGINE
from gatehouse.store.store import ArtifactStore
from tests.features.publishing import publish_definitions
from tests.pieces.ray_cluster import ray_cluster

START = datetime(2024, 1, 1, tzinfo=UTC)
DAYS, AS_OF = 60, START + timedelta(days=60)
DEFINITIONS = """
from datetime import timedelta
from gatehouse.features.definitions import *

shop = Entity(name="shop")
trade = Source(table="trade", event_time="sold")
sales = FeatureView(name="sales", entities=("shop",), available=Available("event_timestamp", lag=timedelta(days=2)),
                    ttl=timedelta(days=9), window=timedelta(days=3), features={"turnover": "double", "last": "numeric"})
ever = FeatureView(name="ever", entities=("shop",), available=Available("event_timestamp"),
                   features={"total": "double"})
places = FeatureView(name="places", entities=("shop",), static=True, features={"size": "numeric"})
returned = LabelView(name="returned", entities=("shop",), arrives=Available("decision_time"),
                     window=timedelta(hours=1), lead=timedelta(days=2))
both = FeatureService(name="both", views=("sales", "ever", "places"))
"""
_SUM = "sum(amount) OVER (PARTITION BY shop ORDER BY sold RANGE BETWEEN INTERVAL {} PRECEDING AND CURRENT ROW)"
_SALES = (
    "SELECT shop, sold AS event_timestamp, {sum} AS turnover, amount AS last FROM raw.trade "
    "QUALIFY row_number() OVER (PARTITION BY shop, sold ORDER BY amount) = 1"
)
_RETURNED = (
    "SELECT shop, sold + INTERVAL 1 HOUR AS decision_time, CASE WHEN amount < 140 THEN sum(amount) OVER (PARTITION BY "
    "shop ORDER BY sold RANGE BETWEEN {}) > 1000 END AS label FROM raw.trade"
)
QUERIES = {
    "views/sales.sql": _SALES.format(sum=_SUM.format("3 DAY")),
    "views/ever.sql": "SELECT shop, date_trunc('week', sold) AS event_timestamp, sum(amount) AS total FROM raw.trade "
    "GROUP BY ALL",
    "views/places.sql": "SELECT shop, TIMESTAMPTZ '1970-01-01' AS event_timestamp, size FROM raw.shops",
    "known/trade.sql": "SELECT * FROM source.trade WHERE sold <= getvariable('as_of')",
    "labels/returned.sql": _RETURNED.format("CURRENT ROW AND INTERVAL 2 DAY FOLLOWING"),
    "feature_store.yaml": "project: shops\nprovider: local\nonline_store: {type: sqlite}\noffline_store:\n"
    "  type: gatehouse.features.point_in_time.offline_store.AsofOfflineStore\n"
    "entity_key_serialization_version: 3\n",
}


Made = tuple[dict[str, str], dict[str, str], str, str]


class Trade:
    """A store with a snapshot of shops and what they sold, and one without the last ten days."""

    def __init__(self, folder: Path) -> None:
        self.store, self.folder = ArtifactStore.open(folder / "store"), folder
        self.definitions = self.defined()

    def defined(self, **queries: str) -> str:
        kinds = {name: "labels" if name == "returned" else "views" for name in queries}
        files = {"definitions.py": DEFINITIONS, **QUERIES, **{f"{kinds[n]}/{n}.sql": q for n, q in queries.items()}}
        return publish_definitions(self.store, "shops-features", files)

    def snapshot(self, days: int) -> str:
        tables = {
            "trade": "SELECT 's' || (hash(i) % 7) AS shop, sold, (hash(i, 1) % 1000)::DOUBLE / 7 AS amount FROM "
            f"(SELECT i, TIMESTAMPTZ '{START}' + to_seconds((hash(i, 2) % {DAYS * 86400})::BIGINT) AS sold "
            f"FROM range(4000) AS t (i)) WHERE sold < TIMESTAMPTZ '{START + timedelta(days=days)}' ORDER BY sold",
            "shops": "SELECT 's' || i AS shop, i::DOUBLE AS size FROM range(7) AS t (i)",
        }
        datasets = {}
        with connect() as connection:
            for name, query in tables.items():
                rows = connection.sql(query).to_arrow_table()
                files = {}
                for number in range(3 if name == "trade" else 1):
                    path = self.folder / f"{name}-{number}.parquet"
                    write_parquet(rows.slice(number * 1500, 1500), path)
                    files[path.name] = path.read_bytes()
                counts = {name: pq.read_metadata(self.folder / name).num_rows for name in files}
                datasets[name] = self.store.publish("datasets", name, files, rows_per_file=counts)
        details = {"as_of": (START + timedelta(days=days)).isoformat(), "window": ""}
        return str(self.store.publish("snapshots", "shops", {}, derived_from=datasets, details=details))

    def compute(self, days: int = DAYS, parent: str = "", definitions: str = "") -> str:
        request = ComputeRequest(
            snapshot=self.snapshot(days),
            definitions=definitions or self.definitions,
            project="shops",
            parent=parent,
        )
        return compute_features.function(request, self.store).feature_tables

    def retrieve(self, tables: str, definitions: str = "") -> tuple[RetrieveRequest, str]:
        request = RetrieveRequest(
            snapshot=self.snapshot(DAYS),
            feature_tables=tables,
            definitions=definitions or self.definitions,
            service="both",
            as_of=AS_OF.isoformat(),
        )
        return request, retrieve_training_set.function(request, self.store).training_set

    def made(self) -> Made:
        """The references of tables, of tables added to earlier ones, of a training set, and of its leakage check."""
        tables = self.compute()
        added = self.compute(parent=self.compute(DAYS - 10))
        request, training_set = self.retrieve(tables)
        origin = {name: getattr(request, name) for name in ("snapshot", "feature_tables", "definitions")}
        leakage = check_leakage.function(
            LeakageRequest(**origin, training_set=training_set, cuts=3), self.store
        ).leakage
        return view_tables(self.store, tables), view_tables(self.store, added), training_set, leakage

    def forget(self) -> None:
        shutil.rmtree(self.store.local_folder / "memo")


@pytest.fixture(scope="module")
def trade(tmp_path_factory: pytest.TempPathFactory) -> Trade:
    return Trade(tmp_path_factory.mktemp("trade"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with ray_cluster() as address:
        yield address


@pytest.fixture(scope="module")
def references(trade: Trade) -> Made:
    """Of one piece, in this process; but training sets have their own size of pieces, which is fixed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_pieces, "ROWS", 1700)
        patch.setenv(ENGINE, '{"workers": 1}')
        return trade.made()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("rows", "engine"),
    [
        (1500, {"workers": 1}),
        (1000, {"workers": 2, "memory": "300Mi"}),
        (800, {"workers": 2, "memory": "2G"}),
        (1000, {"kind": "ray", "workers": 1}),
        (1000, {"kind": "ray", "workers": 2}),
        (1500, {"kind": "ray", "workers": 4}),
    ],
    ids=lambda value: value if isinstance(value, int) else "-".join(map(str, value.values())),
)
def test_engines_and_pieces_change_no_digest(
    trade: Trade,
    references: Made,
    rows: int,
    engine: dict[str, object],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = {"address": request.getfixturevalue("cluster")} if "kind" in engine else {}
    monkeypatch.setenv(ENGINE, json.dumps(engine | address))
    for module in (feature_tables, pieces, raw_sources):
        monkeypatch.setattr(module, "ROWS", rows)
    monkeypatch.setattr(join_pieces, "ROWS", 1700)
    trade.forget()
    assert trade.made() == references
    for name, least in {"compute_span": 4, "decide": 3, "replay": 5, "areas": 2}.items():
        assert len(list(trade.store.objects.list(f"memo/{name}"))) >= least, name
    remembered = [trade.store.objects.get_bytes(key) for key in trade.store.objects.list("memo/replay")]
    assert not any(b"stored" in record for record in remembered), "an erasure of the rows would not find their values"
    made = [trade.store.manifest(each) for each in trade.store.references("pieces")]
    sources = [" ".join(each.derived_from) for each in made if each.reference.name == "features"]
    assert all("raw:" in roles for roles in sources), "an erasure of raw rows would not find these"
    assert any("earlier:" in roles for roles in sources)
    body = trade.store.read_json(references[3], "leakage.json")
    assert {row["view"] for row in body["differences"]} == {"ever"} and len(body["cuts"]) > 4


def test_a_training_set_has_a_file_for_each_piece_in_the_order_of_decisions(trade: Trade, references: Made) -> None:
    manifest = trade.store.manifest(references[2])
    assert [(entry.path, entry.rows) for entry in manifest.files] == [
        ("part-00000.parquet", 1700),
        ("part-00001.parquet", 1700),
        ("part-00002.parquet", 507),
    ]
    times = pq.read_table(trade.store.paths(references[2]))["decision_time"].to_pylist()
    assert times == sorted(times) and manifest.rows == len(times) == 3907


@pytest.mark.parametrize("sum_of", [_SUM.format("9 DAY"), "sum(amount) OVER (PARTITION BY shop ORDER BY sold)"])
def test_a_view_that_needs_more_than_its_window_is_found(
    trade: Trade, monkeypatch: pytest.MonkeyPatch, sum_of: str
) -> None:
    monkeypatch.setattr(raw_sources, "ROWS", 1500)
    with pytest.raises(ConfigurationError, match=r"views/sales\.sql: .* 3 days.* first shop s\d, event_timestamp 2024"):
        trade.compute(definitions=trade.defined(sales=_SALES.format(sum=sum_of)))


def test_the_window_of_each_view_is_checked_whatever_its_span(trade: Trade, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier tables of `sales` are small, so nothing was divided; `recent` is new, and has another span."""
    files = {"definitions.py": DEFINITIONS, **QUERIES, "views/sales.sql": _SALES.format(sum=_SUM.format("9 DAY"))}
    parent = trade.compute(20, definitions=publish_definitions(trade.store, "shops-features", files))
    files["definitions.py"] += """
recent = FeatureView(name="recent", entities=("shop",), available=Available("event_timestamp"),
                     window=timedelta(days=1), features={"newest": "numeric"})
"""
    files["views/recent.sql"] = (
        "SELECT shop, sold AS event_timestamp, max(amount) AS newest FROM raw.trade GROUP BY ALL"
    )
    monkeypatch.setattr(raw_sources, "ROWS", 1000)
    with pytest.raises(ConfigurationError, match=r"views/sales\.sql"):
        trade.compute(DAYS, parent, publish_definitions(trade.store, "shops-features", files))


def test_a_view_that_reads_later_rows_is_found(trade: Trade, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_sources, "ROWS", 1500)
    later = _SALES.format(sum="lead(amount, 3) OVER (PARTITION BY shop ORDER BY sold)")
    with pytest.raises(ConfigurationError, match=r"views/sales\.sql: .* no later ones"):
        trade.compute(definitions=trade.defined(sales=later))


@pytest.mark.parametrize(
    "reach", ["INTERVAL 9 DAY PRECEDING AND CURRENT ROW", "CURRENT ROW AND INTERVAL 9 DAY FOLLOWING"]
)
def test_a_label_that_needs_more_than_its_window_and_lead_is_found(
    trade: Trade, monkeypatch: pytest.MonkeyPatch, reach: str
) -> None:
    monkeypatch.setattr(raw_sources, "ROWS", 1500)
    message = r"labels/returned\.sql: .* 1:00:00 before .* 2 days.* first shop s\d, decision_time 2024"
    with pytest.raises(ConfigurationError, match=message):
        trade.retrieve(trade.compute(), trade.defined(returned=_RETURNED.format(reach)))


def test_a_label_without_a_window_is_one_piece_with_the_same_rows(
    trade: Trade, references: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = DEFINITIONS.replace(",\n                     window=timedelta(hours=1), lead=timedelta(days=2)", "")
    files = {"definitions.py": whole, **QUERIES}
    monkeypatch.setattr(raw_sources, "ROWS", 1000)
    monkeypatch.setattr(join_pieces, "ROWS", 1700)
    _, training_set = trade.retrieve(trade.compute(), publish_definitions(trade.store, "shops-features", files))
    assert training_set != references[2]
    assert trade.store.manifest(training_set).files == trade.store.manifest(references[2]).files
    assert trade.store.manifest(training_set).details == trade.store.manifest(references[2]).details


def test_spans_are_cut_by_rows_alone() -> None:
    hour = timedelta(hours=1)
    rows = {START + number * hour: 10 for number in range(9)} | {START + 9 * hour: 60, None: 7}
    parts = divided(ALL_TIME, [[FileHours("a", "0", rows, {}, None)]], 75)
    cut = START + 8 * hour
    tick = timedelta(microseconds=1)
    assert parts == [Span(ALL_TIME.start, cut - tick), Span(cut, ALL_TIME.end)]
    assert divided(Span(START, START + hour), [], 100) == [Span(START, START + hour)]
