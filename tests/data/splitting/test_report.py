"""The page of a split: it says what the checks said, of parts and folds, from the artifact alone."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.data.splitting.report import page
from gatehouse.data.splitting.spec import SplitSpec
from gatehouse.data.splitting.stage import SplitRequest, split
from gatehouse.store.store import ArtifactStore
from tests.data.splitting.conftest import Publish, spec_of


@pytest.fixture
def leaking(publish: Publish) -> str:
    """Six thousand rows of which one feature tells the label."""
    generator = np.random.default_rng(1)
    label = np.arange(6000) % 2
    columns = {"key": np.arange(6000), "label": label, "leak": label + 0.1 * generator.normal(size=6000)}
    return publish(columns, numeric=["leak"])


def _page(store: ArtifactStore, training_set: str, spec: SplitSpec) -> str:
    return page(store, split(SplitRequest(training_set=training_set, spec=spec), store).split_checks)


def test_a_warning_is_the_verdict_and_what_could_not_run_is_named(store: ArtifactStore, leaking: str) -> None:
    warned = _page(store, leaking, spec_of(strategy="entity", checks={"near": 1e-6}))
    assert 'class="verdict warn"' in warned
    assert "single_feature: leak alone tells the label of validation with ROC AUC 1.000" in warned
    assert "?\u00a0could not run" in warned
    assert "raise split.checks.single_feature_auc. <code>split.checks.severity</code> says" in " ".join(warned.split())
    quiet = spec_of(strategy="entity", checks={"near": 1e-6, "severity": {"single_feature": "note"}})
    noted = _page(store, leaking, quiet)
    assert 'class="verdict pass"' in noted
    assert "Noted only: single_feature." in noted
    unchecked = noted.split('aria-label="not checked"')[1].split("</header>")[0]
    assert all(f"<li>{name}: " in unchecked for name in ("time_order", "label_maturity", "availability"))


def test_parts_stand_in_their_order_with_what_was_divided_and_how(store: ArtifactStore, leaking: str) -> None:
    shown = _page(store, leaking, spec_of(strategy="entity", seed=11))
    assert "6,000 rows, strategy entity" in shown
    parts = re.findall(r"<tr><td>(train|validation|test)</td>", shown)
    assert parts == ["train", "validation", "test"]
    assert f'<dd class="mono">{leaking}</dd>' in shown
    assert "<dt>seed</dt><dd>11</dd>" in shown


def test_decisions_are_drawn_over_dates(store: ArtifactStore, publish: Publish) -> None:
    start = np.datetime64("2013-01-01T00:00", "us")
    times = start + np.arange(6000) * np.timedelta64(1, "h")
    columns = {"key": np.arange(6000), "label": np.arange(6000) % 2, "decision_time": times, "label_time": times}
    table = pa.table(
        columns | {name: pa.array(times, pa.timestamp("us", "UTC")) for name in columns if "_time" in name}
    )
    until = {"train_until": "2013-06-01T00:00:00Z", "validation_until": "2013-07-15T00:00:00Z"}
    roles = {"decision_time": "decision_time", "label_time": "label_time"}
    shown = _page(store, publish(table, **roles), spec_of(strategy="time", **until))
    assert "days since" not in shown
    assert re.findall(r">(\d{4}-\d\d)</text>", shown) == ["2013-01", "2013-03", "2013-05", "2013-07", "2013-09"]


def test_drift_that_parts_are_too_small_for_is_not_drawn_as_none(store: ArtifactStore, publish: Publish) -> None:
    generator = np.random.default_rng(1)
    columns = {"key": np.arange(300), "label": np.arange(300) % 2, "x": generator.normal(size=300)}
    shown = _page(store, publish(columns, numeric=["x"]), spec_of(strategy="entity"))
    drift = shown.partition("Drift between the parts</h2>")[2].partition("<h2")[0]
    assert "Not measured: no two parts have enough rows to be compared." in drift and "<svg" not in drift


def test_every_fold_has_a_line(store: ArtifactStore, leaking: str) -> None:
    folded = _page(store, leaking, spec_of(strategy="k_fold", folds=4, unit="entity", test_fraction=0.2))
    lines = folded.partition("Folds</h2>")[2].partition("</table>")[0]
    assert re.findall(r'<tr><td class="n">(\d)</td>', lines) == ["0", "1", "2", "3"]


def test_the_page_needs_nothing_but_the_artifact(store: ArtifactStore, leaking: str, tmp_path: Path) -> None:
    report = split(SplitRequest(training_set=leaking, spec=spec_of(strategy="entity")), store).split_checks
    elsewhere = ArtifactStore.open(tmp_path / "elsewhere")
    elsewhere.adopt(store.manifest(report), lambda entry: store.path(report, entry.path))
    drawn = page(elsewhere, report)
    assert drawn == page(store, report)
    assert "://" not in drawn.replace("http://www.w3.org/2000/svg", "")
