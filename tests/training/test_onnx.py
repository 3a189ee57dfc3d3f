"""Models as ONNX: onnxruntime gives the scores of the model, of every kind of model."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.store.store import ArtifactStore
from gatehouse.training.calibration import Calibration, Isotonic
from gatehouse.training.predictor import Predictor
from gatehouse.training.transformation import fit
from tests.evaluation.candidates import publish_model
from tests.training.specs import architecture, network
from tests.training.synthetic import CATEGORICAL, NUMERIC, lay_out, table

ROWS = table(600)
FITTED = fit(ROWS, NUMERIC, CATEGORICAL)
NUMBERS, IDS = FITTED.apply(ROWS)


def net(kind: str, loss: str, outputs: int = 1) -> tuple[dict[str, Any], Any]:
    import torch

    from gatehouse.training.models import build_model

    small = {"hidden": (8,)} if kind == "tabular_mlp" else {"token_size": 8, "heads": 2, "blocks": 1}
    cardinalities = [column.cardinality for column in FITTED.categorical]
    described = architecture(network(kind, loss=loss, **small), FITTED.width, cardinalities, outputs)
    torch.manual_seed(3)
    return described, build_model(described).state_dict()


def trees(loss: str, outputs: int = 1) -> tuple[dict[str, Any], Any]:
    """A few trees with splits of numbers, missing values and sets of categories."""
    import xgboost

    from gatehouse.training.predictor import tree_columns

    labels = ROWS["label"].to_numpy() + (IDS[:, 0] > 2) * (outputs > 1)
    types = ["q"] * NUMBERS.shape[1] + ["c"] * IDS.shape[1]
    data = xgboost.DMatrix(tree_columns(NUMBERS, IDS), labels, feature_types=types, enable_categorical=True)
    objectives = {"binary": "binary:logistic", "multiclass": "multi:softprob", "mse": "reg:squarederror"}
    if loss == "pairwise":
        data.set_group([10] * 60)
    settings = {"objective": objectives.get(loss, "rank:pairwise"), "max_cat_to_onehot": 1, "seed": 1, "nthread": 1}
    booster = xgboost.train(settings | ({"num_class": outputs} if outputs > 1 else {}), data, 15)
    return {"model": {"architecture": "xgboost"}, "loss": loss, "outputs": outputs}, booster


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (net, ("tabular_mlp", "binary")),
        (net, ("ft_transformer", "multiclass", 3)),
        (trees, ("binary",)),
        (trees, ("multiclass", 3)),
        (trees, ("mse",)),
        (trees, ("pairwise",)),
    ],
)
def test_onnxruntime_gives_the_scores_of_the_model(make: Any, arguments: tuple[Any, ...]) -> None:
    from gatehouse.training.onnx import exported

    model = exported(*make(*arguments), NUMBERS, IDS, {"note": "kept"})
    assert model.rows == 600 and model.difference < 2e-6
    assert exported(*make(*arguments), NUMBERS[:1], IDS[:1], {}).difference < 2e-6


def test_a_model_that_scores_differently_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from gatehouse.training import onnx

    described, booster = trees("binary")
    monkeypatch.setattr(onnx, "scorer", lambda *_: lambda *_: np.zeros(600))
    with pytest.raises(onnx.ExportError, match="on 600 rows: expected at most 1e-05"):
        onnx.exported(described, booster, NUMBERS, IDS, {})


def test_what_is_served_is_compared_also_at_the_steps_of_a_calibration(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gatehouse.training import onnx

    with pytest.raises(onnx.ExportError):  # Each score is near enough, and what is served is not.
        onnx.exported(*net("tabular_mlp", "binary"), NUMBERS, IDS, {}, calibration=lambda scores: 1e6 * scores)
    model = publish_model(store, *lay_out(store), steps=20)
    predictor = Predictor.load(store, model)
    predictor.calibration = Calibration(Isotonic((0.4, 0.5, 0.6), (0.2, 0.5, 0.7)), 0.5)
    monkeypatch.setattr(Predictor, "load", lambda *_: predictor)
    monkeypatch.setattr(onnx, "_ROWS", 1)
    assert 5 <= onnx.export_model(store, model).rows <= 7


def test_the_command_writes_a_registered_version_with_its_preparation_as_metadata(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import onnx

    model = publish_model(store, *lay_out(store), steps=1)
    version = SimpleNamespace(version=SimpleNamespace(model=model))
    monkeypatch.setattr("gatehouse.cli.models.named", lambda opened, text: version)
    path = tmp_path / "models" / "delays.onnx"
    ended = CliRunner().invoke(app, ["export", "delays:1", "--onnx", str(path), "--store", store.address])
    assert ended.exit_code == 0 and "on 200 test rows" in ended.output
    notes = {note.key: note.value for note in onnx.load(path).metadata_props}
    assert notes["task"] == "binary"
    assert json.loads(notes["transformation"]) == store.read_json(model, "model.json")["transformation"]
