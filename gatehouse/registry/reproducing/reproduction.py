"""Reproduces a registered model in a clean store; if the result differs, says what differs and by how much."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gatehouse.errors import ConfigurationError
from gatehouse.registry.explaining.answers import settings_of, training_of
from gatehouse.registry.explaining.comparison import Change, code_changes
from gatehouse.registry.naming import named
from gatehouse.registry.reproducing.rebuilding import Rebuild, Step
from gatehouse.store.json_changes import changes
from gatehouse.store.manifest import Manifest
from gatehouse.store.stage import StageModel, declared_stages
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import pyarrow as pa

_SCORED = 20_000


class ReproduceRequest(StageModel):
    """The version to rebuild, as NAME:2 or NAME@champion, and where: an empty folder, or empty for a temporary one."""

    model: str
    into: str = ""


class Reproduced(StageModel):
    """The result of a reproduction.

    Attributes:
        same: Whether the model was made again to the bit.
        model, again: The original and the rebuilt model; equal if they are identical.
        weights, weights_again: SHA-256 of the weights of each.
        processes: World size, equal to that of the original.
        copied, made: Artifacts that were copied, and that were made again.
        first: The first artifact that differs; empty for none.
        differences: Differences in code and environment.
        largest, mean: Difference of scores on up to 20,000 rows of the training set; 0 for an identical model.
    """

    same: bool
    model: str
    again: str
    weights: str
    weights_again: str
    processes: int
    copied: int
    made: int
    first: str = ""
    differences: tuple[Change, ...] = ()
    largest: float = 0.0
    mean: float = 0.0


def reproduce(request: ReproduceRequest, store: ArtifactStore) -> Reproduced:
    """Rebuild a version from its snapshot in an empty store, at the world size of the original.

    Raises:
        ConfigurationError: if there is no such version, or the folder is not empty.
        NotReproducibleError: if the provenance of an artifact in its lineage is incomplete.
        GatehouseError: as the stages raise.
    """
    model = named(store, request.model).version.model
    if request.into:
        folder = Path(request.into)
        if folder.exists() and any(folder.iterdir()):
            raise ConfigurationError(f"--into: expected an empty folder, found files in {folder}. Name another one.")
        return _reproduced(store, ArtifactStore.open(folder), model)
    with tempfile.TemporaryDirectory(prefix="gatehouse-reproduce-") as temporary:
        return _reproduced(store, ArtifactStore.open(temporary), model)


def _reproduced(store: ArtifactStore, clean: ArtifactStore, model: str) -> Reproduced:
    rebuild = Rebuild(store, clean)
    return beside(rebuild, model, rebuild.make(model))


def beside(rebuild: Rebuild, model: str, again: str) -> Reproduced:
    """The result of a rebuild, for a model and its rebuilt version."""
    store, clean = rebuild.source, rebuild.target
    other = next((each for each in rebuild.steps if not each.same), None)
    made = [each for each in rebuild.steps if each.stage]
    weights = [_weights(side.manifest(each)) for side, each in ((store, model), (clean, again))]
    found = Reproduced(
        same=again == model,
        model=model,
        again=again,
        weights=weights[0],
        weights_again=weights[1],
        processes=int(settings_of(store, model).get("parallelism", {}).get("processes", 1)),
        copied=len(rebuild.steps) - len(made),
        made=len(made),
        first=other.identity if other else "",
    )
    if found.same:
        return found
    largest, mean = _apart(store, clean, model, again)
    differences = tuple(_differences(store, clean, model, again, made))
    return found.model_copy(update={"differences": differences, "largest": largest, "mean": mean})


def _weights(manifest: Manifest) -> str:
    """SHA-256 of a model's weights."""
    return next((each.sha256 for each in manifest.files if each.path.startswith("weights")), "")


def _differences(
    store: ArtifactStore, clean: ArtifactStore, model: str, again: str, made: list[Step]
) -> Iterator[Change]:
    """Differences from the original training: the code of each stage, and the environment."""
    for step in made:
        now = declared_stages()[step.stage].sources()
        store.record(f"code/{now.digest}.json", now.to_json())
        for name, first, second in code_changes(store, step.code, now.digest):
            yield _change(f"code of {step.stage}", name, first, second)
    environments = [training_of(side, each).get("environment") or {} for side, each in ((store, model), (clean, again))]
    for name, first, second in changes(environments[0], environments[1]):
        if name not in ("commit", "dirty"):
            yield _change("environment", name, first, second)


def _change(part: str, name: str, first: object, second: object) -> Change:
    texts = ["" if value is None else str(value) for value in (first, second)]
    return Change(part=part, name=name, first=texts[0], second=texts[1])


def _apart(store: ArtifactStore, clean: ArtifactStore, model: str, again: str) -> tuple[float, float]:
    """Largest and mean difference of the scores of two models on the first rows of the training set."""
    import numpy as np

    from gatehouse.training.scoring.predictor import Predictor

    rows = _rows(store, store.manifest(model).derived_from["training_set"])
    first, second = (Predictor.load(side, each).predict(rows) for side, each in ((store, model), (clean, again)))
    apart = np.abs(first - second)
    return float(apart.max()), float(apart.mean())


def _rows(store: ArtifactStore, training_set: str) -> "pa.Table":
    import pyarrow.parquet as pq

    return pq.ParquetDataset(store.paths(training_set)).read().slice(0, _SCORED)
