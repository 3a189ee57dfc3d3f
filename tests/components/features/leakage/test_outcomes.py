"""Whether the check for leakage can find leaks at all: where outcomes count as known at once, or are not taken away."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.features.computing.stage import ComputeRequest, compute_features
from gatehouse.components.features.leakage.stage import LeakageRequest, LeakageResult, check_leakage
from gatehouse.components.features.point_in_time.stage import RetrieveRequest, retrieve_training_set
from tests.components.features.publishing import publish_definitions

START, ROWS = datetime(2024, 1, 1, tzinfo=UTC), 300
AS_OF = START + timedelta(days=60)
DEFINITIONS = """
from datetime import timedelta
from gatehouse.components.features.definitions import *

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
    "  type: gatehouse.components.features.point_in_time.offline_store.AsofOfflineStore\n"
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
    }
    pq.write_table(pa.table(columns), folder / "orders.parquet")
    files = {"part-00000.parquet": (folder / "orders.parquet").read_bytes()}
    dataset = store.publish("datasets", "orders", files)
    details = {"as_of": AS_OF.isoformat(), "window": ""}
    snapshot = str(store.publish("snapshots", "orders", {}, derived_from={"orders": dataset}, details=details))
    texts = {
        "definitions.py": DEFINITIONS,
        "feature_store.yaml": FEAST,
        "known/orders.sql": queries.known,
        "views/own.sql": f"SELECT number, placed AS event_timestamp, f FROM (SELECT *, {queries.feature} AS f FROM "
        f"raw.orders) WHERE {queries.where}",
        "labels/late.sql": f"SELECT number, placed AS decision_time, {queries.label} AS label, {queries.known_at} AS "
        "known_at FROM raw.orders",
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
    ["SELECT * FROM source.orders", Queries("").known, _BLANKED.replace("delivered", "placed + INTERVAL 1 DAY")],
)
def test_outcomes_that_stay_in_the_table_before_they_are_known_are_told(tmp_path: Path, known: str) -> None:
    queries = Queries("days + number * 7919 % 10", known_at="delivered", known=known)
    result = checked(tmp_path, queries)
    assert any("known/orders.sql leaves outcomes in" in reason for reason in result.reasons)
    # No feature is made of the outcome, so nothing is wrong with this view.
    assert checked(tmp_path, queries._replace(feature="customer")).verdict == "pass"
