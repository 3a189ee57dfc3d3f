"""The report's intervals are Wilson's, and what it says of checks is what they said."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.splitting.report import label_rate
from gatehouse.components.splitting.stage import SplitRequest, split
from tests.components.splitting.conftest import Publish, spec_of


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=500))
def test_the_interval_of_a_label_rate_is_wilsons(labels: list[int]) -> None:
    subject: Any = SimpleNamespace(labels=np.array(labels))
    rate, low, high = label_rate(subject, np.arange(len(labels)))
    expected = binomtest(sum(labels), len(labels)).proportion_ci(0.95, method="wilson")
    assert (rate, low, high) == pytest.approx((np.mean(labels), expected.low, expected.high), abs=2e-6)


def test_a_warning_is_the_verdict_and_what_could_not_run_is_named(store: ArtifactStore, publish: Publish) -> None:
    generator = np.random.default_rng(1)
    label = np.arange(6000) % 2
    columns = {"key": np.arange(6000), "label": label, "leak": label + 0.1 * generator.normal(size=6000)}
    training_set = publish(columns, numeric=["leak"])
    spec = spec_of(strategy="entity", checks={"near": 1e-6})
    page = store.read_text(split(SplitRequest(training_set=training_set, spec=spec), store).split, "report.html")
    assert 'class="verdict warn"' in page
    assert "single_feature: leak alone tells the label of validation with ROC AUC 1.000" in page
    assert "?\u00a0could not run" in page
    quiet = spec_of(strategy="entity", checks={"near": 1e-6, "severity": {"single_feature": "note"}})
    page = store.read_text(split(SplitRequest(training_set=training_set, spec=quiet), store).split, "report.html")
    assert 'class="verdict pass"' in page
    assert "Failed, and only noted: single_feature." in page
    assert "Could not run: time_order, label_maturity, availability" in page
