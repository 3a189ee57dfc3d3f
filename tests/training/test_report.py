"""The page of a model: curves by epoch, which epoch was taken, settings and inputs."""

from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from gatehouse.training.report import page

LOSSES = [0.5, 0.41234, 0.45]


def _model(store: ArtifactStore, best: int) -> str:
    history = [
        {"epoch": at, "log_loss": loss, "roc_auc": 1 - loss, "train_log_loss": loss / 2}
        for at, loss in enumerate(LOSSES)
    ]
    model = {"inputs": {"distance": "float", "<carrier>": "string"}, "feature_tables": {"routes": "features/routes"}}
    files = {"history.json": canonical_json(history), "model.json": canonical_json(model), "weights.ubj": b"x" * 2400}
    settings = {"model": {"architecture": "xgboost", "dropout": 0.3615487611}, "seed": 3}
    return str(store.publish("models", "delays", files, configuration=settings, details={"best_epoch": best}))


def test_the_head_says_which_epoch_was_taken_and_that_the_test_rows_are_not_looked_at(store: ArtifactStore) -> None:
    head, body = page(store, _model(store, 1)).split("</header>")
    assert "Epoch 1 was the best of 0 to 2: validation log loss 0.4123." in head
    assert "test rows: the evaluation" in head and "warning" not in head
    assert body.count("<figure>") == 2
    assert "<dt>model.dropout</dt><dd>0.3615</dd>" in body
    assert "&lt;carrier&gt;" in body and "<carrier>" not in body
    assert '<tr class="good"><td class="n">1</td><td class="n">0.4123</td><td class="n">0.2062</td>' in body


def test_a_last_epoch_that_was_the_best_is_a_warning(store: ArtifactStore) -> None:
    assert "The last epoch was the best" in page(store, _model(store, 2)).split("</header>")[0].split("1 warning")[1]
