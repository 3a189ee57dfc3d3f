"""`gatehouse check --data`: the first rows of a source against its declaration, the contract and the queries."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from gatehouse.cli.check import check
from gatehouse.cli.init import create_project
from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.project.checking import check_project, look_at_rows
from gatehouse.project.project import load_project
from gatehouse.store.store import ArtifactStore

PROJECT, CONTRACT = "project.yaml", "contract.yaml"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of which few rows can be divided, and whose labels are known at once."""
    folder = create_project("returns", tmp_path)
    text = (folder / PROJECT).read_text()
    text = text.replace("batch_size: 512", "batch_size: 1")
    (folder / PROJECT).write_text(re.sub(r"train_until: .*\n.*\n.*\n", "strategy: random\n", text))
    return folder


def test_queries_run_on_the_first_rows_of_the_data(project: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)source: .*orders\.csv"):
        check_project(project, data=True)
    header = "order_id,customer_id,category,amount,placed_at,settled_at,returned\n"
    row = "o{0},c1,books,9.5,2024-01-0{1}T10:00:00Z,2024-01-01T10:00:00Z,{2}\n"
    (project / "data").mkdir()
    file = project / "data" / "orders.csv"
    file.write_text(header + row.format(1, 1, 0) + row.format(2, 2, 1))
    assert check_project(project, data=True).name == "returns"
    twice = header + row.format(1, 1, 0) + row.format(1, 1, 0).replace("9.5", "8.5")
    for rows in (twice, twice.replace("2024", "1974")):
        file.write_text(rows)
        with pytest.raises(ConfigurationError, match=r"(?s)order_content.*o1"):
            check_project(project, data=True)


def test_the_contract_is_held_against_the_first_rows_and_rows_that_do_not_fit_are_told(project: Path) -> None:
    header = "order_id,customer_id,category,amount,placed_at,settled_at,returned\n"
    row = "o{0},c1,books,{1},2024-01-01T10:00:00Z,2024-01-01T10:00:00Z,{2}\n"
    (project / "data").mkdir()
    rows = [row.format(number, 9.5, number % 2) for number in range(300)]
    (project / "data" / "orders.csv").write_text(header + "".join(rows) + row.format("x", "much", 0))
    for file, before, after in (
        (PROJECT, "      event_time", "      on_invalid: reject\n      event_time"),
        (CONTRACT, "min_rows: 1", "min_rows: 999"),
        (CONTRACT, "amount: {type: double, min: 0}", "amount: {type: double, max: 5, warn: {min: 10}}"),
    ):
        (project / file).write_text((project / file).read_text().replace(before, after, 1))
    with pytest.raises(ConfigurationError, match="2 problems") as caught:
        check_project(project, data=True)
    assert "orders: min_rows: expected at least 999 rows, found 300" in str(caught.value)
    line = 1 + [each.strip()[:8] for each in (project / CONTRACT).read_text().splitlines()].index("amount: ")
    assert f"contract.yaml:{line}: of the first rows, orders.amount: max" in str(caught.value)
    assert "orders.amount: max: expected at most 5, found 300 of 300 rows that break it" in str(caught.value)
    assert "ask nobody yet to correct the data, or change max of orders.amount in the contract" in str(caught.value)
    (project / PROJECT).write_text(
        (project / PROJECT).read_text().replace("  path:", "  block_bytes: 4096\n  path:", 1)
    )
    (project / CONTRACT).write_text((project / CONTRACT).read_text().replace(" max: 5,", ""))
    checked = check_project(project, data=True).warnings  # How many rows there are, the first block cannot tell.
    assert "warn.min" in checked[0] and len(checked) == 1
    (project / PROJECT).write_text((project / PROJECT).read_text().replace("block_bytes: 4096", "block_bytes: 65536"))
    (project / CONTRACT).write_text((project / CONTRACT).read_text().replace("min_rows: 999", "min_rows: 1"))
    rejected, *_, few = check_project(project, data=True).warnings
    assert "least_test_rows: expected at least 100 test rows, found about" in few
    told = r"project.yaml:\d\d: source.tables.orders.columns.amount: 1 of the first 301 rows would be rejected"
    assert re.match(told, rejected), rejected
    assert "first at orders.csv, line 302, found 'much'. Correct the rows or the declaration" in rejected


def test_warnings_of_the_first_rows_are_counted_where_the_policy_refuses_any(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _with_orders(project)
    with open(project / "policy.yaml", "a") as file:
        file.write("warnings: refuse\nleast_test_rows: 1\nleast_rarer_rows: 1\n")
    check(project, data=True)
    before = capsys.readouterr().out
    assert "warnings: refuse" not in before
    text = (project / CONTRACT).read_text()
    text = text.replace("min: 0}", "min: 0, warn: {min: 10}}", 1)
    (project / CONTRACT).write_text(text.replace("min_rows: 1", "min_rows: {value: 999, severity: warn}"))
    check(project, data=True)
    told = capsys.readouterr().out
    refused = "expected first rows without a warning, as every candidate is refused otherwise"
    assert f"warning: policy.yaml: warnings: refuse: {refused}, found 2 warnings of the contract or of guards" in told
    assert told.count("warning: ") == before.count("warning: ") + 3
    assert told.endswith(f"and the first rows of the data; {told.count('warning: ')} warnings.\n")


def test_a_value_of_a_column_that_the_contract_calls_sensitive_is_not_shown(project: Path) -> None:
    row = "o{0},c1,books,{1},2024-01-01T10:00:00Z,2024-01-01T10:00:00Z,{0}\n"
    header = "order_id,customer_id,category,amount,placed_at,settled_at,returned\n"
    (project / "data").mkdir()
    rows = [row.format(number, 9.5) for number in range(2)]
    shifted = row.format(1, "2024-01-01T10:00:00Z,much")
    (project / "data" / "orders.csv").write_text(header + "".join(rows) + shifted.replace(",1\n", "\n"))
    for file, before, after in (
        (PROJECT, "      event_time", "      on_invalid: reject\n      reject_limit: 0.5\n      event_time"),
        (CONTRACT, "amount: {type: double, min: 0}", "amount: {type: double, sensitive: true}"),
    ):
        (project / file).write_text((project / file).read_text().replace(before, after, 1))
    told = " ".join(check_project(project, data=True).warnings)
    assert "1 of the first 3 rows would be rejected" in told and "much" not in told
    for wrong in ("amounts: {type: double, sensitive: true}", "amount: {type: double, sensitive: yes, mini: 0}"):
        (project / CONTRACT).write_text(
            (project / CONTRACT).read_text().replace("amount: {type: double, sensitive: true}", wrong)
        )
        with pytest.raises(ConfigurationError) as caught:
            check_project(project, data=True)
        assert "much" not in str(caught.value)


def test_an_empty_file_numbers_that_are_none_and_a_single_label_are_told(project: Path) -> None:
    (project / "data").mkdir()
    file = project / "data" / "orders.csv"
    file.write_text("\n")
    with pytest.raises(
        ConfigurationError, match=r"orders\.csv is empty, expected a first line with the columns order_id"
    ):
        check_project(project, data=True)
    row = "o{0},c1,books,{1},2024-01-0{0}T10:00:00Z,2024-01-01T10:00:00Z,{2}\n"
    header = "order_id,customer_id,category,amount,placed_at,settled_at,returned\n"
    file.write_text(header + row.format(1, 9.5, 1) + row.format(2, "nan", 0) + row.format(3, "inf", 0))
    (project / CONTRACT).write_text(
        (project / CONTRACT).read_text().replace("{type: double, min: 0}", "{type: double}")
    )
    told = "features/views/order_content.sql: amount: NaN or infinite in 1 of {}, first order_id o{}"
    with pytest.raises(ConfigurationError, match=told.format("3 rows with a label", 3)):
        check_project(project, data=True)
    file.write_text(file.read_text().replace("inf", "9.5"))
    assert told.format("the first 3 rows", 2) in "\n".join(check_project(project, data=True).warnings)


BEFORE_THE_SPLIT = {"snapshot", "compute_features", "retrieve_training_set"}


@pytest.mark.parametrize(
    ("stages", "file", "before", "after", "told"),
    [
        (
            {"snapshot"},
            PROJECT,
            "member: orders.csv",
            "member: order.csv",
            r"project.yaml:19: source: data has no file 'order\.csv'",
        ),
        (
            BEFORE_THE_SPLIT,
            "features/labels/returned.sql",
            "returned = 1 AS",
            "1 / (returned - 1) AS",
            r"labels/returned\.sql: column label: expected 0 or 1 in every row, .* such as (-1.0, )?inf",
        ),
        (
            {*BEFORE_THE_SPLIT, "split"},
            "features/labels/returned.sql",
            "returned = 1 AS",
            "returned = 7 AS",
            r"labels/returned\.sql: the same label in the first 60 rows, 0, which teaches nothing",
        ),
        (
            {*BEFORE_THE_SPLIT, "split"},
            PROJECT,
            "strategy: random",
            "train_until: P810D\n  validation_until: P9D",
            r"project\.yaml:\d+: split: train has no rows\. It spans decisions before 2021-.*; the decisions are from "
            r"2024-01-01T10:00:00 to 2024-02-29T10:00:00\. Set boundaries between these times, such as train_until: ",
        ),
        (
            {*BEFORE_THE_SPLIT, "split", "fit_transformation", "tune"},
            PROJECT,
            "batch_size: 1",
            "batch_size: 2000000000",
            r"project\.yaml:\d+: training\.data\.batch_size: expected at most the 60 rows .*, found 2,000,000,000\.",
        ),
    ],
)
def test_a_run_looks_at_the_rows_of_a_small_source_as_the_check_does_and_no_further_than_its_stages(
    project: Path, stages: set[str], file: str, before: str, after: str, told: str
) -> None:
    row = "o{0},c1,books,9.5,2024-{1:02}-{2:02}T10:00:00Z,2024-{1:02}-{2:02}T10:00:00Z,{3}\n"
    (project / "data").mkdir()
    (project / "data" / "orders.csv").write_text(
        "order_id,customer_id,category,amount,placed_at,settled_at,returned\n"
        + "".join(row.format(day, 1 + day // 31, 1 + day % 31, day % 2) for day in range(60))
    )
    loaded = check_project(project)
    look_at_rows(loaded, {*BEFORE_THE_SPLIT})
    text = (project / file).read_text()
    assert before in text, "this plants nothing"
    (project / file).write_text(text.replace(before, after, 1))
    for look in (lambda: look_at_rows(load_project(project), stages), lambda: check_project(project, data=True)):
        with pytest.raises(ConfigurationError, match=f"(?s){told}"):
            look()
    look_at_rows(load_project(project), stages - {"split"} if "split" in stages else set())


@pytest.mark.parametrize(("null", "told"), [("if(order_id < 'o2', NULL, returned = 1)", True), ("returned = 1", False)])
def test_a_label_that_is_often_null_is_a_warning(project: Path, null: str, told: bool) -> None:
    _with_orders(project)
    path = project / "features/labels/returned.sql"
    assert "returned = 1 AS" in path.read_text(), "this plants nothing"
    path.write_text(path.read_text().replace("returned = 1 AS", f"{null} AS", 1))
    found = [each for each in check_project(project, data=True).warnings if "is null: neither trained on" in each]
    assert len(found) == told and all("the label of 12 of 60 rows is null" in each for each in found)


@pytest.mark.parametrize(("trains", "refused"), [("fit_transformation", False), ("tune", True), ("train", True)])
def test_a_large_batch_is_refused_only_where_a_model_is_trained(project: Path, trains: str, refused: bool) -> None:
    _with_orders(project)
    text = (project / PROJECT).read_text()
    (project / PROJECT).write_text(text.replace("batch_size: 1", "batch_size: 61"))
    planned = {*BEFORE_THE_SPLIT, "split", "fit_transformation", trains}
    with pytest.raises(ConfigurationError, match=r"batch_size: expected at most") if refused else nullcontext():
        look_at_rows(load_project(project), planned)


@pytest.mark.parametrize(
    ("spoil", "code", "told"),
    [
        (lambda text: text.replace(",9.5,", ",much,"), 4, "all 60 rows were rejected|60 of 60 rows do not fit"),
        (lambda text: text.replace(",9.5,", ",much,", 30), 4, "30 of 60 rows do not fit their declaration"),
        (lambda text: text.replace("books", '"books', 1), 1, "a quote opens a value and is not closed"),
        (lambda _: "", 1, "is empty"),
    ],
    ids=["all rejected", "too many rejected", "an open quote", "empty"],
)
def test_a_source_that_cannot_be_read_ends_a_run_with_one_code_whether_it_is_looked_at_first_or_not(
    project: Path, store: ArtifactStore, spoil: Callable[[str], str], code: int, told: str
) -> None:
    _with_orders(project)
    text = (project / PROJECT).read_text()
    (project / PROJECT).write_text(text.replace("      event_time", "      on_invalid: reject\n      event_time"))
    file = project / "data/orders.csv"
    file.write_text(spoil(file.read_text()))
    loaded = load_project(project)
    request = SnapshotRequest(source=loaded.file.source, location=str(project / "data"))
    for ended in (lambda: look_at_rows(loaded, {"snapshot"}), lambda: snapshot(request, store)):
        with pytest.raises(GatehouseError, match=told) as caught:
            ended()
        assert caught.value.exit_code == code
    with pytest.raises(ConfigurationError, match=told):
        check_project(project, data=True)


def _with_orders(project: Path, count: int = 60, **other: str) -> None:
    """Orders of the first days of 2024, one a day; `amount`, or `returned`, of the first one may be another."""
    row = "o{0},c1,books,{3},2024-{1:02}-{2:02}T10:00:00Z,2024-{1:02}-{2:02}T10:00:00Z,{4}\n"
    rows = [row.format(day, 1 + day // 31, 1 + day % 31, 9.5, day % 2) for day in range(1, count)]
    rows.insert(0, row.format(0, 1, 1, other.get("amount", 9.5), other.get("returned", 0)))
    (project / "data").mkdir()
    (project / "data" / "orders.csv").write_text(
        "order_id,customer_id,category,amount,placed_at,settled_at,returned\n" + "".join(rows)
    )


def _change(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text, "this changes nothing"
    file.write_text(text.replace(before, after, 1))


@pytest.mark.parametrize(
    ("window", "split", "told"),
    [
        (
            "days=400",
            "",
            r"looks back 400 days \(window\), .*, at 2024-01-01T10:00:00Z\. So only a part of this time is known for "
            r"60 of 60 decisions to train on \(100%\)\. Bring earlier rows, or look",
        ),
        (
            "days=31",
            "",
            r", at 2024-01-01T10:00:00Z; from 2024-02-01T10:00:00Z on all of this time is known\. .* 31 of 60 "
            r"decisions to train on \(52%\), and their features differ .* rows, train on later decisions \(train_from",
        ),
        ("days=29", "", ""),
        ("days=29", "train_until: 2024-02-20\n  validation_until: 2024-02-25", r"29 of 50 decisions .* \(58%\)"),
        ("days=29", "train_until: 2024-02-20\n  validation_until: 2024-02-25\n  train_from: 2024-01-30", ""),
        (
            "days=1",
            "train_until: 2024-01-02\n  validation_until: 2024-01-03",
            r"back 1 day \(.* for 1 of 1 decision to",
        ),
        ("days=999_999_999", "", r"looks back 999,999,999 days .* for 60 of 60 decisions to train on \(100%\)\."),
    ],
)
@pytest.mark.parametrize("hidden", [False, True])
def test_a_window_that_begins_before_the_first_row_for_most_decisions_is_a_warning(
    project: Path, window: str, split: str, told: str, hidden: bool
) -> None:
    _with_orders(project)
    _change(project / "features" / "definitions.py", "window=timedelta(0)", f"window=timedelta({window})")
    if split:
        _change(project / PROJECT, "strategy: random", split + "\n  gap: P0D")
    if hidden:
        _change(project / CONTRACT, "placed_at: {type: timestamp,", "placed_at: {type: timestamp, sensitive: true,")
    found = [each for each in check_project(project, data=True).warnings if "looks back" in each]
    assert len(found) == bool(told)
    if told and not hidden:
        assert re.search(rf"(?s)views/order_content\.sql: .*{told}", found[0]), found[0]
    elif told:
        assert "2024" not in found[0] and "not shown, as columns are sensitive (placed_at). So only" in found[0]


IN_TIME = "train_until: 2024-02-01\n  validation_until: 2024-02-15\n  gap: P0D\n  "
ON_DEMAND = """
whole = OnDemandView(name="whole", views=("order_content",), features={"share": "numeric"})

order_return = FeatureService(name="order_return", views=("order_content", "customer_history"), on_demand=("whole",))
"""


@pytest.mark.parametrize(
    ("amount", "returned", "split", "query", "told"),
    [
        (
            "inf",
            "0",
            "strategy: random",
            "",
            "views/order_content.sql: amount: NaN or infinite in 1 of 60 rows with a ",
        ),
        ("inf", "", "strategy: random", "", ""),  # No label: no model sees it.
        ("inf", "0", IN_TIME, "", "amount: NaN or infinite in 1 of 60 rows with a label, first order_id o0: inf"),
        ("inf", "0", IN_TIME + "train_from: 2024-01-10", "", ""),
        ("inf", "0", "strategy: k_fold\n  test_from: 2024-02-15", "", "amount: NaN or infinite in 1 of 59 rows with a"),
        (
            "0",
            "0",
            "strategy: random",
            "9.5 / amount",
            "on_demand/whole.sql: share: NaN or infinite in 1 of 60 rows with",
        ),
        ("0", "", "strategy: random", "9.5 / amount", ""),
        ("-1", "0", "strategy: random", "if(amount < 0, error('odd'), 1)", "on_demand/whole.sql does not run: "),
    ],
)
def test_an_infinite_feature_of_a_row_that_a_model_sees_is_a_problem_and_another_a_warning(
    project: Path, amount: str, returned: str, split: str, query: str, told: str
) -> None:
    _with_orders(project, amount=amount, returned=returned)
    _change(project / PROJECT, "strategy: random", split)
    _change(project / CONTRACT, "amount: {type: double, min: 0}", "amount: {type: double}")
    if query:
        definitions = project / "features" / "definitions.py"
        _change(definitions, "    LabelView,", "    LabelView,\n    OnDemandView,")
        definitions.write_text(definitions.read_text().partition("order_return = ")[0] + ON_DEMAND)
        (project / "features" / "on_demand").mkdir()
        (project / "features" / "on_demand" / "whole.sql").write_text(f"SELECT {query} AS share FROM rows")
    try:
        warned, refused = "\n".join(check_project(project, data=True).warnings), ""
    except ConfigurationError as error:
        warned, refused = "", str(error)
    assert (told in refused and "1 problem " in refused) if told else not refused
    if not told and amount == "inf":
        assert "views/order_content.sql: amount: NaN or infinite in 1 of the first 60 rows" in warned


@pytest.mark.parametrize(
    ("split", "policy", "told"),
    [
        ("strategy: random", "", "found about 9 of 60 rows with a label: the gate would let no model pass."),
        ("strategy: random", "\nrules: {test rows: {severity: warn}}\n", "the gate would warn of each model."),
        ("strategy: k_fold\n  test_from: 2024-02-22", "", "found about 8 of 60 rows"),
        ("strategy: k_fold\n  test_fraction: 0.5", "", "found about 30 of 60 rows"),
        ("strategy: k_fold\n  test_fraction: 0.5", "\nleast_test_rows: 30\n", ""),
        (IN_TIME, "", "found about 15 of 60 rows"),
    ],
)
def test_fewer_test_rows_than_the_gate_asks_for_are_a_warning(
    project: Path, split: str, policy: str, told: str
) -> None:
    _with_orders(project)
    _change(project / PROJECT, "strategy: random", split)
    (project / "policy.yaml").write_text((project / "policy.yaml").read_text() + policy)
    warned = "\n".join(check_project(project, data=True).warnings)
    assert told in warned and bool(told) == ("least_test_rows: expected" in warned), warned
