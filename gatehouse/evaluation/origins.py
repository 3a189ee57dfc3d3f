"""What is known of a candidate's data: how old it is, how far features moved since, and whether all is there."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gatehouse.errors import CorruptArtifactError, ErasedArtifactError, GatehouseError, MissingArtifactError
from gatehouse.evaluation.gate import Origins
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.training.learned import learned_parts

_WANTED = ("snapshots", "config", "feature-tables", "training-sets", "splits")
"""Kinds of artifacts that every model of a pipeline was made from."""
_UNREADABLE = (MissingArtifactError, CorruptArtifactError, ErasedArtifactError)


def origins_of(store: ArtifactStore, model: str, training_set: str, split: str, split_checks: str) -> Origins:
    """What is known of the data that a candidate was made from; nothing of it depends on the clock.

    Args:
        store: Where all of it is.
        model: The candidate.
        training_set: That it is judged on.
        split: That it is judged on.
        split_checks: The checks of that split, which measured its parts; empty for none.
    """
    missing, passing = _missing(store, model)
    try:
        if lacking := _lacking(store, model, training_set, split, split_checks):
            return Origins(missing, lacking, passing=passing)
        told = store.read_json(split_checks, "checks.json")
    except _UNREADABLE as error:
        return Origins(missing, told_unread(error), passing=not is_erased(error))
    details = store.manifest(training_set).details
    features = {*details.get("numeric", ()), *details.get("categorical", ())}
    psi = {name: one["psi"][1] for name, one in told["columns"].items() if name in features}
    learned = learned_parts(store.manifest(model).configuration)
    return Origins(missing, "", _age_days(told["parts"], learned), psi, passing)


def _lacking(store: ArtifactStore, model: str, training_set: str, split: str, split_checks: str) -> str:
    if not split_checks:
        return "the evaluation was given no checks of the split, which measure its parts"
    if (checked := store.manifest(split_checks).derived_from.get("split")) != split:
        return f"{split_checks} looked at {checked or 'no split'}, expected {split}"
    inputs = store.manifest(model).derived_from
    if (inputs.get("training_set"), inputs.get("split")) != (training_set, split):
        return "the candidate was trained on another split than it is judged on"
    return ""


def _missing(store: ArtifactStore, model: str) -> tuple[tuple[str, ...], bool]:
    """What the candidate should have been made from and was not; or why that cannot be read, and true."""
    made_from, pending = set[str](), [model]
    try:
        while pending:
            parents = store.manifest(pending.pop()).derived_from.values()
            pending.extend(set(parents) - made_from)
            made_from.update(parents)
    except _UNREADABLE as error:
        return (told_unread(error),), not is_erased(error)
    kinds = {Reference.parse(each).kind for each in made_from}
    return tuple(f"no {kind}" for kind in _WANTED if kind not in kinds), False


def is_erased(error: GatehouseError) -> bool:
    """Whether what could not be read was erased, and so will never be back."""
    return isinstance(error, ErasedArtifactError)


def told_unread(error: GatehouseError) -> str:
    """Why something cannot be read: of what is gone for ever in words of ours, as those of errors are in no key."""
    return "it was erased from the store" if is_erased(error) else str(error)


def _age_days(parts: Mapping[str, Any], learned: Iterable[str]) -> float | None:
    """From the newest decision of the parts that were learned from to that of the test part; None without times."""
    if not all("last" in parts[name] for name in (*learned, "test")):
        return None
    trained = max(datetime.fromisoformat(parts[name]["last"]) for name in learned)
    return (datetime.fromisoformat(parts["test"]["last"]) - trained).total_seconds() / 86_400
