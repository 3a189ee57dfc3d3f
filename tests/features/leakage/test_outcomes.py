"""Whether the check for leakage can find leaks at all: where outcomes count as known at once, or are not taken away."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.features.computing.stage import ComputeRequest, compute_features
from gatehouse.features.leakage.stage import LeakageRequest, LeakageResult, check_leakage
from gatehouse.features.point_in_time.stage import RetrieveRequest, retrieve_training_set
from gatehouse.store.store import ArtifactStore
from tests.features.publishing import publish_definitions

START, ROWS = datetime(2024, 1, 1, tzinfo=UTC), 300
AS_OF = START + timedelta(days=60)
DEFINITIONS = """
from datetime import timedelta
from gatehouse.features.definitions import *

order = Entity(name="number", type="int64")
orders = Source(table="orders", event_time="placed")
own = FeatureView(
    name="own", entities=("number",), available=Available("event_timestamp"), window=timedelta(days=9999),
    features={"f": "numeric"},
)
label = LabelView(name="late", entities=("number",), arrives=Available("known_at"))
service = FeatureService(name="lateness", views=("own",))
"""
FEAST = (
    "project: orders\nprovider: local\nonline_store: {type: sqlite}\noffline_store:\n"
    "  type: gatehouse.features.point_in_time.offline_store.AsofOfflineStore\n"
    "entity_key_serialization_version: 3\n"
)
OVER = "OVER (PARTITION BY customer ORDER BY placed ROWS BETWEEN 3 PRECEDING AND {} ROW)"


class Queries(NamedTuple):
    """The feature, which rows the view has, the label, when that is known, and the table as it stood at a moment."""

    feature: str
    where: str = "true"
    label: str = "days > 5"
    known_at: str = "placed"
    known: str = "SELECT * FROM source.orders WHERE placed <= getvariable('as_of')"
    decided: str = "placed"
    seed: int = 0


def checked(folder: Path, queries: Queries, unchecked: str = "") -> LeakageResult:
    """The verdict on orders of 40 customers in 50 days, delivered after 1 to 8 days."""
    store, rng = ArtifactStore.open(folder / "store"), np.random.default_rng(7)
    days = rng.integers(1, 9, ROWS)
    placed = [START + timedelta(minutes=int(minute)) for minute in np.sort(rng.choice(50 * 1440, ROWS, replace=False))]
    delivered = [time + timedelta(days=int(each)) for time, each in zip(placed, days, strict=True)]
    columns = {
        "number": np.arange(ROWS),
        "customer": rng.integers(0, 40, ROWS),
        "placed": pa.array(placed, pa.timestamp("us", "UTC")),
        "delivered": pa.array(delivered, pa.timestamp("us", "UTC")),
        "days": days,
        "amount": np.round(rng.exponential(50, ROWS), 2),
        "cancelled": (rng.random(ROWS) < 0.05).astype(int),
        "broken": np.isin(np.arange(ROWS), np.random.default_rng(queries.seed).choice(ROWS, 12, replace=False)).astype(
            int
        ),
    }
    pq.write_table(pa.table(columns), folder / "orders.parquet")
    files = {"part-00000.parquet": (folder / "orders.parquet").read_bytes()}
    dataset = store.publish("datasets", "orders", files)
    pq.write_table(pa.table({"number": np.arange(ROWS), "lost": rng.random(ROWS) < 0.02}), folder / "parcels.parquet")
    parcels = store.publish("datasets", "parcels", {"part-00000.parquet": (folder / "parcels.parquet").read_bytes()})
    details = {"as_of": AS_OF.isoformat(), "window": ""}
    origin = {"orders": dataset, "parcels": parcels}
    snapshot = str(store.publish("snapshots", "orders", {}, derived_from=origin, details=details))
    texts = {
        "definitions.py": DEFINITIONS,
        "feature_store.yaml": FEAST,
        "known/orders.sql": queries.known,
        "views/own.sql": f"SELECT number, placed AS event_timestamp, f FROM (SELECT *, {queries.feature} AS f FROM "
        f"raw.orders) WHERE {queries.where}",
        "labels/late.sql": f"SELECT number, {queries.decided} AS decision_time, {queries.label} AS label, "
        f"{queries.known_at} AS known_at FROM raw.orders",
    }
    definitions = publish_definitions(store, "orders", texts)
    computed = compute_features.function(
        ComputeRequest(snapshot=snapshot, definitions=definitions, project="orders"), store
    ).feature_tables
    inputs = {"snapshot": snapshot, "feature_tables": computed, "definitions": definitions}
    wanted = RetrieveRequest(**inputs, service="lateness", as_of=AS_OF.isoformat())
    training_set = retrieve_training_set.function(wanted, store).training_set
    reason = {"own": unchecked} if unchecked else {}
    return check_leakage.function(
        LeakageRequest(**inputs, training_set=training_set, alarm=1.0, unchecked=reason), store
    )


@pytest.mark.parametrize(
    ("feature", "where"),
    [
        (f"avg(days) {OVER.format('CURRENT')}", "true"),
        ("(days > 5)::INTEGER + number * 7919 % 10 / 3.0", "true"),
        (f"count(*) FILTER (days > 5) {OVER.format('CURRENT')}", "true"),
        ("customer", "days > 5"),
    ],
    ids=["an average with its own row", "the outcome with noise", "a count with its own row", "only late rows"],
)
def test_a_feature_of_its_own_outcome_is_not_checked_where_the_label_arrives_at_the_decision(
    tmp_path: Path, feature: str, where: str
) -> None:
    result = checked(tmp_path, Queries(feature, where))
    (said,) = result.reasons
    assert said.startswith("own: not checked, as the label arrives at the decision itself") and "with another" in said
    assert "a later time in known_at of labels/late.sql" in said and "features.unchecked" in said
    accepted = checked(tmp_path, Queries(feature, where), unchecked="The outcome is told by the customer.")
    assert accepted.verdict == "pass" and "told by the customer" in accepted.warnings[0]
    # The manifest stays after an erasure, so no value of a row is in it.
    details = ArtifactStore.open(tmp_path / "store").manifest(accepted.leakage).details
    assert details["warnings"] == ["own: not checked, with the reason: The outcome is told by the customer."]


_BLANKED = (
    "SELECT * REPLACE (CASE WHEN delivered <= getvariable('as_of') THEN days END AS days) FROM source.orders "
    "WHERE placed <= getvariable('as_of')"
)


@pytest.mark.parametrize(
    "queries",
    [
        Queries("customer"),
        Queries(f"avg(days) {OVER.format('1 PRECEDING').replace(' ROW)', ')')}"),
        Queries("customer", known_at="delivered", known=_BLANKED),
        # A label that has a value before the outcome: not late until it is late.
        Queries("coalesce(days, 0) * 0", label="coalesce(days, 0) > 5", known_at="delivered", known=_BLANKED),
        # Known after ten days, and mostly before.
        Queries("customer", known_at="placed + INTERVAL 10 DAY", known=_BLANKED, label="coalesce(days, 0) > 5"),
    ],
    ids=["no outcome", "earlier outcomes", "blanked", "a label before its outcome", "known early"],
)
def test_honest_projects_raise_no_alarm(tmp_path: Path, queries: Queries) -> None:
    result = checked(tmp_path, queries)
    assert (result.verdict, result.reasons, result.warnings) == ("pass", (), ())


@pytest.mark.parametrize(
    "known",
    [Queries("").known, _BLANKED.replace("delivered", "placed + INTERVAL 1 DAY")],
)
def test_outcomes_that_stay_in_the_table_before_they_are_known_are_told(tmp_path: Path, known: str) -> None:
    queries = Queries("days + number * 7919 % 10", known_at="delivered", known=known)
    result = checked(tmp_path, queries)
    assert any("known/orders.sql leaves outcomes in" in reason for reason in result.reasons)
    # No feature is made of the outcome, so nothing is wrong with this view.
    assert checked(tmp_path, queries._replace(feature="customer")).verdict == "pass"


@pytest.mark.parametrize("feature", ["customer", "lead(amount) OVER (ORDER BY placed)"])
def test_a_known_query_that_takes_nothing_away_checks_nothing(tmp_path: Path, feature: str) -> None:
    """The second feature reads the row that comes after, which no replay can see in a table that is whole."""
    queries = Queries(feature, known_at="delivered", known="SELECT * FROM source.orders WHERE placed IS NOT NULL")
    result = checked(tmp_path, queries)
    assert result.verdict == "fail"
    assert any("known/orders.sql takes no row and no value away" in reason for reason in result.reasons)


_REFUND = "(days > 5 OR cancelled = 1)"
_RATE = f"avg((days > 5)::INTEGER) {OVER.format('1 PRECEDING').replace(' ROW)', ')')}"
_LOOKAHEAD = (
    "coalesce(max(broken) OVER (ORDER BY placed RANGE BETWEEN INTERVAL 1 SECOND FOLLOWING AND INTERVAL 24 HOURS "
    "FOLLOWING), 0) = 1"
)


@pytest.mark.parametrize("seed", [0, 11, 19, 38])
def test_a_label_of_what_happens_next_accuses_no_count_of_what_happened(tmp_path: Path, seed: int) -> None:
    """Before it arrives, such a label is told by the time that has passed, and a failure in it is known."""
    counted = "sum(broken) OVER (ORDER BY placed RANGE BETWEEN INTERVAL 7 DAYS PRECEDING AND CURRENT ROW)"
    result = checked(tmp_path, Queries(counted, label=_LOOKAHEAD, known_at="placed + INTERVAL 24 HOURS", seed=seed))
    assert (result.verdict, result.reasons, result.warnings) == ("pass", (), ())


@pytest.mark.parametrize("label", ["days > 5", _REFUND])
def test_an_outcome_left_in_beside_one_that_is_hidden_is_told(tmp_path: Path, label: str) -> None:
    hidden = Queries("").known.replace(
        "*", "* REPLACE (CASE WHEN delivered <= getvariable('as_of') THEN cancelled ELSE 0 END AS cancelled)"
    )
    result = checked(tmp_path, Queries(_RATE, label=label, known_at="delivered", known=hidden))
    (said,) = result.reasons
    assert "leaves outcomes in" in said and "orders.days, which tells the label" in said


@pytest.mark.parametrize("known_at", ["placed", "delivered"])
def test_a_column_known_at_the_decision_is_no_outcome_because_the_label_reads_it(tmp_path: Path, known_at: str) -> None:
    result = checked(tmp_path, Queries("amount", label="days > 5 AND amount > 5", known_at=known_at))
    assert (result.verdict, result.reasons) == ("pass", ())


def test_of_two_columns_the_one_is_named_that_tells_the_label(tmp_path: Path) -> None:
    label = "days + (amount > 50)::INTEGER > 5"
    result = checked(
        tmp_path, Queries(f"amount + avg(days) {OVER.format('CURRENT')}", label=label, known_at="delivered")
    )
    (said,) = result.reasons
    assert "orders.days, which tells the label" in said and "orders.amount" not in said


def test_a_column_that_tells_a_part_of_the_label_is_a_question(tmp_path: Path) -> None:
    for known_at, told in (
        ("placed", "may hold the outcome"),
        ("delivered", "stood in the raw tables at the decision"),
    ):
        (tmp_path / known_at).mkdir()
        queries = Queries("amount", label="amount + days * 12 > 90", known_at=known_at)
        result = checked(tmp_path / known_at, queries)
        (said,) = result.warnings
        assert result.verdict == "pass" and told in said and "orders.amount" in said
        assert "was known at the decision, nothing is to be done" in said
        store = ArtifactStore.open(tmp_path / known_at / "store")
        (kept,) = store.manifest(result.leakage).details["warnings"]
        assert kept.startswith("own: columns of the label") and "number" not in kept


@pytest.mark.parametrize("frame", ["CURRENT ROW", "1 PRECEDING"])
def test_an_outcome_that_arrives_before_the_decision_is_replaced_too(tmp_path: Path, frame: str) -> None:
    feature = f"avg(days) OVER (PARTITION BY customer ORDER BY placed ROWS BETWEEN 3 PRECEDING AND {frame})"
    result = checked(tmp_path, Queries(feature, decided="placed + INTERVAL 1 MINUTE"))
    assert [reason.startswith("own: not checked, as the label arrives") for reason in result.reasons] == (
        [True] if frame == "CURRENT ROW" else []
    )
    (said,) = result.warnings
    assert said.startswith("The label arrives before its decision in 300 of 300 rows: known_at of labels/late.sql")


def test_an_outcome_that_is_there_before_it_counts_as_known_is_a_question(tmp_path: Path) -> None:
    """All labels arrive after the same ten days: the outcome may be known before, or `known/` may be wrong."""
    rate = "avg(days) OVER (ORDER BY placed RANGE BETWEEN INTERVAL 20 DAYS PRECEDING AND INTERVAL 25 HOURS PRECEDING)"
    known = _BLANKED.replace("delivered", "placed + INTERVAL 1 DAY")
    queries = Queries(rate, known_at="placed + INTERVAL 10 DAY", known=known)
    result = checked(tmp_path, queries)
    (said,) = result.warnings
    assert result.reasons == () and "before the label is known by known_at in labels/late.sql" in said


def test_a_table_of_the_label_without_a_history_hides_no_other(tmp_path: Path) -> None:
    label = "coalesce((SELECT lost FROM raw.parcels WHERE parcels.number = orders.number), false) OR days > 5"
    result = checked(tmp_path, Queries(_RATE, label=label, known_at="delivered"))
    (said,) = result.reasons
    assert "known/orders.sql leaves outcomes in" in said and "orders.days, which tells the label" in said


def test_a_label_whose_sql_cannot_be_followed_is_tried(tmp_path: Path) -> None:
    label = "(SELECT days > 5 FROM range(1))"
    result = checked(tmp_path, Queries(_RATE, label=label, known_at="delivered"))
    assert any("orders.days, which tells the label" in reason for reason in result.reasons)
    other = checked(tmp_path, Queries("customer", label=label, known_at="delivered"))
    assert (other.verdict, other.reasons, other.warnings) == ("pass", (), ())
