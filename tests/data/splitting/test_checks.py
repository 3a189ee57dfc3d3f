"""Every check finds what it is for, passes where there is nothing, and says so where it could not run."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gatehouse.data.splitting.checks import COULD_NOT_RUN, FAILED, NAMES, PASSED, Check, CheckedSplit, run_checks
from gatehouse.data.splitting.divide import divide
from tests.data.splitting.conftest import opened, spec_of

ROWS = 6000
HOUR = np.timedelta64(1, "h")
IN_TIME = {"train_until": "2024-05-01", "validation_until": "2024-07-01", "gap": "PT1H"}
BY_GROUP = {"strategy": "group", "columns": ["town"]}


def _columns(**changes: Any) -> dict[str, Any]:
    generator = np.random.default_rng(5)
    decision = np.datetime64("2024-01-01", "us") + np.arange(ROWS) * HOUR
    label = (generator.random(ROWS) < 0.3).astype(np.int8)
    return {
        "key": np.arange(ROWS),
        "town": generator.integers(0, 300, ROWS),
        "decision_time": pa.array(decision, pa.timestamp("us", "UTC")),
        "label_time": pa.array(decision + HOUR, pa.timestamp("us", "UTC")),
        "label": label,
        "size": generator.normal(size=ROWS) + 0.3 * label,
        "colour": np.array(["red", "green", "blue", "grün"])[generator.integers(0, 4, ROWS)],
        "latitude": generator.uniform(40, 60, ROWS),
        "longitude": generator.uniform(-10, 30, ROWS),
    } | changes


def checks_of(tmp_path: Path, table: dict[str, Any] | None = None, /, **spec: Any) -> dict[str, Check]:
    details = {"numeric": ["size"], "categorical": ["colour"]} | spec.pop("details", {})
    training_set = opened(tmp_path, table or _columns(), **details)
    named = spec_of(**spec)
    return {
        check.name: check for check in run_checks(CheckedSplit.of(named, training_set, divide(named, training_set)))
    }


def _statuses(checks: dict[str, Check]) -> dict[str, str]:
    return {name: check.status for name, check in checks.items()}


def test_a_good_split_by_time_passes_what_it_promises(tmp_path: Path) -> None:
    checks = checks_of(tmp_path, **IN_TIME)
    passed = ["parts", "time_order", "label_maturity", "entity_overlap", "duplicates"]
    assert [name for name, check in checks.items() if check.status == PASSED] == passed
    assert not any(check.ends_the_run for check in checks.values())


def test_rows_without_a_group_are_never_ranked_together(tmp_path: Path) -> None:
    towns = pa.array([None if row % 1000 == 7 else float(row % 300) for row in range(ROWS)], pa.float64())
    details = {"task": "ranking", "group": "town"}
    checks = checks_of(tmp_path, _columns(town=towns), **IN_TIME, details=details)
    assert checks["parts"].ends_the_run and "3 rows without a town" in " ".join(checks["parts"].messages)
    assert checks_of(tmp_path, **IN_TIME, details=details)["parts"].status == PASSED


def test_every_check_is_answered_and_none_passes_that_could_not_run(tmp_path: Path) -> None:
    bare = {"key": np.arange(60), "label": np.arange(60) % 2}
    checks = checks_of(tmp_path, bare, strategy="entity", details={"numeric": [], "categorical": []})
    assert list(checks) == ["parts", *NAMES]
    assert _statuses(checks) == dict.fromkeys(["parts", *NAMES], COULD_NOT_RUN) | {
        "parts": PASSED,
        "group_overlap": PASSED,
        "entity_overlap": PASSED,
    }
    assert all(check.messages for check in checks.values() if check.status == COULD_NOT_RUN)
    assert checks["time_order"].messages == ("the training set has no column decision_time",)


def test_a_group_on_two_sides_is_counted(tmp_path: Path) -> None:
    kept = checks_of(tmp_path, **BY_GROUP)
    assert (kept["group_overlap"].status, kept["group_overlap"].severity) == (PASSED, "fail")
    columns = _columns()
    checks = checks_of(tmp_path, columns, **IN_TIME, checks={"groups": ["town"]})
    assert checks["group_overlap"].ends_the_run
    training, validation = columns["town"][:2904], columns["town"][2904:4368]
    shared = set(training) & set(validation)
    count = sum(town in shared for town in validation)
    assert checks["group_overlap"].messages[0] == (
        f"{len(shared)} of the {len(set(validation))} values of town in validation are in train too; "
        f"{count} rows of validation have them"
    )


def test_duplicates_across_parts_are_counted(tmp_path: Path) -> None:
    columns = _columns()
    size, colour = columns["size"], columns["colour"]
    colour[2904 : 2904 + 40], size[2904 : 2904 + 40] = colour[:40], size[:40]
    checks = checks_of(tmp_path, columns, **IN_TIME, checks={"duplicates": 0.0})
    exact = [text for text in checks["duplicates"].messages if "validation" in text]
    message = (
        "40 of 1464 rows of validation (2.73 %, at most 0 %) have the features of a row of train. Their labels differ "
    )
    assert len(exact) == 1 and exact[0].startswith(message)
    assert (checks["duplicates"].status, checks["duplicates"].severity) == (FAILED, "warn")


def test_a_feature_known_after_the_decision_is_found(tmp_path: Path) -> None:
    columns = _columns()
    known_times = columns["decision_time"].to_numpy() - HOUR
    known_times[[5, 7]] += 3 * HOUR
    known_times[9] = "NaT"
    columns["known"] = pa.array(known_times, pa.timestamp("us", "UTC"))
    checks = checks_of(tmp_path, columns, **IN_TIME, checks={"availability": {"size": "known"}})
    assert checks["availability"].ends_the_run
    assert checks["availability"].messages == (
        "size of 2 rows was known only after the decision, up to 7200 s later",
        "size of 1 rows has a value, but known does not say since when",
        "1 features have no column that says when they were known: colour",
    )
    columns["known"] = pa.array(columns["decision_time"].to_numpy(), pa.timestamp("us", "UTC"))
    partly = checks_of(tmp_path, columns, **IN_TIME, checks={"availability": {"size": "known"}})
    assert partly["availability"].status == COULD_NOT_RUN
    dated = {"availability": {"size": "known", "colour": "known"}}
    assert checks_of(tmp_path, columns, **IN_TIME, details=dated)["availability"].status == PASSED


def test_ten_copies_of_a_table_are_refused_and_few_coarse_features_are_not(tmp_path: Path) -> None:
    """Of three coarse features nearly every row of test is in train, as an event of its own."""
    columns = _columns()
    repeated = columns | {name: np.tile(columns[name][: ROWS // 10], 10) for name in ("size", "colour", "label")}
    duplicates = checks_of(tmp_path, repeated, **IN_TIME)["duplicates"]
    assert duplicates.ends_the_run and "1464 of 1464 rows of validation (100.00 %" in duplicates.messages[0]
    coarse = columns | {"size": np.round(columns["size"]), "town": columns["town"] % 3}
    details = {"numeric": ["size", "town"]}
    duplicates = checks_of(tmp_path, coarse, **IN_TIME, details=details)["duplicates"]
    assert (duplicates.status, duplicates.severity) == (FAILED, "warn") and "99." in duplicates.messages[0]
    assert re.search(
        r"row of train\. Their labels differ (less often than|as often as) those of any", duplicates.messages[0]
    )
    measured = coarse | {"label": columns["size"]}
    duplicates = checks_of(tmp_path, measured, **IN_TIME, details=details | {"task": "regression"})["duplicates"]
    assert not duplicates.ends_the_run


def test_empty_parts_one_class_and_times_without_sense_are_all_told_at_once(tmp_path: Path) -> None:
    columns = _columns()
    columns["label"][2904:4368] = 1
    columns["label_time"] = pa.array(
        np.where(np.arange(ROWS) == 4, columns["decision_time"].to_numpy() - HOUR, columns["label_time"].to_numpy()),
        pa.timestamp("us", "UTC"),
    )
    checks = checks_of(tmp_path, columns, **IN_TIME)
    assert checks["parts"].ends_the_run
    assert checks["parts"].messages == (
        "validation: has 0 rows with label 0 and 1,464 with label 1; expected some of both",
        "train: 1 label with a time before the decision",
    )
    empty = checks_of(tmp_path, columns, **IN_TIME | {"validation_until": "2025-01-01"})
    assert empty["parts"].messages[0].startswith("test: has no rows of 6,000; the decisions are from 2024-01-01T")
    swallowed = checks_of(tmp_path, columns, **IN_TIME | {"gap": "P90D"})["parts"].messages
    assert swallowed[0].startswith("validation: has no rows") and "gap: " in swallowed[1] and "90 days" in swallowed[1]
