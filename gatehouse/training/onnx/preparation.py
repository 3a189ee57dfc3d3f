"""What a model does to raw features before it scores them, as ONNX: the arithmetic of `Transformation.apply`."""

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from gatehouse.training.onnx.graph import Graph
from gatehouse.training.transformation.fitted import FIRST_KNOWN, MISSING, UNKNOWN, Categorical, Numeric, Transformation

_NARROW = ("float", "halffloat")


def prepared(graph: Graph, transformation: Transformation) -> tuple[str, str]:
    """Add an input for each feature; gives numbers (rows, width), single precision, and ids (rows, columns).

    A number comes as a double, NaN where it is missing; a category as text, empty where it is missing.
    """
    values = {column.name: graph.input(column.name, TensorProto.DOUBLE) for column in transformation.numeric}
    numbers = [_number(graph, column, values[column.name]) for column in transformation.numeric]
    for column in transformation.numeric:
        if column.indicator:
            numbers.append(graph.cast(graph.node("IsNaN", [values[column.name]]), TensorProto.FLOAT))
    ids = [_category(graph, column) for column in transformation.categorical]
    return _joined(graph, numbers), _joined(graph, ids) if ids else ""


def _number(graph: Graph, column: Numeric, value: str) -> str:
    if column.type in _NARROW:  # As it was kept in training.
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
    text = graph.input(column.name, TensorProto.STRING)
    known = range(FIRST_KNOWN, FIRST_KNOWN + len(column.vocabulary))
    return graph.node(
        "LabelEncoder",
        [text],
        domain="ai.onnx.ml",
        keys_strings=["", *column.vocabulary],
        values_int64s=[MISSING, *known],
        default_int64=UNKNOWN,
    )


def _joined(graph: Graph, columns: Sequence[str]) -> str:
    return graph.node("Concat", columns, axis=1)
