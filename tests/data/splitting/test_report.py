"""The page of a split: it says what the checks said, of parts and folds, from the artifact alone."""

import numpy as np
import pytest

from gatehouse.data.splitting.report import page
from gatehouse.data.splitting.spec import SplitSpec
from gatehouse.data.splitting.stage import SplitRequest, split
from gatehouse.store.store import ArtifactStore
from tests.data.splitting.conftest import Publish, spec_of


@pytest.fixture
def repeated(publish: Publish) -> str:
    """Six thousand rows of three thousand pairs of equal features."""
    generator = np.random.default_rng(1)
    columns = {"key": np.arange(6000), "label": np.arange(6000) % 2, "x": np.repeat(generator.normal(size=3000), 2)}
    return publish(columns, numeric=["x"])


def _page(store: ArtifactStore, training_set: str, spec: SplitSpec) -> str:
    return page(store, split(SplitRequest(training_set=training_set, spec=spec), store).split_checks)


def test_a_warning_is_the_verdict_and_what_could_not_run_is_named(store: ArtifactStore, repeated: str) -> None:
    warned = _page(store, repeated, spec_of(strategy="entity"))
    assert 'class="verdict warn"' in warned and "duplicates: " in warned
    assert "?\u00a0could not run" in warned
    noted = _page(
        store,
        repeated,
        spec_of(strategy="entity", checks={"severity": {"duplicates": "note", "near_duplicates": "note"}}),
    )
    assert 'class="verdict pass"' in noted and "Noted only: duplicates" in noted
    unchecked = noted.split('aria-label="not checked"')[1].split("</header>")[0]
    assert all(f"<li>{name}: " in unchecked for name in ("time_order", "label_maturity", "availability"))
