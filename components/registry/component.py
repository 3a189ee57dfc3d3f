"""The KFP interface of the registry: resolve, register, promote, champion."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def resolve(store: str, model_name: str, candidate: str, training_set: str, split: str, policy: str) -> NamedTuple(
    "Outputs", [("champion", str)]
):
    """Find the champion that a candidate must compare with; empty where there is none.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        candidate: Reference of the candidate.
        training_set: Reference of the training set.
        split: Reference of its split.
        policy: The promotion policy, as canonical JSON of a GatePolicy.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.evaluation.spec import GatePolicy
    from gatehouse.components.registry.stage import ResolveRequest
    from gatehouse.components.registry.stage import resolve as find

    rules = GatePolicy.model_validate_json(policy)
    request = ResolveRequest(
        model_name=model_name, candidate=candidate, training_set=training_set, split=split, policy=rules
    )
    return (find(request, ArtifactStore.open(store)).champion,)


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def register(
    store: str, model_name: str, model: str, evaluation: str, policy: str, summary: dsl.Output[dsl.Markdown]
) -> NamedTuple("Outputs", [("decision", str), ("version", int), ("alias", str)]):
    """Enter the gate's verdict in the ledger; a candidate that passed becomes a version with its aliases.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        model: Reference of the candidate.
        evaluation: Reference of the evaluation that judged it.
        policy: The promotion policy, as canonical JSON of a GatePolicy.
        summary: Decision and reasons for the UI.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.evaluation.spec import GatePolicy
    from gatehouse.components.registry.stage import RegisterRequest
    from gatehouse.components.registry.stage import register as enter

    rules = GatePolicy.model_validate_json(policy)
    request = RegisterRequest(model_name=model_name, model=model, evaluation=evaluation, policy=rules)
    result = enter(request, ArtifactStore.open(store))
    lines = [f"# {model_name}: {result.decision}", *(f"- {reason}" for reason in result.reasons)]
    if result.version:
        lines.append(f"Version {result.version}, aliases: {', '.join(result.aliases) or 'none'}")
    with open(summary.path, "w", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
    return (result.decision, result.version, result.alias)


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def promote(store: str, model_name: str, action: str, version: int, reason: str) -> NamedTuple(
    "Outputs", [("decision", str), ("version", int), ("champion", str)]
):
    """Promote, roll back or archive a registered version.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
        action: promote, rollback or archive.
        version: The version to act on: to promote (0 for the one in staging), to withdraw, or to archive.
        reason: Why, in a person's words; goes into the ledger.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.registry.stage import PromoteRequest
    from gatehouse.components.registry.stage import promote as act

    request = PromoteRequest(model_name=model_name, action=action, version=version, reason=reason)
    result = act(request, ArtifactStore.open(store))
    return (result.decision, result.version, result.champion)


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def champion(store: str, model_name: str) -> NamedTuple(
    "Outputs", [("model", str), ("training_set", str), ("split", str)]
):
    """Find the champion and what it was trained on.

    Args:
        store: Address of the artifact store.
        model_name: Name under which models are registered.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.registry.stage import ChampionRequest
    from gatehouse.components.registry.stage import champion as find

    result = find(ChampionRequest(model_name=model_name), ArtifactStore.open(store))
    return (result.model, result.training_set, result.split)
