"""The seven questions that every registered model answers: data, code, configuration, environment, seeds, parents, who.

The answers come from manifests, provenance and the measurement of the training. A model of Gatehouse's training that
cannot answer one of the questions is not registered, because it could not be explained or rebuilt. For a model that
something else trained, a person answers, and what nobody said is *not stated*.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gatehouse.errors import GatehouseError
from gatehouse.store.records import read_record
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import lineage_of

NOT_STATED = "not stated"
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
    """The model's answers to the seven questions. Raises if a manifest of its lineage is missing or altered."""
    if store.manifest(model).details.get("external"):
        return _stated_answers(store, model)
    origin, settings = provenance_of(store, model), dict(leaves(settings_of(store, model)))
    environment: dict[str, Any] = training_of(store, model).get("environment") or {}

    data: list[tuple[str, str]] = []
    for identity in lineage_of(store, model):
        kind = Reference.parse(identity).kind
        if kind in ("snapshots", "datasets", "training-sets", "splits"):
            rows = store.manifest(identity).rows
            data.append((kind.removesuffix("s"), identity if rows is None else f"{identity} ({rows:,} rows)"))
    absent = [kind for kind in ("snapshot", "training-set", "split") if kind not in dict(data)]

    commit = f"{environment.get('commit', '')}{'+dirty' if environment.get('dirty') else ''}"
    code = {"code": origin.get("code"), "own code": origin.get("outside"), "commit": commit, "key": origin.get("key")}

    machine = {name: environment.get(name) for name in ("image", "machine", "hardware", "python")}
    machine["image"] = machine["image"] or "none: it ran outside of a container"
    machine |= {f"threads {name}": count for name, count in (environment.get("threads") or {}).items()}
    machine |= dict(list((environment.get("distributions") or {}).items())[:_VERSIONS])
    is_known = environment.get("hardware") and environment.get("python")

    seeds = [(name, value) for name, value in settings.items() if name.rpartition(".")[2] == "seed"]
    # Outside of a run nobody may have said why.
    why = origin.get("why") or (f"pipeline run {origin['run']} asked for it" if origin.get("run") else NOT_STATED)
    who = {"by": origin.get("by"), "run": origin.get("run"), "stage": origin.get("stage"), "why": why}

    def answer(question: str, facts: Iterable[tuple[str, Any]], missing: str) -> Answer:
        texts = tuple((name, str(value)) for name, value in facts if value not in (None, ""))
        return Answer(question=question, facts=texts, missing="" if texts else f"{missing}: none")

    return (
        Answer(
            question="which data",
            facts=tuple(data),
            missing=f"no {', '.join(absent)} in its lineage" if absent else "",
        ),
        answer("which code", code.items() if origin.get("code") else (), "the digest of the code, in its provenance"),
        answer("which configuration", settings.items(), "its settings, in the manifest or beside it"),
        answer(
            "which environment and image",
            machine.items() if is_known else (),
            "hardware and versions, in the measurement that its training left",
        ),
        answer("which seeds", seeds, "a seed among its settings"),
        answer("which parents", store.manifest(model).derived_from.items(), "what it was derived from"),
        answer("who and why", who.items() if origin.get("by") else (), "a person, in its provenance"),
    )


def _stated_answers(store: ArtifactStore, model: str) -> tuple[Answer, ...]:
    """The answers of a model that something else trained: what a person said of it last, and what KFP knows."""
    origin, newest = provenance_of(store, model), training_of(store, model)
    texts, place, settings = (newest.get(name) or {} for name in ("statements", "place", "settings"))
    settings = dict(leaves(settings))
    pickles = ", ".join(store.manifest(model).details["pickles"])
    allowed = {"pickles": f"{pickles}, which may run code when loaded, because: {texts.get('pickle_reason')}"}
    who = {"by": origin.get("by"), "run": origin.get("run"), "pod": place.get("pod"), "why": texts.get("reason")}
    questions: dict[str, dict[str, Any]] = {
        "which data": {"data": texts.get("data")},
        "which code": {"code": texts.get("code")} | (allowed if pickles else {}),
        "which configuration": {name: value for name, value in settings.items() if name != "seed"} or {"settings": ""},
        "which environment and image": {"environment": texts.get("environment")},
        "which seeds": {"seed": settings.get("seed")},
        "which parents": {"parents": texts.get("parents")},
        "who and why": who,
    }
    return tuple(
        Answer(
            question=question,
            facts=tuple((name, NOT_STATED if value in (None, "") else str(value)) for name, value in facts.items()),
        )
        for question, facts in questions.items()
    )


def require_answers(store: ArtifactStore, model: str) -> None:
    """Raise IncompleteLineageError, which names what is missing, if a model does not answer all seven questions."""
    answers = seven_answers(store, model)
    missing = "".join(f"\n  - {answer.question}: {answer.missing}" for answer in answers if answer.missing)
    if missing:
        raise IncompleteLineageError(
            f"{model} cannot be registered: it does not answer{missing}\nTrain it again: `gatehouse run --rerun train`."
        )


def provenance_of(store: ArtifactStore, reference: Reference | str) -> dict[str, Any]:
    """The first creation of an artifact: who, when, run, stage, key and code; empty if unknown."""
    first = next(iter(store.objects.list(f"provenance/{reference}")), None)
    return (read_record(store.objects, first) or {}) if first else {}


def trained_as(store: ArtifactStore, model: str) -> str:
    """The model as training published it: the source of a calibrated model, else the model itself."""
    return store.manifest(model).derived_from.get("model", model)


def training_of(store: ArtifactStore, model: str) -> dict[str, Any]:
    """What a model's training recorded first, or a person said last: settings, environment; empty for no record."""
    measured = store.measurements(trained_as(store, model), "train")
    return measured[0 if "statements" in measured[0] else -1] if measured else {}


def settings_of(store: ArtifactStore, model: str) -> Mapping[str, Any]:
    """All settings of a training; without a record of it, those in the manifest, which leaves out defaults."""
    configuration = store.manifest(model).configuration
    settings = training_of(store, model).get("settings") or configuration
    return {**settings, **{name: configuration[name] for name in ("calibration",) if name in configuration}}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of every leaf in nested settings."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path, value
