"""Training on this machine for an order: once, and again where it was killed."""

import time
from pathlib import Path
from typing import Any

import pytest

from gatehouse.kfp.local_run import LocalRun
from gatehouse.kfp.retraining import train_ordered
from gatehouse.monitoring.orders import Order, Orders
from gatehouse.project.project import load_project
from gatehouse.store.store import ArtifactStore
from tests.small_example import EXAMPLE


@pytest.mark.parametrize(
    ("codes", "attempts"), [((0,), 1), ((2,), 1), ((1, 0), 2), ((1, 1, 1), 3), ((143, 0), 2), ((130, 137, 1), 3)]
)
def test_an_order_is_trained_for_until_a_run_ends_by_itself(
    store: ArtifactStore, tmp_path: Path, codes: tuple[int, ...], attempts: int
) -> None:
    orders, left, run_ids = Orders(store, load_project(EXAMPLE).file.model), [*codes], list[str]()
    orders.create(lambda _: Order("abc", "flights-training-abc", "model", ("drift",), {"seed": "8"}, time.time()))

    def train(arguments: dict[str, Any], run_id: str) -> LocalRun:
        assert arguments == {"seed": "8"}
        run_ids.append(run_id)
        orders.record("abc", f"training-{len(run_ids):03d}", run=run_id)
        code = left.pop(0)
        return LocalRun(run_id, tmp_path / "log", exit_code=code, failure={"permanent": code == 2} if code else None)

    for _ in range(attempts + 1):  # 2 is the code of permanent errors here.
        last = train_ordered(store, EXAMPLE, "abc", train)
    assert last is None and not left
    assert run_ids == [f"flights-training-abc.{number + 1}" for number in range(attempts)]
    assert orders.recorded("abc", "ended")["exit_code"] == codes[-1]  # type: ignore[index]
