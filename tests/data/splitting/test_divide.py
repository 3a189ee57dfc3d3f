"""Rolling origins on rows: no fold trains on what its validation part, or the test part, holds."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.data.splitting.divide import divide
from tests.data.splitting.conftest import opened, spec_of

START = datetime(2024, 1, 1, tzinfo=UTC)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 30)), min_size=1, max_size=60),
    origins=st.integers(1, 4),
    horizon=st.integers(1, 40),
    step=st.integers(1, 40),
    window=st.none() | st.integers(11, 80),
    gap=st.integers(0, 10),
)
def test_every_fold_is_what_its_boundaries_say_row_by_row(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, int]],
    origins: int,
    horizon: int,
    step: int,
    window: int | None,
    gap: int,
) -> None:
    test_from = 150
    spec = spec_of(
        strategy="rolling_origin",
        origins=origins,
        horizon=timedelta(hours=horizon),
        step=timedelta(hours=step),
        window=None if window is None else timedelta(hours=window),
        gap=timedelta(hours=gap),
        test_from=START + timedelta(hours=test_from),
    )

    def times(hours: list[int]) -> Any:
        return pa.array([START + timedelta(hours=hour) for hour in hours], pa.timestamp("us", "UTC"))

    decided, known = [hour for hour, _ in rows], [hour + delay for hour, delay in rows]
    columns = {"key": list(range(len(rows))), "decision_time": times(decided), "label_time": times(known)}
    partition = divide(spec, opened(tmp_path_factory.mktemp("rows"), columns)).partition
    assert partition.parts["test"].tolist() == [row for row, hour in enumerate(decided) if hour >= test_from]
    for number, fold in partition.every_fold():
        origin = test_from - horizon - (origins - 1 - number) * step
        end = origin + horizon
        train = [
            row
            for row, hour in enumerate(decided)
            if hour < origin
            and hour <= origin - gap
            and known[row] <= origin
            and (window is None or hour >= origin - window)
        ]
        validation = [
            row for row, hour in enumerate(decided) if origin <= hour < end and hour <= end - gap and known[row] <= end
        ]
        assert (fold["train"].tolist(), fold["validation"].tolist()) == (train, validation)
    assert all(np.array_equal(fold[name], partition.parts[name]) for name in fold)
