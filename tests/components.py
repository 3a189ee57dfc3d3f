"""Calls components in this process, with the artifacts that KFP's executor gives them in a pod."""

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from kfp import dsl

from gatehouse.components.interface import Component
from gatehouse.data.datasets import write_dataset
from gatehouse.store.store import ArtifactStore


def call(component: Component, folder: Path, **inputs: Any) -> SimpleNamespace:
    """Run a component; gives all its outputs by name. A table is written as a Dataset; None is no artifact."""
    folder.mkdir(parents=True, exist_ok=True)
    place, function = Path(tempfile.mkdtemp(dir=folder)), component.python_func
    classes = {name: getattr(hint, "__origin__", None) for name, hint in function.__annotations__.items()}
    artifacts = {
        name: kind(name=name, uri=str(place / name))
        for name, kind in classes.items()
        if kind and name in component.component_spec.outputs
    }
    for name, value in inputs.items():
        if isinstance(value, pa.Table):
            inputs[name] = dsl.Dataset(uri=str(place / f"input-{name}"))
            write_dataset(value, inputs[name].path)
    outputs = function(**inputs, **artifacts)
    return SimpleNamespace(**artifacts, **dict(zip(function.__annotations__["return"]._fields, outputs, strict=True)))


def stored(store: ArtifactStore, reference: str, kind: type[dsl.Artifact] = dsl.Artifact) -> dsl.Artifact:
    """An artifact of a store, as a task gets it that needs no file."""
    return kind(metadata={"reference": store.address_of(reference)})
