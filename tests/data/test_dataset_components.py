"""Components of data on tables: what is broken is a verdict, equal rows are one snapshot, parts are all rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kfp import dsl

from gatehouse.components import snapshot, split, validate
from gatehouse.data.datasets import read_dataset
from gatehouse.data.splitting.publication import Roles
from gatehouse.data.validation.contract import publish_contract
from gatehouse.errors import ConfigurationError, DeclarationError
from gatehouse.store.store import ArtifactStore
from tests.components import call

ROWS = 3000
RANDOM = np.random.default_rng(5)
HOURS = np.datetime64("2024-01-01", "us") + np.arange(ROWS) * np.timedelta64(1, "h")
ORDERS = pa.table(
    {
        "shop": pa.array(np.arange(ROWS) % 300),
        "at": pa.array(HOURS).cast(pa.timestamp("us", "UTC")),
        "amount": pa.array(RANDOM.normal(20, 3, ROWS), mask=np.arange(ROWS) % 7 == 0),
        "paid": pa.array(RANDOM.random(ROWS) < 0.4),
        "kind": pa.array(RANDOM.choice(["book", "toy", "pen"], ROWS)),
    }
)
CONTRACT = {
    "columns": {
        "shop": {"type": "int64", "nullable": False},
        "at": {"type": "timestamp"},
        "amount": {"type": "double", "min": 0, "psi": 0.2},
        "kind": {"type": "string", "allowed": ["book", "toy", "pen"]},
    },
    "freshness": {"column": "at", "within": "P1D"},
    "extra_columns": "allow",
}


def text(path: str) -> str:
    return Path(path).read_text()


def test_what_breaks_the_contract_is_a_verdict_in_every_format(tmp_path: Path) -> None:
    whole = {**CONTRACT, "freshness": None}
    passed = call(validate, tmp_path, data=ORDERS, contract=whole, baseline=ORDERS)
    assert (passed.verdict, passed.reasons) == ("pass", [])
    assert passed.validation.metadata == {"verdict": "pass", "reasons": "[]"} and Path(passed.validation.path).is_dir()
    lines = ["shop,amount", *(f"{row},{-1 if row == 7 else row}" for row in range(50)), ",5"]
    (tmp_path / "csv").write_text("\n".join(lines))
    csv = dsl.Dataset(uri=str(tmp_path / "csv"))
    failed = call(validate, tmp_path, data=csv, contract=CONTRACT, allow_unchecked=True)
    assert failed.verdict == failed.validation.metadata["verdict"] == "fail"
    places = sorted(reason.split(":")[0] + reason.split(":")[1] for reason in failed.reasons)
    # `amount` holds whole numbers, which a CSV does not tell from others: its type is no reason.
    assert places == ["dataset.amount min", "dataset.at column", "dataset.kind column", "dataset.shop nullable"]
    assert json.loads(text(failed.statistics.path))["tables"]["dataset"]["columns"]["shop"]["nulls"] == 1
    assert "Validation against the contract" in text(failed.report.path)


def test_a_value_of_another_type_in_a_csv_is_a_verdict_that_names_its_row(tmp_path: Path) -> None:
    contract = {"columns": {"shop": {"type": "int64"}, "amount": {"type": "double"}}}
    for odd, verdict in (("7.5", "pass"), ("many", "fail")):
        lines = ["shop,amount", *(f"{row},{odd if row == 30 else row}" for row in range(50))]
        (tmp_path / "csv").write_text("\n".join(lines))
        judged = call(validate, tmp_path, data=dsl.Dataset(uri=str(tmp_path / "csv")), contract=contract)
        assert judged.verdict == verdict
    [reason] = judged.reasons
    assert "line 32, column amount" in reason and "'many'" in reason
    assert "many" in text(judged.report.path)


def test_rules_on_drift_compare_with_an_earlier_table_or_its_validation(tmp_path: Path, store: ArtifactStore) -> None:
    before = ORDERS.set_column(2, "amount", pa.array(RANDOM.normal(40, 3, ROWS)))
    inputs = {"contract": {**CONTRACT, "freshness": None}, "store": store.address}
    earlier = call(validate, tmp_path, data=before, allow_unchecked=True, **inputs).validation
    for baseline in (before, earlier):
        moved = call(validate, tmp_path, data=ORDERS, baseline=baseline, **inputs)
        assert moved.verdict == "fail"
        assert len(moved.reasons) == 1 and moved.reasons[0].startswith("dataset.amount: psi")


def test_of_several_tables_one_is_judged(tmp_path: Path, store: ArtifactStore) -> None:
    other = {"columns": {"shop": {"type": "string"}}}
    key = {"foreign_keys": [{"columns": ["shop"], "table": "shops"}]}
    contract = {"version": 1, "tables": {"orders": {**CONTRACT, **key}, "shops": other}}
    with pytest.raises(ConfigurationError, match="orders, shops"):
        call(validate, tmp_path, data=ORDERS, contract=contract)
    inputs = {"table": "orders", "store": store.address, "allow_unchecked": True}
    for promise in (contract, {"reference": store.address_of(publish_contract(store, contract))}):
        judged = call(validate, tmp_path, data=ORDERS, contract=promise, **inputs)
        assert judged.verdict == "pass"
        reference = judged.validation.metadata["reference"]
        assert "foreign_keys" in store.read_text(reference, "verdict.json")
    assert judged.report.metadata["reference"] == reference and reference.startswith(store.address)
    assert store.exists(judged.statistics.metadata["reference"])


def test_a_snapshot_is_judged_as_it_is_taken_or_later(tmp_path: Path, store: ArtifactStore) -> None:
    keys = {"keys": ["shop"], "event_time": "at", "name": "dataset"}
    wrong = {"version": 1, "tables": {"dataset": {**CONTRACT, "max_rows": 5}}}
    taken = call(snapshot, tmp_path, store=store.address, dataset=ORDERS, **keys)
    assert (taken.verdict, taken.validation.metadata["verdict"]) == ("not checked", "not checked")
    assert "reference" not in {**taken.validation.metadata, "reference": ""} or taken.validation.metadata["reference"]
    together = call(snapshot, tmp_path, store=store.address, dataset=ORDERS, contract=wrong, **keys)
    later = call(validate, tmp_path, data=taken.snapshot, contract=wrong)
    assert together.verdict == later.verdict == "fail" and together.reasons == later.reasons
    assert together.snapshot.metadata == taken.snapshot.metadata
    assert together.validation.metadata == later.validation.metadata


SHOP = {"columns": {"shop": {"type": "int64"}}, "extra_columns": "allow"}
OTHER: dict[str, Any] = {"version": 1, "tables": {"dataset": SHOP, "shops": SHOP}}


def _with(**rules: Any) -> dict[str, Any]:
    return {**OTHER, "tables": {**OTHER["tables"], "dataset": {**OTHER["tables"]["dataset"], **rules}}}


@pytest.mark.parametrize(
    ("contract", "rule"),
    [
        (_with(columns={"at": {"type": "timestamp"}}, freshness={"column": "at", "within": "P1D"}), "freshness"),
        (_with(foreign_keys=[{"columns": ["shop"], "table": "shops"}]), "foreign_keys"),
        (_with(foreign_keys=[{"columns": ["shop"], "table": "shops", "snapshot": "of_shops"}]), "foreign_keys"),
        (_with(columns={"amount": {"type": "double", "psi": 0.2}}), "psi"),
        (_with(min_rows_ratio=0.5), "min_rows_ratio"),
    ],
)
def test_a_rule_that_cannot_be_judged_fails_unless_it_is_allowed(
    tmp_path: Path, contract: dict[str, Any], rule: str
) -> None:
    inputs = {"data": ORDERS, "contract": contract, "table": "dataset"}
    judged = call(validate, tmp_path, **inputs)
    assert judged.verdict == "fail" and len(judged.reasons) == 1
    assert "not checked: " in judged.reasons[0] and rule in judged.reasons[0]
    assert "breaks its contract" in (page := text(judged.report.path)) and "not checked" in page
    judged = call(validate, tmp_path, **inputs, allow_unchecked=True)
    assert (judged.verdict, judged.reasons) == ("pass", [])
    assert len(judged.warnings) == 1 and judged.warnings[0].startswith("not checked: ") and rule in judged.warnings[0]


def test_rules_that_only_warn_and_keys_within_the_table_do_not_fail(tmp_path: Path) -> None:
    warned = _with(
        columns={"shop": {"type": "int64"}, "at": {"type": "timestamp"}, "amount": {"type": "double"}},
        freshness={"column": "at", "within": "P1D", "severity": "warn"},
        foreign_keys=[{"columns": ["shop"], "table": "dataset"}],
    )
    warned["tables"]["dataset"]["columns"]["amount"]["warn"] = {"psi": 0.2}
    judged = call(validate, tmp_path, data=ORDERS, contract=warned, table="dataset")
    assert (judged.verdict, judged.reasons) == ("pass", [])
    assert ["freshness" in judged.warnings[0], "dataset.amount" in judged.warnings[1]] == [True, True]


def test_a_dataset_without_rows_is_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "csv").write_text("shop,at,amount,kind\n")
    for rows in (ORDERS.slice(0, 0), dsl.Dataset(uri=str(tmp_path / "csv"))):
        judged = call(validate, tmp_path, data=rows, contract=CONTRACT)
        (reason,) = judged.reasons
        assert judged.verdict == "fail" and "found none" in reason and "keys" not in reason
        assert "found none" in text(judged.report.path) and judged.validation.metadata["reference"] == "none"


def test_equal_rows_are_one_snapshot(tmp_path: Path, store: ArtifactStore) -> None:
    inputs = {"store": store.address, "name": "orders", "keys": ["shop"], "event_time": "at"}
    shuffled = ORDERS.take(pa.array(RANDOM.permutation(ROWS)))
    first = call(snapshot, tmp_path, dataset=ORDERS, tables=True, **inputs)
    assert (first.rows, first.as_of, first.warnings) == ({"orders": ROWS}, ORDERS["at"][-1].as_py().isoformat(), [])
    assert read_dataset(first.snapshot.path).sort_by("at").equals(ORDERS)
    again = call(snapshot, tmp_path, dataset=shuffled, **inputs)
    reference = first.snapshot.metadata["reference"]
    assert again.snapshot.metadata["reference"] == reference and store.exists(reference)
    assert call(snapshot, tmp_path, dataset=ORDERS.slice(1), **inputs).snapshot.metadata["reference"] != reference
    with pytest.raises(DeclarationError, match="2,700"):
        call(snapshot, tmp_path, dataset=ORDERS, **inputs | {"event_time": ""})
    for wrong, place in (({"keys": ["none_such"]}, "none_such"), ({"name": "My Table"}, "name: .*'My Table'")):
        with pytest.raises(ConfigurationError, match=place):
            call(snapshot, tmp_path, dataset=ORDERS, **inputs | wrong)


def test_parts_are_all_rows_once(tmp_path: Path, store: ArtifactStore) -> None:
    taken = call(snapshot, tmp_path, dataset=ORDERS, store=store.address).snapshot
    inputs = {"label": "kind", "task": "multiclass", "tables": True}
    made = call(split, tmp_path, data=taken, **inputs)
    assert (made.verdict, made.reasons, made.checks["parts"]) == ("pass", [], "passed")
    parts = [read_dataset(part.path) for part in (made.train, made.validation, made.test)]
    assert pa.concat_tables(parts).sort_by("at").equals(ORDERS)
    assert [*made.rows.values()] == [part.num_rows for part in parts]
    addresses = {part.metadata["reference"] for part in (made.split, made.train, made.validation, made.test)}
    assert len(addresses) == 1 and store.exists(made.split.metadata["split_checks"])
    training_set = store.manifest(store.manifest(*addresses).derived_from["training_set"])
    assert taken.metadata["reference"].endswith(training_set.derived_from["dataset"])
    details = training_set.details
    assert (details["classes"], details["numeric"]) == (["book", "pen", "toy"], ["shop", "amount", "paid"])
    # A row stays where it is when others are gone, though it has no key and its values may be null.
    fewer = call(split, tmp_path, data=ORDERS.slice(0, 2000), **inputs)
    kept = read_dataset(fewer.train.path)["at"].to_pylist()
    assert kept == [time for time in parts[0]["at"].to_pylist() if time < ORDERS["at"][2000].as_py()]


def test_parts_that_leak_are_a_verdict_and_not_written(tmp_path: Path) -> None:
    repeated = pa.concat_tables([ORDERS, ORDERS])
    columns = {"keys": ["shop"], "event_time": "at"}
    leaked = call(split, tmp_path, data=repeated, label="paid", columns=columns, spec={"strategy": "random"})
    assert leaked.verdict == "fail" and "repeat the entity keys shop" in leaked.reasons[0]
    assert text(leaked.train.path) == "" and leaked.train.metadata["reference"] == "none"
    assert leaked.reasons[0] in text(leaked.report.path)
    with pytest.raises(ConfigurationError, match="did you mean time"):
        call(split, tmp_path, data=ORDERS, label="paid", spec={"strategy": "temporal"})
    folds = {"strategy": "k_fold", "folds": 3, "test_from": "2024-04-01"}
    for spec in ({"train_until": "P20D", "validation_until": "P10D"}, folds):
        with pytest.raises(ConfigurationError, match="give columns"):
            call(split, tmp_path, data=ORDERS, label="paid", spec=spec)
    with pytest.raises(ConfigurationError, match="both"):
        call(split, tmp_path, data=ORDERS, label="paid", spec=folds, spec_file=leaked.report)
    for roles, words in (
        ({"label": "piad"}, r"piad is missing.*paid.*shop, at, amount, paid, kind"),
        ({"label": "paid", "event_time": "amount"}, "amount is double"),
        ({"label": "paid", "features": ["paid"]}, "feature and label"),
        ({"label": "paid", "features": ["at"]}, "at is timestamp"),
        ({"label": "kind"}, "classes"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            Roles.model_validate(roles).applied(ORDERS)
