"""The KFP interface of the registry's stages."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def resolve(
    store: str, model_name: str, candidate: str, training_set: str, split: str, policy: str
) -> NamedTuple("Outputs", [("champion", str)]):
    """Find the champion that the candidate must compare with.

    Args:
        store: Address of the artifact store.
        model_name: Name of the model.
        candidate: Reference of the candidate.
        training_set: Reference of the training set.
        split: Reference of its split.
        policy: The promotion policy, as canonical JSON.
    """
    from gatehouse.components.artifacts.canonical import sha256_bytes
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.registry.stage import ResolveRequest
    from gatehouse.components.registry.stage import resolve as find

    digest = sha256_bytes(policy.encode())
    request = ResolveRequest(
        model_name=model_name, candidate=candidate, training_set=training_set, split=split, policy=digest
    )
    return (find(request, ArtifactStore.open(store)).champion,)


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def register(
    store: str, model_name: str, model: str, evaluation: str, policy: str, summary: dsl.Output[dsl.Markdown]
) -> NamedTuple("Outputs", [("decision", str), ("version", int)]):
    """Register the candidate behind the gate: a version with its aliases, or a refusal with its reasons.

    Args:
        store: Address of the artifact store.
        model_name: Name of the model.
        model: Reference of the candidate.
        evaluation: Reference of its evaluation.
        policy: The promotion policy, as canonical JSON of a GatePolicy.
        summary: The decision for the UI.
    """
    import json
    from gatehouse.components.artifacts.canonical import sha256_bytes
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.registry.stage import RegisterRequest
    from gatehouse.components.registry.stage import register as write

    digest, automatic = sha256_bytes(policy.encode()), json.loads(policy)["approval"] == "automatic"
    request = RegisterRequest(
        model_name=model_name, model=model, evaluation=evaluation, policy=digest, automatic=automatic
    )
    result = write(request, ArtifactStore.open(store))
    with open(summary.path, "w", encoding="utf-8") as stream:
        stream.write(f"# {result.decision}\n\nversion {result.version}, aliases {', '.join(result.aliases) or 'none'}\n")
    return (result.decision, result.version)


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def promote(
    store: str, model_name: str, action: str, version: int, reason: str
) -> NamedTuple("Outputs", [("decision", str), ("version", int)]):
    """Make a version champion, or roll back to the champion before.

    Args:
        store: Address of the artifact store.
        model_name: Name of the model.
        action: promote or rollback.
        version: The version to promote; ignored by rollback.
        reason: Why; it is kept in the ledger.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.registry.stage import PromoteRequest
    from gatehouse.components.registry.stage import promote as move

    request = PromoteRequest(model_name=model_name, action=action, version=version, reason=reason)
    result = move(request, ArtifactStore.open(store))
    return (result.decision, result.version)


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def champion(
    store: str, model_name: str
) -> NamedTuple("Outputs", [("model", str), ("training_set", str), ("split", str)]):
    """Find the champion and what it was trained on.

    Args:
        store: Address of the artifact store.
        model_name: Name of the model.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.registry.stage import ChampionRequest
    from gatehouse.components.registry.stage import champion as find

    result = find(ChampionRequest(model_name=model_name), ArtifactStore.open(store))
    return (result.model, result.training_set, result.split)
