"""An ONNX graph that is built from the inputs to the outputs, each value named when it is made."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

OPSET, ML_OPSET, IR = 18, 3, 10  # With version 5 of ai.onnx.ml, the operator of onnxmltools is deprecated.


class Graph:
    """Nodes and constants; each method returns the name of the value that it makes."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []

    def input(self, name: str, kind: int) -> str:
        """An input of shape (rows, 1)."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, ["rows", 1]))
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

    def include(self, other: Any, inputs: Mapping[str, str]) -> str:
        """Add the nodes and constants of an `onnx.GraphProto`; returns the name of its last output.

        `inputs` gives the value here for each of its inputs.
        """

        def renamed(name: str) -> str:
            return inputs.get(name) or (f"inner_{name}" if name else "")

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
        return renamed(other.output[-1].name)

    def interpolated(self, values: str, xs: Sequence[float], ys: Sequence[float]) -> str:
        """Straight lines between points with ascending `xs`, constant beyond them; of shape (rows, 1), double."""
        at: npt.NDArray[np.float64] = np.asarray(xs, np.float64)
        inside = self.node("Clip", [values, self.constant(at[0]), self.constant(at[-1])])
        if len(at) == 1:
            return self.node("Add", [self.node("Mul", [inside, self.constant(0.0)]), self.constant(float(ys[0]))])
        reached = self.node("GreaterOrEqual", [inside, self.constant(at[None, 1:-1])])
        count = [self.cast(reached, onnx.TensorProto.INT64), self.constant(np.array([1]))]
        index = self.node("ReduceSum", count, keepdims=1)
        rise, run = np.diff(np.asarray(ys, np.float64)), np.diff(at)
        slope, start, value = (
            self.node("Gather", [self.constant(array), index])
            for array in (rise / run, at[:-1], np.asarray(ys, np.float64)[:-1])
        )
        return self.node("Add", [self.node("Mul", [self.node("Sub", [inside, start]), slope]), value])

    def model(self, output: str, width: int, notes: Mapping[str, str]) -> bytes:
        """The whole model with one double output, `prediction`."""
        shape = ["rows", width] if width else ["rows"]
        self._nodes.append(helper.make_node("Identity", [output], ["prediction"]))
        prediction = helper.make_tensor_value_info("prediction", onnx.TensorProto.DOUBLE, shape)
        graph = helper.make_graph(self._nodes, "gatehouse", self._inputs, [prediction], self._constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR, producer_name="gatehouse")
        helper.set_model_props(model, dict(notes))
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString(deterministic=True))
