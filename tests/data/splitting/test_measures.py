"""What is measured of a split: levels of labels, times, and columns that moved."""

import numpy as np
import pytest

from gatehouse.data.splitting.stage import SplitRequest, split
from gatehouse.store.store import ArtifactStore
from tests.data.splitting.conftest import Publish, spec_of


def test_parts_times_and_columns_are_measured(store: ArtifactStore, publish: Publish) -> None:
    count = 4000
    decision = np.datetime64("2024-01-01", "us") + np.arange(count) * np.timedelta64(1, "h")
    columns = {
        "key": np.arange(count),
        "decision_time": decision,
        "label": np.arange(count) % 2,
        "label_time": decision,
        "moved": np.arange(count) // 2000 + np.random.default_rng(2).normal(size=count),
    }
    bounds = {"train_until": "2024-03-24T08:00:00Z", "validation_until": "2024-05-05T00:00:00Z", "gap": "PT0S"}
    request = SplitRequest(training_set=publish(columns, numeric=["moved"]), spec=spec_of(**bounds))
    found = store.read_json(split(request, store).split_checks, "checks.json")
    assert found["parts"]["train"] == {
        "rows": 2000,
        "level": 0.5,
        "low": pytest.approx(0.478, abs=1e-3),
        "high": pytest.approx(0.522, abs=1e-3),
        "first": "2024-01-01 00:00",
        "last": "2024-03-24 07:00",
    }
    days, shares = found["decisions"]["days"], found["decisions"]["shares"]
    assert (days[0], days[-1]) == (0, pytest.approx((count - 1) / 24))
    assert {name: sum(each) for name, each in shares.items()} == pytest.approx(dict.fromkeys(shares, 1), abs=1e-4)
    early = [share for day, share in zip(days, shares["train"], strict=False) if day < 83]
    assert sum(early) == pytest.approx(1, abs=1e-4)
    moved = found["columns"]["moved"]
    assert moved["psi"][0] > 0.5 and moved["psi"][1] > 0.5 and moved["psi"][2] < 0.1
