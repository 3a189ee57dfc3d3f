"""Gradient-boosted trees as one ONNX operator."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from gatehouse.training.onnx.graph import Graph

_LESS_THAN, _MEMBER = 1, 6


def margins(graph: Graph, booster: xgboost.Booster, rows: str) -> str:
    """Add the trees; gives the sums of their leaves, shape (rows, outputs), single precision.

    Args:
        graph: What they are added to.
        booster: The trees.
        rows: The name of all columns, shape (rows, columns), single precision; NaN for a missing value.
    """
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    model = learner["gradient_booster"]["model"]
    outputs = max(1, int(learner["learner_model_param"]["num_class"]))
    ensemble = _Ensemble()
    for tree, output in zip(model["trees"], model["tree_info"], strict=True):
        ensemble.add(tree, output)
    summed = graph.node("TreeEnsemble", [rows], domain="ai.onnx.ml", n_targets=outputs, **ensemble.attributes())
    return graph.node("Add", [summed, graph.constant(_base(learner, outputs))])


def _base(learner: dict[str, Any], outputs: int) -> npt.NDArray[np.float32]:
    """What every margin begins with: XGBoost keeps it as the prediction of no tree."""
    text = learner["learner_model_param"]["base_score"].strip("[]")
    scores = np.array([float(each) for each in text.split(",")])
    if learner["objective"]["name"] == "binary:logistic":
        scores = np.log(scores / (1 - scores))
    return np.broadcast_to(scores, outputs).astype(np.float32)


class _Ensemble:
    """Nodes and leaves of all trees, in the order of ONNX's TreeEnsemble."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[Any]] = {
            name: []
            for name in ("splits", "featureids", "modes", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
        }
        self._missing_true: list[int] = []
        self._members: list[float] = []
        self._leaves: list[tuple[int, float]] = []
        self._roots: list[int] = []

    def add(self, tree: dict[str, Any], output: int) -> None:
        """Add one tree of XGBoost's JSON, whose leaves count for an output."""
        self._roots.append(len(self._missing_true))
        sets = {
            node: tree["categories"][start : start + size]
            for node, start, size in zip(
                tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True
            )
        }
        inner = [node for node, left in enumerate(tree["left_children"]) if left != -1]
        place = {node: self._roots[-1] + number for number, node in enumerate(inner)}
        if not inner:  # A lone leaf becomes a split with the same leaf on either side.
            self._append(0.0, 0, _LESS_THAN, [self._leaf(tree, 0, output)] * 2, [True] * 2, False)
        for node in inner:
            left, right = tree["left_children"][node], tree["right_children"][node]
            # The first branch is where a true comparison goes: left for a number below the split, right for a category.
            members = sets.get(node)
            branches, missing = ((left, right), tree["default_left"][node])
            if members is not None:
                branches, missing = ((right, left), not tree["default_left"][node])
                self._members += [*map(float, members), float("nan")]
            leaf = [child not in place for child in branches]
            ids = [place[child] if child in place else self._leaf(tree, child, output) for child in branches]
            split = 0.0 if members is not None else float(tree["split_conditions"][node])
            mode = _LESS_THAN if members is None else _MEMBER
            self._append(split, tree["split_indices"][node], mode, ids, leaf, bool(missing))

    def attributes(self) -> dict[str, Any]:
        """The operator's attributes."""
        from onnx import TensorProto, helper

        def tensor(name: str, values: Sequence[Any], kind: int) -> Any:
            return helper.make_tensor(name, kind, [len(values)], values)

        found = {f"nodes_{name}": values for name, values in self._nodes.items()}
        found["nodes_splits"] = tensor("nodes_splits", found["nodes_splits"], TensorProto.FLOAT)
        found["nodes_modes"] = tensor("nodes_modes", found["nodes_modes"], TensorProto.UINT8)
        if self._members:
            found["membership_values"] = tensor("membership_values", self._members, TensorProto.FLOAT)
        weights = tensor("leaf_weights", [weight for _, weight in self._leaves], TensorProto.FLOAT)
        return found | {
            "nodes_missing_value_tracks_true": self._missing_true,
            "leaf_targetids": [target for target, _ in self._leaves],
            "leaf_weights": weights,
            "tree_roots": self._roots,
            "aggregate_function": 1,
            "post_transform": 0,
        }

    def _leaf(self, tree: dict[str, Any], node: int, output: int) -> int:
        self._leaves.append((output, float(tree["split_conditions"][node])))
        return len(self._leaves) - 1

    def _append(self, split: float, feature: int, mode: int, ids: list[int], leaf: list[bool], missing: bool) -> None:
        row = (split, feature, mode, *ids, *map(int, leaf))
        for values, value in zip(self._nodes.values(), row, strict=True):
            values.append(value)
        self._missing_true.append(int(missing))
