"""Models of a chosen quality, trained in a moment on the synthetic training set: what tests of the gate compare."""

from pathlib import Path
from typing import Any

import numpy as np

from gatehouse.data.splitting.parts import read_part
from gatehouse.metrics.tasks import task_of_loss
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from gatehouse.training.transformation import fit
from tests.training.specs import architecture, network
from tests.training.synthetic import CATEGORICAL, NUMERIC


def publish_model(
    store: ArtifactStore,
    training_set: str,
    split: str,
    *,
    steps: int = 150,
    seed: int = 0,
    numeric: list[str] = NUMERIC,
    broken: bool = False,
    name: str = "delays",
    loss: str = "binary",
    refit: int = 0,
) -> str:
    """Train a small network for `steps` steps and publish it as the train stage does; returns its reference.

    With few steps it is a bad model; a `broken` one has weights that are not numbers. One with `refit` says so only.
    """
    import torch
    from safetensors.torch import save_file

    from gatehouse.training.loss import loss_of
    from gatehouse.training.models import build_model
    from gatehouse.training.optimizer import build_optimizer
    from gatehouse.training.spec import OptimizerSpec

    part = read_part(store, training_set, split, "train", task_of_loss(loss))
    spec = network(hidden=(8,), dropout=0.0, embedding_size=2, loss=loss)
    outputs = int(part.labels.max()) + 1 if loss == "multiclass" else 1
    transformation = fit(part.table, numeric, CATEGORICAL)
    cardinalities = [column.cardinality for column in transformation.categorical]
    described = architecture(spec, transformation.width, cardinalities, outputs)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = build_model(described)
    numbers, ids = (torch.from_numpy(array) for array in transformation.apply(part.table))
    labels = torch.from_numpy(part.labels.astype(np.float32))
    groups = torch.zeros(0) if part.groups is None else torch.from_numpy(part.groups.copy())
    learned, weights = loss_of(spec.loss), torch.ones(len(labels))
    optimizer = build_optimizer(model, OptimizerSpec(learning_rate=0.02, weight_decay=0.0))
    for _ in range(steps):
        optimizer.zero_grad()
        total = learned.total(model(numbers, ids), labels, weights, groups)
        (total / learned.weight(labels, weights, groups)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    torch.set_num_threads(threads)
    kept = {key: tensor.detach() * (float("nan") if broken else 1.0) for key, tensor in model.state_dict().items()}
    description = {"architecture": described, "transformation": transformation.to_json(), "label": "label"}
    with store.workspace() as workspace:
        path = workspace / "weights.safetensors"
        save_file(kept, path)
        files: dict[str, Path | bytes | str] = {"weights.safetensors": path, "model.json": canonical_json(description)}
        made_by: dict[str, Any] = {"steps": steps, "seed": seed} | ({"stopping": {"refit": refit}} if refit else {})
        inputs = {"training_set": training_set, "split": split}
        return str(store.publish("models", name, files, derived_from=inputs, configuration=made_by))
