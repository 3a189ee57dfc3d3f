"""A published model as one ONNX file, and how far it is from the model itself."""

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
from gatehouse.training.models.weights_file import weights_file
from gatehouse.training.onnx.graph import OPSET, Graph
from gatehouse.training.onnx.preparation import prepared
from gatehouse.training.scoring.calibration import Calibration, Isotonic, Platt, Temperature
from gatehouse.training.scoring.frameworks import framework_of
from gatehouse.training.scoring.predictor import Predictor
from gatehouse.training.transformation.columns import numbers_of, texts_of
from gatehouse.training.transformation.fitted import FIRST_KNOWN, Transformation

TOLERANCE = 1e-5
_LEAST, _ROWS = 2.0**-52, 1_000


class ExportError(GatehouseError):
    """A model cannot be written as ONNX, or what was written says something else."""

    permanent = True


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        model: The ONNX model, as bytes.
        rows: On how many rows it was compared.
        difference: The largest between its predictions and the model's own.
    """

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
    weights = framework_of(architecture).read(store.path(model, weights_file(architecture)))
    part = read_part(store, inputs["training_set"], inputs["split"], "test")
    rows = part.thinned(min(1.0, _ROWS / max(part.num_rows, 1)))
    return exported(predictor, weights, pa.table({name: rows[name] for name in predictor.features}), tolerance)


def exported(predictor: Predictor, weights: Any, table: pa.Table, tolerance: float = TOLERANCE) -> Exported:
    """The model as ONNX: from raw features to what `Predictor.predict` gives; compared on rows of a table.

    Args:
        predictor: The model.
        weights: As its framework reads them.
        table: Raw features to compare on, at least one row.
        tolerance: The largest difference that is accepted.

    Raises:
        ExportError: if a feature cannot be prepared in ONNX, or a prediction differs by more than is accepted.
    """
    _require_expressible(predictor.transformation)
    model = _model(predictor, weights)
    inputs = dict(inputs_of(predictor.transformation, table))
    found = scored(model, inputs)
    wanted = predictor.predict(table)
    difference = float(np.max(np.abs(found - wanted))) if found.shape == wanted.shape else np.inf
    if not difference <= tolerance:
        raise ExportError(
            f"onnxruntime and the model differ by {difference:.3g} on {table.num_rows:,} rows: expected at most "
            f"{tolerance:g}. Nothing was written; --tolerance accepts more."
        )
    return Exported(model, table.num_rows, difference)


def _require_expressible(transformation: Transformation) -> None:
    """Refuse what the graph's first part has no operator for."""
    hashed = [column.name for column in transformation.categorical if column.buckets]
    if hashed:
        raise ExportError(
            f"The features {', '.join(hashed)} put unknown categories into hashed buckets, which ONNX has no operator "
            "for. Train with transformation.categorical.buckets: 0 to export."
        )
    blank = [column.name for column in transformation.categorical if "" in column.vocabulary]
    if blank:
        raise ExportError(
            f"The features {', '.join(blank)} have the empty text as a category, which stands for a missing value in "
            "the exported model. Write such values as null in the feature view, and train again."
        )
    if not transformation.numeric:
        raise ExportError("The model has categories only: expected at least one numeric feature to export.")


def inputs_of(transformation: Transformation, table: pa.Table) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The inputs of the ONNX model for rows of a table, (rows, 1) each: doubles with NaN, and texts with ''."""
    for column in transformation.numeric:
        yield column.name, numbers_of(column.name, table[column.name], column.type)[:, None]
    for group in transformation.categorical:
        texts = pc.fill_null(texts_of(group.name, table[group.name], group.type), "")
        yield group.name, np.array(texts.to_pylist(), dtype=object)[:, None]


def scored(model: bytes, inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    """What onnxruntime gives, on one thread, for inputs of shape (rows,): shape (rows,), or (rows, classes)."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    asked = {each.name: inputs[each.name] for each in session.get_inputs()}
    return np.asarray(session.run(["prediction"], asked)[0])


def _model(predictor: Predictor, weights: Any) -> bytes:
    architecture, graph = predictor.description["architecture"], Graph()
    numbers, ids = prepared(graph, predictor.transformation)
    outputs, output = architecture["outputs"], predictor.task.output
    if architecture["model"]["architecture"] == "xgboost":
        from gatehouse.training.onnx.trees import margins

        values = graph.cast(margins(graph, weights, _tree_columns(graph, numbers, ids)), TensorProto.DOUBLE)
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
    several = outputs > 1
    if not several:
        values = graph.node("Reshape", [values, graph.constant(np.array([-1]))])
    notes = {"task": predictor.task.name}
    if output == "probability":
        notes["threshold"] = repr(predictor.calibration.threshold if predictor.calibration else 0.5)
    made: bytes = graph.model(values, outputs if several else 0, notes).SerializeToString(deterministic=True)
    return made


def _tree_columns(graph: Graph, numbers: str, ids: str) -> str:
    """Numbers and categories side by side; a category that is missing or unknown is NaN, as in training."""
    if not ids:
        return numbers
    first = graph.constant(np.int64(FIRST_KNOWN))
    shifted = graph.cast(graph.node("Sub", [ids, first]), TensorProto.FLOAT)
    known = graph.node("Where", [graph.node("Less", [ids, first]), graph.constant(np.float32(np.nan)), shifted])
    return graph.node("Concat", [numbers, known], axis=1)


def _network(architecture: dict[str, Any], weights: Any) -> Any:
    """The module's own graph, as PyTorch exports it."""
    import onnx
    import torch

    from gatehouse.training.models.building import build_model

    module = build_model(architecture)
    module.load_state_dict(weights)
    count = len(architecture["cardinalities"])
    given = (torch.zeros(2, architecture["width"]), torch.zeros(2, count, dtype=torch.long))
    rows = torch.export.Dim("rows", min=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        torch.onnx.export(
            module.eval(),
            given,
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
        one = graph.constant(np.float64(1.0))
        inside = graph.node("Min", [graph.node("Max", [values, least]), graph.constant(np.float64(1.0 - _LEAST))])
        odds = graph.node("Sub", [graph.node("Log", [inside]), graph.node("Log", [graph.node("Sub", [one, inside])])])
        sloped = graph.node("Mul", [odds, graph.constant(np.float64(fitted.slope))])
        return graph.node("Sigmoid", [graph.node("Add", [sloped, graph.constant(np.float64(fitted.intercept))])])
    if isinstance(fitted, Temperature):
        logs = graph.node("Log", [graph.node("Max", [values, least])])
        return graph.node(
            "Softmax", [graph.node("Div", [logs, graph.constant(np.float64(fitted.temperature))])], axis=1
        )
    return values
