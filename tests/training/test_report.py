"""The page of a model: curves by epoch, which epoch was taken, settings and inputs."""

from typing import Any

import pytest

from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from gatehouse.training.report import page

LOSSES = [0.5, 0.41234, 0.45]


def _model(store: ArtifactStore, best: int, importance: dict[str, float] | None = None, **details: Any) -> str:
    history = [
        {"epoch": at, "log_loss": loss, "roc_auc": 1 - loss, "train_log_loss": loss / 2}
        for at, loss in enumerate(LOSSES)
    ]
    model = {"inputs": {"distance": "float", "<carrier>": "string"}, "feature_tables": {"routes": "features/routes"}}
    model |= {"importance": importance} if importance else {}
    files = {"history.json": canonical_json(history), "model.json": canonical_json(model), "weights.ubj": b"x" * 2400}
    settings = {"model": {"architecture": "xgboost", "dropout": 0.3615487611}, "seed": 3}
    return str(store.publish("models", "delays", files, configuration=settings, details={"best_epoch": best} | details))


def test_the_head_says_which_epoch_was_taken_and_that_the_test_rows_are_not_looked_at(store: ArtifactStore) -> None:
    head, body = page(store, _model(store, 1)).split("</header>")
    assert "Epoch 1 was the best of 0 to 2: validation log loss 0.4123." in head
    assert "test rows: the evaluation" in head and "warning" not in head
    assert body.count("<figure>") == 2
    assert "<dt>model.dropout</dt><dd>0.3615</dd>" in body
    assert "&lt;carrier&gt;" in body and "<carrier>" not in body
    assert '<tr class="good"><td class="n">1</td><td class="n">0.4123</td><td class="n">0.2062</td>' in body


def test_a_calibrated_model_shows_what_was_fitted_and_its_threshold(store: ArtifactStore) -> None:
    trained = store.manifest(_model(store, 1))
    curve = {"log_loss": 0.5, "reliability": [[0.1, 0.2, 10], [0.8, 0.6, 10]]}
    fitted = {"method": "platt", "parameters": {"slope": 0.81234567, "intercept": -0.1}, "threshold": 0.3125}
    fitted |= {"rule": {"rule": "f_beta"}, "rows": 1200, "before": curve, "after": curve | {"log_loss": 0.4875}}
    files: dict[str, Any] = {entry.path: entry for entry in trained.files} | {
        "calibration.json": canonical_json(fitted)
    }
    drawn = page(store, str(store.publish("models", "delays", files, details=trained.details)))
    assert "Fitted on 1,200 validation rows" in drawn and drawn.count("<figure>") == 3
    assert "<dt>threshold</dt><dd>0.3125</dd>" in drawn and "<dt>slope</dt><dd>0.8123</dd>" in drawn
    assert "<dt>log loss after</dt><dd>0.4875</dd>" in drawn


@pytest.mark.parametrize(
    ("best", "details", "told"),
    [(2, {}, "The last epoch was the best"), (1, {"world_sizes": [[0, 2], [9, 1]]}, "number of processes changed")],
)
def test_what_a_person_should_know_of_a_training_is_a_warning(
    store: ArtifactStore, best: int, details: dict[str, Any], told: str
) -> None:
    head = page(store, _model(store, best, **details)).split("</header>")[0]
    assert told in head.split("1 warning")[1]


def test_trees_say_what_each_feature_gained(store: ArtifactStore) -> None:
    html = page(store, _model(store, 1, {"distance": 3.5, "airline": 7.25}))
    assert html.index(">airline<") < html.index(">distance<")
    assert "Importance" not in page(store, _model(store, 1))
