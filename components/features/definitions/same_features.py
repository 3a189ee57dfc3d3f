"""Holds definitions against those that a model learned from: may it score rows whose features they made?"""

from gatehouse.components.artifacts.identity import identity_of
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.features.definitions.changes import changes
from gatehouse.components.features.definitions.repository import Repository, check_out
from gatehouse.components.features.definitions.sql_text import code
from gatehouse.errors import ConfigurationError


def require_same_features(store: ArtifactStore, service: str, learned: str, given: str) -> None:
    """Refuse definitions by which a feature of a service means something else than it did in training.

    Args:
        store: Where both definitions are.
        service: Name of the feature service that a model reads.
        learned: Reference of the definitions that the model learned from.
        given: Reference of those that made the rows that it is to score.

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
            f"The model learned from {learned}, and the rows are from {given}, where features of the service {service} "
            f"are made in another way:{told}\nTrain the model anew, or score rows of the definitions of its training."
        )


def _unlike(before: Repository, after: Repository, name: str) -> bool:
    views = [each.on_demand.get(name) for each in (before, after)]
    meanings = [(identity_of(each.spec), code(each.query)) for each in views if each is not None]
    return len(meanings) < len(views) or meanings[0] != meanings[1]
