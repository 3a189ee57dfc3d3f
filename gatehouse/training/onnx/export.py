"""A published model as one ONNX file, with its preparation of features and its calibration, compared with the model."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from onnx import TensorProto

from gatehouse.errors import GatehouseError
from gatehouse.store.store import ArtifactStore
from gatehouse.training.data.parts import read_part
from gatehouse.training.model_spec import weights_file
from gatehouse.training.onnx.graph import OPSET, Graph
from gatehouse.training.scoring.calibration import Calibration, Isotonic, Platt, Temperature
from gatehouse.training.scoring.predictor import Predictor, read_weights
from gatehouse.training.transformation.columns import numbers_of, texts_of
from gatehouse.training.transformation.fitted import FIRST_KNOWN, MISSING, UNKNOWN, Categorical, Numeric, Transformation

TOLERANCE = 1e-5
_LEAST, _ROWS = 2.0**-52, 1_000


class ExportError(GatehouseError):
    """A model cannot be written as ONNX, or the ONNX model predicts something else."""

    permanent = True


@dataclass(frozen=True)
class Exported:
    """An exported model."""

    model: bytes
    rows: int
    difference: float


def export_model(store: ArtifactStore, model: str, tolerance: float = TOLERANCE) -> Exported:
    """A published model as ONNX, compared on a thousand evenly spaced rows of its test part.

    Raises:
        ExportError: as `exported`.
        MissingArtifactError, CorruptArtifactError: if the model or its data is not there or was altered.
    """
    predictor, inputs = Predictor.load(store, model), store.manifest(model).derived_from
    architecture = predictor.description["architecture"]["model"]["architecture"]
    weights = read_weights(architecture, store.path(model, weights_file(architecture)))
    part = read_part(store, inputs["training_set"], inputs["split"], "test")
    rows = part.thinned(min(1.0, _ROWS / max(part.num_rows, 1)))
    return exported(predictor, weights, pa.table({name: rows[name] for name in predictor.features}), tolerance)


def exported(predictor: Predictor, weights: Any, table: pa.Table, tolerance: float = TOLERANCE) -> Exported:
    """The model as ONNX, from raw features to the result of `Predictor.predict`; compared on rows of a table.

    Raises:
        ExportError: if a feature cannot be prepared in ONNX, or a prediction differs by more than is accepted.
    """
    transformation = predictor.transformation
    if hashed := [column.name for column in transformation.categorical if column.buckets]:
        raise ExportError(
            f"The features {', '.join(hashed)} put unknown categories into hashed buckets, which ONNX has no operator "
            "for. Train with transformation.categorical.buckets: 0 to export."
        )
    if blank := [column.name for column in transformation.categorical if "" in column.vocabulary]:
        raise ExportError(
            f"The features {', '.join(blank)} have the empty text as a category, which stands for a missing value in "
            "the exported model. Write such values as null in the feature view, and train again."
        )
    if not transformation.numeric:
        raise ExportError("The model has categories only: expected at least one numeric feature to export.")
    model = _model(predictor, weights)
    scores, expected = scored(model, dict(inputs_of(transformation, table))), predictor.predict(table)
    difference = float(np.max(np.abs(scores - expected))) if scores.shape == expected.shape else np.inf
    if not difference <= tolerance:
        raise ExportError(
            f"onnxruntime and the model differ by {difference:.3g} on {table.num_rows:,} rows: expected at most "
            f"{tolerance:g}. Nothing was written; --tolerance accepts more."
        )
    return Exported(model, table.num_rows, difference)


def inputs_of(transformation: Transformation, table: pa.Table) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The inputs of the ONNX model for rows of a table, (rows, 1) each: doubles with NaN, and texts with ''."""
    for column in transformation.numeric:
        yield column.name, numbers_of(column.name, table[column.name], column.type)[:, None]
    for group in transformation.categorical:
        texts = pc.fill_null(texts_of(group.name, table[group.name], group.type), "")
        yield group.name, np.array(texts.to_pylist(), dtype=object)[:, None]


def scored(model: bytes, inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    """The predictions of onnxruntime, on one thread, for inputs (rows, 1): shape (rows,) or (rows, classes)."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = {value.name: inputs[value.name] for value in session.get_inputs()}
    return np.asarray(session.run(["prediction"], feeds)[0])


def _model(predictor: Predictor, weights: Any) -> bytes:
    architecture, graph, transformation = predictor.description["architecture"], Graph(), predictor.transformation
    raw = {column.name: graph.input(column.name, TensorProto.DOUBLE) for column in transformation.numeric}
    columns = [_number(graph, column, raw[column.name]) for column in transformation.numeric]
    for column in transformation.numeric:
        if column.indicator:
            columns.append(graph.cast(graph.node("IsNaN", [raw[column.name]]), TensorProto.FLOAT))
    numbers = graph.node("Concat", columns, axis=1)
    encoded = [_category(graph, column) for column in transformation.categorical]
    ids = graph.node("Concat", encoded, axis=1) if encoded else ""
    outputs, output = architecture["outputs"], predictor.task.output
    if architecture["model"]["architecture"] == "xgboost":
        values = _trees(graph, weights, numbers, ids, output)
    else:
        logits = graph.include(_network(architecture, weights), {"numbers": numbers, "ids": ids})
        shaped = graph.node("Reshape", [logits, graph.constant(np.array([-1, outputs]))])
        values = graph.cast(shaped, TensorProto.DOUBLE)
        if output == "probability":
            values = graph.node("Sigmoid", [values])
        elif output == "probabilities":
            values = graph.node("Softmax", [values], axis=1)
    if predictor.calibration is not None:
        values = _calibrated(graph, predictor.calibration, values)
    if outputs == 1:
        values = graph.node("Reshape", [values, graph.constant(np.array([-1]))])
    notes = {"task": predictor.task.name}
    if output == "probability":
        notes["threshold"] = repr(predictor.calibration.threshold if predictor.calibration else 0.5)
    return graph.model(values, outputs if outputs > 1 else 0, notes)


def _number(graph: Graph, column: Numeric, value: str) -> str:
    """The arithmetic of `Numeric.apply`: a double, NaN where it is missing, becomes single precision."""
    if column.type in ("float", "halffloat"):  # Rounded to its precision in training.
        narrow = TensorProto.FLOAT if column.type == "float" else TensorProto.FLOAT16
        value = graph.cast(graph.cast(value, narrow), TensorProto.DOUBLE)
    clipped = value
    if column.low is not None:
        clipped = graph.node("Max", [clipped, graph.constant(np.float64(column.low))])
    if column.high is not None:
        clipped = graph.node("Min", [clipped, graph.constant(np.float64(column.high))])
    filled = graph.node("Where", [graph.node("IsNaN", [value]), graph.constant(np.float64(column.fill)), clipped])
    if column.knots:
        filled = graph.interpolated(filled, *zip(*column.knots, strict=True))
    centred = graph.node("Sub", [filled, graph.constant(np.float64(column.centre))])
    return graph.cast(graph.node("Div", [centred, graph.constant(np.float64(column.scale))]), TensorProto.FLOAT)


def _category(graph: Graph, column: Categorical) -> str:
    """The arithmetic of `Categorical.apply`: a text, empty where it is missing, becomes an id."""
    return graph.node(
        "LabelEncoder",
        [graph.input(column.name, TensorProto.STRING)],
        domain="ai.onnx.ml",
        keys_strings=["", *column.vocabulary],
        values_int64s=[MISSING, *range(FIRST_KNOWN, FIRST_KNOWN + len(column.vocabulary))],
        default_int64=UNKNOWN,
    )


def _trees(graph: Graph, booster: Any, numbers: str, ids: str, output: str) -> str:
    """The predictions of trees, (rows, outputs), as onnxmltools converts them."""
    import xgboost
    from onnxmltools.convert import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    rows = numbers
    if ids:  # A category that is missing or unknown is NaN, as in training.
        first = graph.constant(np.int64(FIRST_KNOWN))
        shifted = graph.cast(graph.node("Sub", [ids, first]), TensorProto.FLOAT)
        missing = graph.node("Less", [ids, first])
        values = graph.node("Where", [missing, graph.constant(np.float32(np.nan)), shifted])
        rows = graph.node("Concat", [numbers, values], axis=1)
    body = json.loads(bytes(booster.save_raw("json")))
    if body["learner"]["objective"]["name"] == "rank:pairwise":  # The converter knows no ranking: it has margins too.
        body["learner"]["objective"] = {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}}
        booster = xgboost.Booster(model_file=bytearray(json.dumps(body).encode()))
    width = [None, booster.num_features()]
    converted = convert_xgboost(booster, initial_types=[("rows", FloatTensorType(width))], target_opset=15)
    values = graph.cast(graph.include(converted.graph, {"rows": rows}), TensorProto.DOUBLE)
    if output == "probability":  # Of two columns, the positive label's.
        values = graph.node("Gather", [values, graph.constant(np.array([1]))], axis=1)
    return values


def _network(architecture: dict[str, Any], weights: Any) -> Any:
    """The module's own graph, as PyTorch exports it."""
    import onnx
    import torch

    from gatehouse.training.models import build_model

    module = build_model(architecture)
    module.load_state_dict(weights)
    count = len(architecture["cardinalities"])
    inputs = (torch.zeros(2, architecture["width"]), torch.zeros(2, count, dtype=torch.long))
    rows = torch.export.Dim("rows", min=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        torch.onnx.export(
            module.eval(),
            inputs,
            str(path),
            input_names=["numbers", "ids"],
            dynamic_shapes=({0: rows}, {0: rows}),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        return onnx.load(path).graph


def _calibrated(graph: Graph, calibration: Calibration, values: str) -> str:
    """`Calibration.apply` of (rows, 1), or (rows, classes) for a temperature."""
    fitted = calibration.calibrator
    least = graph.constant(np.float64(_LEAST))
    if isinstance(fitted, Isotonic):
        return graph.interpolated(values, fitted.scores, fitted.values)
    if isinstance(fitted, Platt):
        inside = graph.node("Min", [graph.node("Max", [values, least]), graph.constant(np.float64(1.0 - _LEAST))])
        odds = graph.node(
            "Sub",
            [
                graph.node("Log", [inside]),
                graph.node("Log", [graph.node("Sub", [graph.constant(np.float64(1.0)), inside])]),
            ],
        )
        sloped = graph.node("Mul", [odds, graph.constant(np.float64(fitted.slope))])
        return graph.node("Sigmoid", [graph.node("Add", [sloped, graph.constant(np.float64(fitted.intercept))])])
    if isinstance(fitted, Temperature):
        logs = graph.node("Log", [graph.node("Max", [values, least])])
        divided = graph.node("Div", [logs, graph.constant(np.float64(fitted.temperature))])
        return graph.node("Softmax", [divided], axis=1)
    return values
