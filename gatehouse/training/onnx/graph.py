"""An ONNX graph that is built from the inputs to the outputs, each value named when it is made."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gatehouse.training.scoring.calibration import Floats

OPSET, ML_OPSET, IR = 18, 5, 10


class Graph:
    """Nodes and constants; each method gives the name of the value that it makes."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []

    def input(self, name: str, kind: int, width: int = 1) -> str:
        """An input of shape (rows, width)."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, ["rows", width]))
        return name

    def constant(self, values: Any) -> str:
        """A constant, of the type of the array."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, kind: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str:
        """The first output of an operator."""
        name = f"value_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def cast(self, value: str, kind: int) -> str:
        """The value in another type."""
        return self.node("Cast", [value], to=kind)

    def include(self, other: Any, given: Mapping[str, str]) -> str:
        """Another graph's nodes and constants, with its inputs replaced; gives its first output.

        Args:
            other: An `onnx.GraphProto`.
            given: The name here of each of its inputs.
        """

        def renamed(name: str) -> str:
            return given.get(name) or (f"inner_{name}" if name else "")

        for constant in other.initializer:
            kept = onnx.TensorProto()
            kept.CopyFrom(constant)
            kept.name = renamed(constant.name)
            self._constants.append(kept)
        for node in other.node:
            copied = onnx.NodeProto()
            copied.CopyFrom(node)
            copied.input[:] = [renamed(name) for name in node.input]
            copied.output[:] = [renamed(name) for name in node.output]
            self._nodes.append(copied)
        return renamed(other.output[0].name)

    def interpolated(self, values: str, xs: Sequence[float], ys: Sequence[float]) -> str:
        """Straight lines between points with ascending `xs`, constant beyond them; of shape (rows, 1), double."""
        at: Floats = np.asarray(xs, np.float64)
        inside = self.node("Clip", [values, self.constant(at[0]), self.constant(at[-1])])
        if len(at) == 1:
            return self.node("Add", [self.node("Mul", [inside, self.constant(0.0)]), self.constant(float(ys[0]))])
        reached = self.cast(
            self.node("GreaterOrEqual", [inside, self.constant(at[None, 1:-1])]), onnx.TensorProto.INT64
        )
        index = self.node("ReduceSum", [reached, self.constant(np.array([1]))], keepdims=1)
        rise, run = np.diff(np.asarray(ys, np.float64)), np.diff(at)
        slope, start, value = (
            self.node("Gather", [self.constant(array), index])
            for array in (rise / run, at[:-1], np.asarray(ys, np.float64)[:-1])
        )
        return self.node("Add", [self.node("Mul", [self.node("Sub", [inside, start]), slope]), value])

    def model(self, output: str, width: int, notes: Mapping[str, str]) -> Any:
        """The whole as a model with one output, `prediction`, double precision.

        Args:
            output: The value that is given.
            width: Its columns; 0 where it has shape (rows,).
            notes: What the model carries with it.
        """
        shape = ["rows", width] if width else ["rows"]
        self._nodes.append(helper.make_node("Identity", [output], ["prediction"]))
        told = helper.make_tensor_value_info("prediction", onnx.TensorProto.DOUBLE, shape)
        graph = helper.make_graph(self._nodes, "gatehouse", self._inputs, [told], self._constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=IR, producer_name="gatehouse")
        helper.set_model_props(made, dict(notes))
        onnx.checker.check_model(made)
        return made
