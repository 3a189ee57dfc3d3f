"""The linear model, against scikit-learn's solvers."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, mean_squared_error

from gatehouse.training.trainer import Trainer
from tests.training.kept_states import Keeper
from tests.training.specs import architecture, network


@pytest.mark.parametrize("loss", ["mse", "binary"])
def test_it_ends_where_a_solver_does(tmp_path: Path, alone: None, loss: str) -> None:
    draw = np.random.default_rng(1)
    numbers, ids = draw.normal(size=(400, 2)).astype(np.float32), draw.integers(0, 3, (400, 1))
    values = numbers[:, 0] + 0.5 * ids[:, 0] + draw.normal(size=400) - 0.3
    labels = (values if loss == "mse" else values > 0).astype(np.float32)
    for part in ("train", "validation"):
        (tmp_path / part).mkdir()
        for name, array in (("numbers", numbers), ("ids", ids), ("labels", labels)):
            np.save(tmp_path / part / f"{name}.npy", array)
    settings = {
        "epochs": 60,
        "patience": 60,
        "batch_size": 100,
        "learning_rate": 0.1,
        "warmup": 0.0,
        "weight_decay": 0.0,
    }
    spec = network("linear", loss=loss, **settings)
    trainer = Trainer(spec, architecture(spec, 2, [3]), tmp_path)
    trainer.checkpointer = Keeper([], step=-1)  # type: ignore[assignment]  # A checkpoint needs a process of its own.
    result = trainer.train()
    assert result is not None
    design = np.hstack([numbers, np.eye(3)[ids[:, 0]]])
    if loss == "mse":
        best = mean_squared_error(labels, LinearRegression().fit(design, labels).predict(design))
    else:
        best = log_loss(labels, LogisticRegression(C=1e6).fit(design, labels).predict_proba(design)[:, 1])
    found = result["history"][result["best_epoch"]]["mse" if loss == "mse" else "log_loss"]
    assert found == pytest.approx(best, rel=2e-3)
