"""The linear model, against scikit-learn's solvers."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, mean_squared_error

from gatehouse.training.trainer import Trainer
from tests.training.conftest import Keeper
from tests.training.specs import architecture, network, write_rows


@pytest.mark.parametrize("loss", ["mse", "binary"])
def test_it_ends_where_a_solver_does(tmp_path: Path, alone: None, loss: str) -> None:
    noise = np.random.default_rng(2).normal(size=400)

    def labels(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values + noise if loss == "mse" else (values + noise > 0).astype(np.float32)

    write_rows(tmp_path, labels, rows=(400, 400))
    length = {"epochs": 60, "patience": 60, "batch_size": 100}
    spec = network("linear", loss=loss, **length, learning_rate=0.1, warmup=0.0, weight_decay=0.0, refit=60)
    trainer = Trainer(spec, architecture(spec, 2, [3]), tmp_path)
    trainer.checkpointer = Keeper([], step=-1)  # type: ignore[assignment]  # A checkpoint needs a process of its own.
    result = trainer.train()
    assert result is not None
    numbers, ids, labels = (np.load(tmp_path / "train" / f"{name}.npy") for name in ("numbers", "ids", "labels"))
    design = np.hstack([numbers, np.eye(3)[ids[:, 0]]])
    if loss == "mse":
        best = mean_squared_error(labels, LinearRegression().fit(design, labels).predict(design))
    else:
        best = log_loss(labels, LogisticRegression(C=1e6).fit(design, labels).predict_proba(design)[:, 1])
    lowest = min(row["train_mse" if loss == "mse" else "train_log_loss"] for row in result["history"])
    assert lowest == pytest.approx(best, rel=2e-3)
