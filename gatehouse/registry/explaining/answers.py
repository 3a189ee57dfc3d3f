"""The seven questions that every registered model answers: data, code, configuration, environment, seeds, parents, who.

The answers come from manifests, provenance and the measurement of the training. A model that cannot answer one of the
questions is not registered, because it could not be explained or rebuilt.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gatehouse.errors import GatehouseError
from gatehouse.store.manifest import Manifest
from gatehouse.store.records import read_record
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import lineage_of

_VERSIONS = 12


class IncompleteLineageError(GatehouseError):
    """A model cannot say what it was made from, how, where or by whom."""

    permanent = True


class Answer(StageModel):
    """One question, the facts that answer it, and what is missing; `missing` is empty if it is answered."""

    question: str
    facts: tuple[tuple[str, str], ...] = ()
    missing: str = ""


def seven_answers(store: ArtifactStore, model: str) -> tuple[Answer, ...]:
    """The model's answers to the seven questions.

    Raises:
        MissingArtifactError, CorruptArtifactError: if a manifest of its lineage is missing or was altered.
    """
    manifest = store.manifest(model)
    made, trained = provenance_of(store, model), training_of(store, model)
    environment, settings = trained.get("environment") or {}, settings_of(store, model)
    return (
        _data(store, model),
        _code(made, environment),
        _answer("which configuration", leaves(settings), "its settings, in the manifest or beside it"),
        _environment(environment),
        _seeds(settings),
        _parents(manifest),
        _who(made),
    )


def require_answers(store: ArtifactStore, model: str) -> None:
    """Check that a model answers all seven questions.

    Raises:
        IncompleteLineageError: if it does not; the message names what is missing.
    """
    missing = [f"{each.question}: {each.missing}" for each in seven_answers(store, model) if each.missing]
    if missing:
        raise IncompleteLineageError(
            f"{model} cannot be registered: expected an answer to each of the seven questions, found none to\n  - "
            + "\n  - ".join(missing)
            + "\nTrain it again with this store: `gatehouse run --rerun train`."
        )


def provenance_of(store: ArtifactStore, reference: Reference | str) -> dict[str, Any]:
    """The first creation of an artifact: who, when, run, stage, key and code; empty if unknown."""
    first = next(iter(store.objects.list(f"provenance/{reference}")), None)
    return (read_record(store.objects, first) or {}) if first else {}


def trained_as(store: ArtifactStore, model: str) -> str:
    """The model as training published it: the source of a calibrated model, else the model itself."""
    return store.manifest(model).derived_from.get("model", model)


def training_of(store: ArtifactStore, model: str) -> dict[str, Any]:
    """What a model's training recorded: settings, environment, time; empty if there is no record."""
    measured = store.measurements(trained_as(store, model), "train")
    return measured[-1] if measured else {}


def settings_of(store: ArtifactStore, model: str) -> Mapping[str, Any]:
    """All settings of a training; without a record of it, those in the manifest, which leaves out defaults."""
    written = store.manifest(model).configuration
    settings = training_of(store, model).get("settings") or written
    return {**settings, **{name: written[name] for name in ("calibration",) if name in written}}


def _data(store: ArtifactStore, model: str) -> Answer:
    facts: list[tuple[str, str]] = []
    for identity in lineage_of(store, model):
        kind = Reference.parse(identity).kind
        if kind in ("snapshots", "datasets", "training-sets", "splits"):
            rows = store.manifest(identity).rows
            facts.append((kind.removesuffix("s"), identity if rows is None else f"{identity} ({rows:,} rows)"))
    kinds = {name for name, _ in facts}
    missing = [each for each in ("snapshot", "training-set", "split") if each not in kinds]
    return Answer(
        question="which data",
        facts=tuple(facts),
        missing=f"no {', '.join(missing)} in its lineage" if missing else "",
    )


def _code(made: Mapping[str, Any], environment: Mapping[str, Any]) -> Answer:
    commit = f"{environment.get('commit', '')}{'+dirty' if environment.get('dirty') else ''}"
    given = {"code": made.get("code"), "own code": made.get("outside"), "commit": commit, "key": made.get("key")}
    return _answer("which code", given.items() if made.get("code") else (), "the digest of the code, in its provenance")


def _environment(environment: Mapping[str, Any]) -> Answer:
    named = ("image", "machine", "hardware", "python")
    given = {name: environment.get(name) for name in named} | {
        f"threads {name}": value for name, value in (environment.get("threads") or {}).items()
    }
    versions = dict(list((environment.get("distributions") or {}).items())[:_VERSIONS])
    known = environment.get("hardware") and environment.get("python")
    given["image"] = given["image"] or "none: it ran outside of a container"
    return _answer(
        "which environment and image",
        (given | versions).items() if known else (),
        "hardware and versions, in the measurement that its training left",
    )


def _seeds(settings: Mapping[str, Any]) -> Answer:
    found = [(name, value) for name, value in leaves(settings) if name.rpartition(".")[2] == "seed"]
    return _answer("which seeds", found, "a seed among its settings")


def _parents(manifest: Manifest) -> Answer:
    return _answer("which parents", manifest.derived_from.items(), "what it was derived from")


def _who(made: Mapping[str, Any]) -> Answer:
    why = made.get("why") or (f"run {made['run']} of the pipeline asked for it" if made.get("run") else "")
    given = {"by": made.get("by"), "run": made.get("run"), "stage": made.get("stage"), "why": why}
    known = made.get("by") and why
    return _answer("who and why", given.items() if known else (), "a person, and a run or a reason, in its provenance")


def _answer(question: str, facts: Any, missing: str) -> Answer:
    kept = tuple((str(name), str(value)) for name, value in facts if value not in (None, ""))
    return Answer(question=question, facts=kept, missing="" if kept else f"{missing}: none")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of every leaf in nested settings."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path, value
