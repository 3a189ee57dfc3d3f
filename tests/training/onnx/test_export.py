"""Models as ONNX: onnxruntime gives what the Predictor gives, of every kind of model, feature and calibration."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.store.store import ArtifactStore
from gatehouse.training.scoring.calibration import Calibration, Isotonic, Platt, Temperature
from gatehouse.training.scoring.predictor import Predictor
from gatehouse.training.transformation.fitting import fit
from gatehouse.training.transformation.spec import CategoricalSpec, NumericSpec, TransformationSpec
from tests.evaluation.candidates import publish_model
from tests.training.specs import architecture, network
from tests.training.synthetic import CATEGORICAL, NUMERIC, lay_out, table

ROWS = table(600)
ODD = pa.table(
    {
        "distance": [None, 1e9, -1e9, 1000.0],
        "wind": [None, None, 0.0, 3.25],
        "delay_rate": [0.5, None, 2.0, -1.0],
        "carrier": ["UA", None, "never seen", "AA"],
        "origin": ["EWR", "JFK", None, "LGA"],
    }
)
PLAIN = TransformationSpec()
QUANTILE = TransformationSpec(
    columns={"distance": NumericSpec(normalisation="quantile"), "wind": NumericSpec(clip=None)}
)


def described(model: dict[str, Any], spec: TransformationSpec = PLAIN, **told: Any) -> dict[str, Any]:
    """What `model.json` says."""
    transformation = fit(ROWS, NUMERIC, CATEGORICAL, spec)
    sizes = {"width": transformation.width, "cardinalities": [each.cardinality for each in transformation.categorical]}
    return {"architecture": model | sizes | told, "transformation": transformation.to_json()}


def net(
    calibration: Calibration | None = None,
    *,
    outputs: int = 1,
    loss: str = "binary",
    spec: TransformationSpec = QUANTILE,
    kind: str = "tabular_mlp",
) -> tuple[Predictor, Any]:
    """A network that nobody trained."""
    import torch

    from gatehouse.training.models import build_model

    small = {"hidden": (8,)} if kind == "tabular_mlp" else {"token_size": 8, "heads": 2, "blocks": 1}
    model = architecture(network(kind, loss=loss, **small), 0, [], outputs)
    description = described(model, spec)
    torch.manual_seed(3)
    weights = build_model(description["architecture"]).state_dict()
    return Predictor(description, weights, calibration), weights


def trees(
    calibration: Calibration | None = None, *, outputs: int = 1, loss: str = "binary", rounds: int = 15
) -> tuple[Predictor, Any]:
    """A few trees with splits of numbers, missing values and sets of categories."""
    import xgboost

    from gatehouse.training.scoring.trees import columns

    description = described({"model": {"architecture": "xgboost"}, "loss": loss, "outputs": outputs})

    transformation = fit(ROWS, NUMERIC, CATEGORICAL)
    numbers, ids = transformation.apply(ROWS)
    rows = columns(numbers, ids)
    labels = ROWS["label"].to_numpy() + (ids[:, 0] > 2) * (outputs > 1)
    data = xgboost.DMatrix(
        rows, labels, feature_types=["q"] * numbers.shape[1] + ["c"] * ids.shape[1], enable_categorical=True
    )
    objectives = {"binary": "binary:logistic", "multiclass": "multi:softprob", "mse": "reg:squarederror"}
    objective = objectives.get(loss, "rank:pairwise")
    if loss == "pairwise":
        data.set_group([10] * 60)
    settings = {
        "objective": objective,
        "max_depth": 4,
        "max_cat_to_onehot": 1,
        "seed": 1,
        "base_score": 0.4,
        "nthread": 1,
    }
    booster = xgboost.train(settings | ({"num_class": outputs} if outputs > 1 else {}), data, rounds)
    return Predictor(description, booster, calibration), booster


MODELS = {
    "network with platt": lambda: net(Calibration(Platt(0.7, -0.3), 0.31)),
    "transformer of several classes with a temperature": lambda: net(
        Calibration(Temperature(1.7), 0.5), outputs=3, loss="multiclass", kind="ft_transformer"
    ),
    "trees": lambda: trees(),
    "trees with isotonic": lambda: trees(Calibration(Isotonic((0.3, 0.4, 0.6), (0.1, 0.5, 0.9)), 0.5)),
    "trees of several classes": lambda: trees(outputs=3, loss="multiclass"),
    "trees of numbers": lambda: trees(loss="mse"),
    "trees of a ranking": lambda: trees(loss="pairwise"),
}


@pytest.mark.parametrize("name", MODELS)
def test_onnxruntime_gives_what_the_predictor_gives(name: str) -> None:
    from gatehouse.training.onnx.export import exported, inputs_of, scored

    predictor, weights = MODELS[name]()
    found = exported(predictor, weights, ROWS)
    assert found.rows == 600 and found.difference < 2e-6
    for rows in (ODD, ROWS.slice(5, 1)):
        given = scored(found.model, dict(inputs_of(predictor.transformation, rows)))
        assert given == pytest.approx(predictor.predict(rows), abs=2e-6)


def test_what_differs_is_not_written_and_hashed_categories_are_refused() -> None:
    from gatehouse.training.onnx.export import ExportError, exported

    predictor, _ = trees()
    _, other = trees(rounds=3)
    with pytest.raises(
        ExportError, match=r"onnxruntime and the model differ by .* on 600 rows: expected at most 1e-05"
    ):
        exported(predictor, other, ROWS)
    hashed, weights = net(spec=TransformationSpec(categorical=CategoricalSpec(buckets=3)))
    with pytest.raises(ExportError, match="carrier, origin put unknown categories into hashed buckets"):
        exported(hashed, weights, ROWS)
    given = predictor.transformation
    blank = replace(given.categorical[0], vocabulary=("", "a"))
    for changed, told in (
        (replace(given, categorical=(blank,)), "have the empty text as a category"),
        (replace(given, numeric=()), "categories only"),
    ):
        predictor.transformation = changed
        with pytest.raises(ExportError, match=told):
            exported(predictor, other, ROWS)


def test_the_file_holds_the_threshold_and_is_the_same_again() -> None:
    import onnx

    from gatehouse.training.onnx.export import exported

    predictor, weights = trees(Calibration(None, 0.31))
    first, again = (exported(predictor, weights, ROWS).model for _ in range(2))
    assert first == again
    assert {each.key: each.value for each in onnx.load_from_string(first).metadata_props} == {
        "task": "binary",
        "threshold": "0.31",
    }
    assert np.isfinite(predictor.predict(ODD)).all()


def test_the_command_writes_a_registered_version(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import onnx

    from gatehouse.training.onnx import export

    model = publish_model(store, *lay_out(store), steps=1)
    version = SimpleNamespace(version=SimpleNamespace(model=model))
    monkeypatch.setattr("gatehouse.cli.models.named", lambda opened, text: version)
    path, run = tmp_path / "models" / "delays.onnx", CliRunner()
    ended = run.invoke(app, ["export", "delays:1", "--onnx", str(path), "--store", store.address])
    assert ended.exit_code == 0 and "largest difference" in ended.output and "on 200 test rows" in ended.output
    assert {each.name for each in onnx.load(path).graph.input} == {*NUMERIC, *CATEGORICAL}
    assert export.export_model(store, model).model == path.read_bytes()
