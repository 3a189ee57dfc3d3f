"""Reproduces a registered model in a clean store; if the result differs, says what differs and by how much."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.registry.explanation import Change, code_changes, provenance_of, settings_of, training_of
from gatehouse.registry.naming import named
from gatehouse.store.records import changes
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.stage import StageModel, declared_stages
from gatehouse.store.store import ArtifactStore
from gatehouse.store.transfer import pull

_SCORED = 20_000


class NotReproducibleError(GatehouseError):
    """An artifact cannot be made again: its origin is unknown, or the stage that made it is missing here."""

    permanent = True


class Reproduced(StageModel):
    """The result of a reproduction: whether the model was made again to the bit, and else how it differs.

    `again` is the rebuilt model, `weights` and `weights_again` are SHA-256, `copied` and `made` count artifacts, and
    `first` is the first artifact that differs. `largest` and `mean` are differences of scores on up to 20,000 rows of
    the training set.
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


@dataclass(frozen=True)
class Step:
    """One artifact: copied if `stage` is empty, else made again by `stage` as `again`, with code of digest `code`."""

    identity: str
    again: str
    stage: str = ""
    code: str = ""


@dataclass
class Rebuild:
    """Makes artifacts of `source` again in the empty store `target`.

    External inputs of stages (snapshots with their tables) and configuration are copied. Every other artifact is made
    again from the request in its provenance, with inputs replaced by their rebuilt versions. `rebuilt` maps original
    identities to those in the target.
    """

    source: ArtifactStore
    target: ArtifactStore
    steps: list[Step] = field(default_factory=list)
    rebuilt: dict[str, str] = field(default_factory=dict)

    def make(self, identity: str) -> str:
        """Make an artifact, after the inputs that its request names; returns its new identity."""
        if identity in self.rebuilt:
            return self.rebuilt[identity]
        provenance, reference = provenance_of(self.source, identity), Reference.parse(identity)
        name = str(provenance.get("stage", "")).rpartition(":")[2]
        external = self.source.manifest(identity).details.get("external")  # Gatehouse did not train it.
        stage = None if external else declared_stages().get(name)
        if reference.kind == "config" or (stage is not None and not stage.declared.effects.memo):
            pull(self.source, identity, self.target)
            step = Step(identity, identity)
        elif stage is None or "request" not in provenance:
            raise NotReproducibleError(
                f"{identity} cannot be made again: expected a stage of this version and its request in the provenance, "
                f"found the stage {name or 'none'}. Make it again, with the stage in `rerun`."
            )
        else:
            request = stage.request.model_validate(self._replaced(provenance["request"]))
            made = references_in(stage(request, self.target).model_dump(mode="json"))
            same = [result for result in made if (result.kind, result.name) == (reference.kind, reference.name)]
            if not same:
                raise NotReproducibleError(
                    f"{name} once made {identity}, but now makes {', '.join(map(str, made)) or 'nothing'}. Use the "
                    "version of Gatehouse that made it."
                )
            again = str(reference if reference in same else same[0])
            step = Step(identity, again, name, str(provenance.get("code", "")))
        self.steps.append(step)
        self.rebuilt[identity] = step.again
        return step.again

    def _replaced(self, value: Any) -> Any:
        """A request with its references replaced by those of the rebuilt artifacts."""
        if isinstance(value, dict):
            return {name: self._replaced(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._replaced(inner) for inner in value]
        return self.make(value) if isinstance(value, str) and references_in(value) else value


def reproduce(store: ArtifactStore, version: str, into: str = "") -> Reproduced:
    """Rebuild a version, NAME:2 or NAME@champion, from its snapshot, at the world size of the original.

    `into` is an empty folder for the store of the rebuild; empty for a temporary one.

    Raises ConfigurationError if there is no such version, or the folder is not empty; NotReproducibleError if the
    provenance of an artifact in its lineage is incomplete; GatehouseError as the stages raise.
    """
    model, folder = named(store, version).version.model, Path(into)
    if into and folder.exists() and any(folder.iterdir()):
        raise ConfigurationError(f"--into: expected an empty folder, found files in {folder}. Name another one.")
    with tempfile.TemporaryDirectory(prefix="gatehouse-reproduce-") as temporary:
        rebuild = Rebuild(store, ArtifactStore.open(folder if into else temporary))
        return beside(rebuild, model, rebuild.make(model))


def beside(rebuild: Rebuild, model: str, again: str) -> Reproduced:
    """The result of a rebuild, for a model and its rebuilt version."""
    sides = ((rebuild.source, model), (rebuild.target, again))
    files = [store.manifest(identity).files for store, identity in sides]
    weights = [next((entry.sha256 for entry in entries if entry.path.startswith("weights")), "") for entries in files]
    made = [step for step in rebuild.steps if step.stage]
    result = Reproduced(
        same=again == model,
        model=model,
        again=again,
        weights=weights[0],
        weights_again=weights[1],
        processes=int(settings_of(rebuild.source, model).get("parallelism", {}).get("processes", 1)),
        copied=len(rebuild.steps) - len(made),
        made=len(made),
        first=next((step.identity for step in rebuild.steps if step.identity != step.again), ""),
    )
    if result.same:
        return result

    import numpy as np
    import pyarrow.parquet as pq

    from gatehouse.training.predictor import Predictor

    training_set = rebuild.source.manifest(model).derived_from["training_set"]
    rows = pq.ParquetDataset(rebuild.source.paths(training_set)).read().slice(0, _SCORED)
    scores = [Predictor.load(store, identity).predict(rows) for store, identity in sides]
    apart = np.abs(scores[0] - scores[1])
    differences: list[Change] = []
    for step in made:
        now = declared_stages()[step.stage].sources()
        rebuild.source.record(f"code/{now.digest}.json", now.to_json())
        changed = code_changes(rebuild.source, step.code, now.digest)
        differences += [Change.of(f"code of {step.stage}", *change) for change in changed]
    environments = [training_of(store, identity).get("environment") or {} for store, identity in sides]
    changed = (change for change in changes(*environments) if change[0] not in ("commit", "dirty"))
    differences += [Change.of("environment", *change) for change in changed]
    return result.model_copy(
        update={"differences": tuple(differences), "largest": float(apart.max()), "mean": float(apart.mean())}
    )
