"""A published model as one ONNX file, from prepared columns to scores, compared with the model on test rows."""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.errors import GatehouseError
from gatehouse.metrics.tasks import Output, task_of_loss
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from gatehouse.training.calibration import Isotonic
from gatehouse.training.job import read_part
from gatehouse.training.model_spec import weights_file
from gatehouse.training.predictor import Predictor, read_weights, scorer

TOLERANCE = 1e-5
_ROWS, _MOST_ROWS = 1_000, 1_000_000


class ExportError(GatehouseError):
    """The ONNX model predicts something else than the model."""

    permanent = True


@dataclass(frozen=True)
class Exported:
    """An exported model: the largest difference of a score on so many rows."""

    model: bytes
    rows: int
    difference: float


def export_model(store: ArtifactStore, model: str, tolerance: float = TOLERANCE) -> Exported:
    """A published model as ONNX, compared on a thousand evenly spaced rows of its test part; see `exported`.

    Calibrated models are also compared on the rows nearest to each step of the calibration, where little changes much.
    """
    predictor, inputs = Predictor.load(store, model), store.manifest(model).derived_from
    architecture = predictor.description["architecture"]
    kind = architecture["model"]["architecture"]
    weights = read_weights(kind, store.path(model, weights_file(kind)))
    part = read_part(store, inputs["split"], "test")
    rows = part.thinned(min(1.0, _MOST_ROWS / max(part.num_rows, 1)))
    numbers, ids = predictor.transformation.apply(rows)
    chosen = np.linspace(0, len(numbers) - 1, min(_ROWS, len(numbers))).astype(np.int64)
    notes, calibration = {"transformation": canonical_json(predictor.description["transformation"])}, None
    if predictor.calibration is not None:
        notes["calibration"] = canonical_json(predictor.calibration.to_json())
        calibration = predictor.calibration.apply
        if isinstance(calibrator := predictor.calibration.calibrator, Isotonic):
            scores = scorer(architecture, weights)(numbers, ids)
            order = np.argsort(scores)
            above = np.searchsorted(scores[order], calibrator.scores)
            near = order[np.clip(np.concatenate([above - 1, above]), 0, len(order) - 1)]
            chosen = np.union1d(chosen, near)
    return exported(architecture, weights, numbers[chosen], ids[chosen], notes, tolerance, calibration)


def exported(
    architecture: dict[str, Any],
    weights: Any,
    numbers: npt.NDArray[np.float32],
    ids: npt.NDArray[np.int64],
    notes: Mapping[str, str],
    tolerance: float = TOLERANCE,
    calibration: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None,
) -> Exported:
    """The model as ONNX, compared on prepared rows: numbers (rows, width) and category ids (rows, columns).

    A network has the inputs `numbers` and `ids`; trees have one input `rows`, which joins both. The output is
    `scores`; `notes` are the metadata of the file, beside the task. Scores are compared, and what `calibration`, which
    the server applies, makes of them.

    Raises:
        ExportError: if a score differs by more than is accepted.
    """
    import onnx
    import onnxruntime

    from gatehouse.training.predictor import tree_columns

    task = task_of_loss(architecture["loss"])
    if architecture["model"]["architecture"] == "xgboost":
        model = _trees(weights)
        feeds: dict[str, Any] = {"rows": tree_columns(numbers, ids)}
    else:
        model, feeds = _network(architecture, weights, task.output), {"numbers": numbers, "ids": ids}
    onnx.helper.set_model_props(model, dict(notes) | {"task": task.name})
    onnx.checker.check_model(model)
    data = bytes(model.SerializeToString(deterministic=True))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    inputs = {value.name: feeds[value.name] for value in session.get_inputs()}
    expected = scorer(architecture, weights)(numbers, ids)
    scores = np.asarray(session.run(None, inputs)[-1])
    if task.output == "probability" and "rows" in feeds:  # The column of the positive label.
        scores = scores[:, 1]
    scores, served = scores.reshape(expected.shape), calibration or np.asarray
    difference = float(max(np.abs(scores - expected).max(), np.abs(served(scores) - served(expected)).max()))
    if not difference <= tolerance:
        raise ExportError(
            f"onnxruntime and the model differ by {difference:.3g} on {len(numbers):,} rows: expected at most "
            f"{tolerance:g}. Nothing was written; --tolerance accepts more."
        )
    return Exported(data, len(numbers), difference)


def _trees(booster: Any) -> Any:
    import xgboost
    from onnxmltools.convert import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    body = json.loads(bytes(booster.save_raw("json")))
    if body["learner"]["objective"]["name"] == "rank:pairwise":  # The converter knows no ranking: it has margins too.
        body["learner"]["objective"] = {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}}
        booster = xgboost.Booster(model_file=bytearray(json.dumps(body).encode()))
    types = [("rows", FloatTensorType([None, booster.num_features()]))]
    return convert_xgboost(booster, initial_types=types, target_opset=15)


def _network(architecture: dict[str, Any], weights: Any, output: Output) -> Any:
    """The module's own graph, as PyTorch exports it, with its scores in double precision."""
    import onnx
    import torch
    from torch import Tensor, nn

    from gatehouse.training.models import build_model
    from gatehouse.training.network_scoring import predictions

    class Scores(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
            return predictions(output, self.model(numbers, ids).double())

    model = build_model(architecture)
    model.load_state_dict(weights)
    inputs = (
        torch.zeros(2, architecture["width"]),
        torch.zeros(2, len(architecture["cardinalities"]), dtype=torch.long),
    )
    rows = torch.export.Dim("rows", min=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        torch.onnx.export(
            Scores(model).eval(),
            inputs,
            str(path),
            input_names=["numbers", "ids"],
            output_names=["scores"],
            dynamic_shapes=({0: rows}, {0: rows}),
            opset_version=18,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        return onnx.load(path)
