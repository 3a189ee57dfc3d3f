"""Checks that rows to score have features of the same meaning as those that the model was trained on."""

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.changes import changes
from gatehouse.features.definitions.repository import Repository, check_out
from gatehouse.features.definitions.sql_text import code
from gatehouse.store.identity import identity_of
from gatehouse.store.store import ArtifactStore


def require_same_features(store: ArtifactStore, service: str, learned: str, given: str) -> None:
    """Refuse definitions that give a feature of a service another meaning than in training.

    Args:
        store: Where both definitions are.
        service: Name of the feature service that the model reads.
        learned: Reference of the definitions that the model was trained on.
        given: Reference of the definitions that made the rows to score.

    Raises:
        ConfigurationError: listing what changed, view by view.
    """
    if learned == given:
        return
    with store.workspace() as workspace:
        before = check_out(store, learned, workspace / "learned")
        after = check_out(store, given, workspace / "given")
    read = before.service(service)
    found = {name: lines for name, lines in changes(before, after).items() if name in read.views}
    found |= {name: ["its query or its columns"] for name in read.on_demand if _unlike(before, after, name)}
    if found:
        told = "".join(f"\n  - {name}: {', '.join(lines)}" for name, lines in sorted(found.items()))
        raise ConfigurationError(
            f"The model was trained on features of {learned}, but the rows have features of {given}, which computes "
            f"features of the service {service} differently:{told}\nTrain the model again, or score rows with features "
            "of the definitions that it was trained on."
        )


def _unlike(before: Repository, after: Repository, name: str) -> bool:
    views = [each.on_demand.get(name) for each in (before, after)]
    meanings = [(identity_of(each.spec), code(each.query)) for each in views if each is not None]
    return len(meanings) < len(views) or meanings[0] != meanings[1]
