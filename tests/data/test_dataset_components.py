"""The components on Datasets: what is broken is a verdict, equal rows are one snapshot, and parts go on to training."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gatehouse import components
from gatehouse.data.datasets import read_dataset, write_dataset
from gatehouse.data.splitting.publication import Roles
from gatehouse.data.validation.contract import publish_contract
from gatehouse.errors import ConfigurationError, DeclarationError
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.training.transformation_stage import FitRequest, fit_transformation

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


def run(component: str, folder: Path, rows: pa.Table | None, **inputs: Any) -> tuple[Any, dict[str, Any]]:
    """Call a component with a Dataset of these rows; gives its parameters, and its artifacts by name."""
    function = getattr(components, component).python_func
    if rows is not None:
        write_dataset(rows, folder / "in")
    outputs = ("metrics", "report", "statistics", "snapshot", "train", "validation", "test")
    artifacts = {
        output: SimpleNamespace(path=str(folder / output), metadata={}, log_metric=lambda *_: None)
        for output in outputs
        if output in function.__annotations__
    }
    dataset = SimpleNamespace(path=str(folder / "in"), metadata={"reference": inputs.pop("reference", "")})
    return function(dataset=dataset, **artifacts, **inputs), artifacts


def same(folder: Path) -> Any:
    write_dataset(ORDERS, folder / "same")
    return SimpleNamespace(path=str(folder / "same"))


def address(store: ArtifactStore, reference: str) -> str:
    """The full address of what the store holds."""
    assert store.exists(reference)
    return store.address_of(reference)


def test_what_breaks_the_contract_is_a_verdict_in_every_format(tmp_path: Path) -> None:
    whole = {**CONTRACT, "freshness": None}
    (verdict, reasons, _, reference), _ = run(
        "validate_dataset", tmp_path, ORDERS, contract=whole, baseline=same(tmp_path)
    )
    assert (verdict, reasons, reference) == ("pass", [], "")
    lines = ["shop,amount", *(f"{row},{-1 if row == 7 else row}" for row in range(50)), ",5"]
    (tmp_path / "in").write_text("\n".join(lines))
    (verdict, reasons, *_), artifacts = run("validate_dataset", tmp_path, None, contract=CONTRACT, allow_unchecked=True)
    assert verdict == "fail"
    places = sorted(reason.split(":")[0] + reason.split(":")[1] for reason in reasons)
    # `amount` holds whole numbers, which a CSV does not tell from others: its type is no reason.
    assert places == ["dataset.amount min", "dataset.at column", "dataset.kind column", "dataset.shop nullable"]
    columns = json.loads(Path(artifacts["statistics"].path).read_text())["tables"]["dataset"]["columns"]
    assert columns["shop"]["nulls"] == 1
    assert "Validation against the contract" in Path(artifacts["report"].path).read_text()


def test_rules_on_drift_compare_with_a_baseline_dataset(tmp_path: Path) -> None:
    write_dataset(ORDERS.set_column(2, "amount", pa.array(RANDOM.normal(40, 3, ROWS))), tmp_path / "before")
    before = SimpleNamespace(path=str(tmp_path / "before"))
    contract = {**CONTRACT, "freshness": None}
    (verdict, reasons, *_), _ = run("validate_dataset", tmp_path, ORDERS, contract=contract, baseline=before)
    assert verdict == "fail"
    assert len(reasons) == 1 and reasons[0].startswith("dataset.amount: psi")


def test_of_several_tables_one_is_judged(tmp_path: Path, store: ArtifactStore) -> None:
    other = {"columns": {"shop": {"type": "string"}}}
    key = {"foreign_keys": [{"columns": ["shop"], "table": "shops"}]}
    contract = {"version": 1, "tables": {"orders": {**CONTRACT, **key}, "shops": other}}
    with pytest.raises(ConfigurationError, match="orders, shops"):
        run("validate_dataset", tmp_path, ORDERS, contract=contract)
    inputs = {"table": "orders", "store": store.address, "allow_unchecked": True}
    published = {"reference": store.address_of(publish_contract(store, contract))}
    for promise in (contract, published):
        (verdict, *_, reference), artifacts = run("validate_dataset", tmp_path, ORDERS, contract=promise, **inputs)
        assert verdict == "pass"
        assert "foreign_keys" in store.read_text(reference, "verdict.json")
    assert artifacts["report"].metadata["reference"] == reference == address(store, reference)
    assert artifacts["statistics"].metadata["reference"].startswith(store.address)


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
    inputs = {"contract": contract, "table": "dataset"}
    (verdict, reasons, *_), artifacts = run("validate_dataset", tmp_path, ORDERS, **inputs)
    assert verdict == "fail" and len(reasons) == 1
    assert "not checked: " in reasons[0] and rule in reasons[0]
    assert "breaks its contract" in (page := Path(artifacts["report"].path).read_text()) and "not checked" in page
    verdict, reasons, warnings, _ = run("validate_dataset", tmp_path, ORDERS, **inputs, allow_unchecked=True)[0]
    assert (verdict, reasons) == ("pass", [])
    assert len(warnings) == 1 and warnings[0].startswith("not checked: ") and rule in warnings[0]


def test_rules_that_only_warn_and_keys_within_the_table_do_not_fail(tmp_path: Path) -> None:
    warned = _with(
        columns={"shop": {"type": "int64"}, "at": {"type": "timestamp"}, "amount": {"type": "double"}},
        freshness={"column": "at", "within": "P1D", "severity": "warn"},
        foreign_keys=[{"columns": ["shop"], "table": "dataset"}],
    )
    warned["tables"]["dataset"]["columns"]["amount"]["warn"] = {"psi": 0.2}
    verdict, reasons, warnings, _ = run("validate_dataset", tmp_path, ORDERS, contract=warned, table="dataset")[0]
    assert (verdict, reasons) == ("pass", [])
    assert ["freshness" in warnings[0], "dataset.amount" in warnings[1]] == [True, True], warnings


def test_a_dataset_without_rows_is_a_verdict(tmp_path: Path) -> None:
    for rows in (ORDERS.slice(0, 0), None):
        (tmp_path / "in").write_text("shop,at,amount,kind\n")
        (verdict, reasons, *_), artifacts = run("validate_dataset", tmp_path, rows, contract=CONTRACT)
        assert verdict == "fail" and "found none" in reasons[0] and "keys" not in reasons[0]
        assert "found none" in Path(artifacts["report"].path).read_text()


def test_equal_rows_are_one_snapshot(tmp_path: Path, store: ArtifactStore) -> None:
    inputs = {"store": store.address, "name": "orders", "keys": ["shop"], "event_time": "at"}
    shuffled = ORDERS.take(pa.array(RANDOM.permutation(ROWS)))
    (first, rows, as_of, warnings), artifacts = run("snapshot_dataset", tmp_path, ORDERS, **inputs)
    assert (rows, as_of, warnings) == (ROWS, str(ORDERS["at"][-1].as_py().isoformat()), [])
    assert run("snapshot_dataset", tmp_path, shuffled, **inputs)[0][0] == first
    assert artifacts["snapshot"].metadata["reference"] == first == address(store, first)
    assert read_dataset(artifacts["snapshot"].path).sort_by("at").equals(ORDERS)
    assert run("snapshot_dataset", tmp_path, ORDERS.slice(1), **inputs)[0][0] != first
    with pytest.raises(DeclarationError, match="2,700"):
        run("snapshot_dataset", tmp_path, ORDERS, **inputs | {"event_time": ""})
    for wrong, place in (({"keys": ["none_such"]}, "none_such"), ({"name": "My Table"}, "name: .*'My Table'")):
        with pytest.raises(ConfigurationError, match=place):
            run("snapshot_dataset", tmp_path, ORDERS, **inputs | wrong)


def test_parts_are_all_rows_once_and_go_on_to_training(tmp_path: Path, store: ArtifactStore) -> None:
    before = run("snapshot_dataset", tmp_path, ORDERS, store=store.address)[0][0]
    inputs = {"label": "kind", "task": "multiclass", "store": store.address}
    (verdict, reasons, warnings, checks, training_set, split, split_checks), artifacts = run(
        "split_dataset", tmp_path, ORDERS, **inputs, reference=before
    )
    assert store.manifest(training_set).derived_from == {"dataset": str(Reference.parse(before))}
    assert (verdict, reasons, checks["parts"]) == ("pass", [], "passed") and isinstance(warnings, list)
    for reference in (training_set, split, split_checks):
        assert reference == address(store, reference)
    assert artifacts["train"].metadata["reference"] == split
    parts = [read_dataset(artifacts[name].path) for name in ("train", "validation", "test")]
    assert pa.concat_tables(parts).sort_by("at").equals(ORDERS)
    details = store.manifest(training_set).details
    assert (details["classes"], details["numeric"]) == (["book", "pen", "toy"], ["shop", "amount", "paid"])
    fitted = fit_transformation(FitRequest(split=split, model_name="kinds"), store)
    assert store.exists(fitted.transformation)
    # A row stays where it is when others are gone, though it has no key and its values may be null.
    run("split_dataset", tmp_path, ORDERS.slice(0, 2000), **inputs, reference="of something else")
    kept = read_dataset(artifacts["train"].path)["at"].to_pylist()
    assert kept == [time for time in parts[0]["at"].to_pylist() if time < ORDERS["at"][2000].as_py()]


def test_parts_that_leak_are_a_verdict_and_not_written(tmp_path: Path) -> None:
    repeated = pa.concat_tables([ORDERS, ORDERS])
    columns = {"keys": ["shop"], "event_time": "at"}
    inputs = {"label": "paid", "columns": columns, "spec": {"strategy": "random"}}
    (verdict, reasons, *_), artifacts = run("split_dataset", tmp_path, repeated, **inputs)
    assert verdict == "fail" and "repeat the entity keys shop" in reasons[0]
    assert not Path(artifacts["train"].path).exists()
    assert reasons[0] in Path(artifacts["report"].path).read_text()
    with pytest.raises(ConfigurationError, match="did you mean time"):
        run("split_dataset", tmp_path, ORDERS, label="paid", spec={"strategy": "temporal"})
    by_time = {"train_until": "P20D", "validation_until": "P10D"}
    folds = {"strategy": "k_fold", "folds": 3, "test_from": "2024-04-01"}
    for spec in (by_time, folds):
        with pytest.raises(ConfigurationError, match="give columns"):
            run("split_dataset", tmp_path, ORDERS, label="paid", spec=spec)
    artifact = SimpleNamespace(path=str(tmp_path / "in"))
    with pytest.raises(ConfigurationError, match="both"):
        run("split_dataset", tmp_path, ORDERS, label="paid", spec=folds, spec_file=artifact)
    for roles, words in (
        ({"label": "none"}, "none is missing"),
        ({"label": "paid", "event_time": "amount"}, "amount is double"),
        ({"label": "paid", "features": ["paid"]}, "feature and label"),
        ({"label": "paid", "features": ["at"]}, "at is timestamp"),
        ({"label": "kind"}, "classes"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            Roles.model_validate(roles).applied(ORDERS)
