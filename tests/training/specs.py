"""Trainings for tests, by the last parts of their settings' names: `network(hidden=(8,), epochs=3)`; and their rows."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gatehouse.training.shards import SIZES, Division
from gatehouse.training.spec import NetworkTraining, TreesTraining, changed, train_spec

Training = TypeVar("Training", NetworkTraining, TreesTraining)
_OF_LOSS = {"delta", "group", "sample_weight", "class_weights"}


def network(architecture: str = "tabular_mlp", **settings: Any) -> NetworkTraining:
    """The training of a network, on one process unless told otherwise."""
    spec = train_spec({"model": {"architecture": architecture}})
    assert isinstance(spec, NetworkTraining)
    return vary(spec, **{"processes": 1} | settings)


def trees(**settings: Any) -> TreesTraining:
    spec = train_spec({"model": {"architecture": "xgboost"}})
    assert isinstance(spec, TreesTraining)
    return vary(spec, **settings)


def vary(spec: Training, **settings: Any) -> Training:
    """A training with other settings; `loss` is a kind, whose settings stand beside it."""
    body = spec.model_dump()
    kept = {"kind": settings.pop("loss")} if "loss" in settings else body["loss"]
    named: dict[str, Any] = {"loss": kept | {name: settings.pop(name) for name in _OF_LOSS & settings.keys()}}
    for name, value in settings.items():
        places = [f"{group}.{name}" for group, inner in body.items() if isinstance(inner, dict) and name in inner]
        if name in body and not places:
            places = [name]
        assert len(places) == 1, f"{name}: expected one setting of this name, found {places}"
        named[places[0]] = value
    varied = changed(spec, named)
    assert isinstance(varied, type(spec))
    return varied


def architecture(
    spec: NetworkTraining | TreesTraining, width: int, cardinalities: list[int], outputs: int = 1
) -> dict[str, Any]:
    return {
        "model": spec.model.model_dump(mode="json"),
        "loss": spec.loss.kind,
        "width": width,
        "cardinalities": cardinalities,
        "outputs": outputs,
    }


def link_rows(source: Path, directory: Path) -> Path:
    """A job's directory with the data of another; every process may make it."""
    for part in ("train", "validation"):
        directory.mkdir(exist_ok=True)
        with suppress(FileExistsError):
            (directory / part).symlink_to(source / part)
    return directory


def divide_rows(source: Path, directory: Path, shards: int) -> Path:
    """A job's directory with the data of another, divided into shards."""
    for part in ("train", "validation"):
        arrays = {path.stem: np.load(path) for path in (source / part).glob("*.npy")}
        rows = len(arrays["labels"])
        sizes = np.unique(arrays["groups"], return_counts=True)[1] if "groups" in arrays else None
        train = part == "train"
        division = Division.of_train(rows, sizes, shards) if train else Division.of_validation(rows, shards)
        for shard, length in enumerate(division.lengths):
            folder = directory / part / str(shard)
            folder.mkdir(parents=True)
            own = division.shards == shard
            for name, array in arrays.items():
                if train or name in ("numbers", "ids"):
                    divided = np.zeros((length, *array.shape[1:]), array.dtype)
                    divided[division.places[own]] = array[own]
                    np.save(folder / f"{name}.npy", divided)
                else:
                    np.save(directory / part / f"{name}.npy", array)
        if train:
            np.save(directory / part / SIZES, np.array([rows]) if sizes is None else sizes)
    return directory


def write_rows(
    folder: Path,
    labels: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
    *,
    rows: tuple[int, int] = (400, 100),
    width: int = 2,
    cardinalities: tuple[int, ...] = (3,),
    **extra: npt.NDArray[Any],
) -> None:
    """Write the arrays of train and validation; `labels` makes the label from the first number."""
    draw = np.random.default_rng(1)
    for part, count in zip(("train", "validation"), rows, strict=True):
        (folder / part).mkdir(parents=True)
        numbers = draw.normal(size=(count, width)).astype(np.float32)
        ids = np.stack([draw.integers(0, size, count) for size in cardinalities], axis=1)
        arrays = {"numbers": numbers, "ids": ids, "labels": labels(numbers[:, 0])}
        arrays |= {name: array[:count] for name, array in extra.items()}
        for name, array in arrays.items():
            np.save(folder / part / f"{name}.npy", array.astype(np.float32 if array.dtype.kind == "f" else np.int64))
