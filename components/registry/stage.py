"""The registry's stages: resolve the champion, register behind the gate, promote and roll back."""

import os

from gatehouse.components.artifacts.run import RUN_ID
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import ConfigurationError, MissingArtifactError


class ResolveRequest(StageModel):
    """A candidate, the data that it will be tested on, and the digest of the policy that will judge it."""

    model_name: str
    candidate: str
    training_set: str
    split: str
    policy: str


class ResolveResult(StageModel):
    """The champion to compare with; empty for none."""

    champion: str


class ChampionRequest(StageModel):
    """The name of a model."""

    model_name: str


class ChampionResult(StageModel):
    """The champion and what it was trained on."""

    model: str
    training_set: str
    split: str


class RegisterRequest(StageModel):
    """A candidate with its evaluation, the digest of the policy, and whether passing is enough to become champion."""

    model_name: str
    model: str
    evaluation: str
    policy: str
    automatic: bool


class RegisterResult(StageModel):
    """`registered`, `confirmed`, `refused` or `awaiting approval`; the version (0 for none) and its aliases."""

    decision: str
    version: int
    aliases: tuple[str, ...]


class PromoteRequest(StageModel):
    """An act of a person: `promote` a version, or `rollback` to the champion before."""

    model_name: str
    action: str
    version: int = 0
    reason: str = ""


@stage("resolve")
def resolve(request: ResolveRequest, store: ArtifactStore) -> ResolveResult:
    """Find the champion that the candidate must compare with."""
    from gatehouse.components.registry.ledger import Ledger
    from gatehouse.components.registry.resolve import resolve_champion

    ledger = Ledger(store, request.model_name)
    champion = resolve_champion(ledger, request.candidate, request.training_set, request.split, request.policy)
    return ResolveResult(champion=champion)


@stage("champion")
def champion(request: ChampionRequest, store: ArtifactStore) -> ChampionResult:
    """Find the champion and what it was trained on.

    Raises:
        MissingArtifactError: if the model has no champion yet.
    """
    from gatehouse.components.registry.ledger import Ledger

    model = Ledger(store, request.model_name).state().champion
    if not model:
        raise MissingArtifactError(
            f"{request.model_name} has no champion in {store.address}: expected one that the training pipeline registered. "
            "Run the training pipeline first."
        )
    inputs = store.manifest(model).derived_from
    return ChampionResult(model=model, training_set=inputs["training_set"], split=inputs["split"])


@stage("register")
def register(request: RegisterRequest, store: ArtifactStore) -> RegisterResult:
    """Write the verdict into the ledger, once, and show the ledger in MLflow.

    Raises:
        StaleVerdictError: if the champion changed since the evaluation.
    """
    from gatehouse.components.registry.ledger import CHAMPION, Ledger
    from gatehouse.components.registry.projection import project
    from gatehouse.components.registry.registration import record_verdict

    ledger = Ledger(store, request.model_name)
    run = os.environ.get(RUN_ID, "")
    record = record_verdict(
        store, ledger, request.model, request.evaluation, request.policy, request.automatic, run
    )
    project(store, ledger)
    state = ledger.state()
    aliases = state.aliases_of(record.version) if record.version else ()
    waiting = record.event in ("registered", "confirmed") and not request.automatic and CHAMPION not in aliases
    return RegisterResult(
        decision="awaiting approval" if waiting else record.event, version=record.version, aliases=aliases
    )


@stage("promote")
def promote(request: PromoteRequest, store: ArtifactStore) -> RegisterResult:
    """Move the champion alias as a person asked, and show the ledger in MLflow.

    Raises:
        UnknownVersionError: if the version does not exist, or there is nothing to roll back to.
        ConfigurationError: if the action is neither `promote` nor `rollback`.
    """
    from gatehouse.components.registry import registration
    from gatehouse.components.registry.ledger import CHAMPION, Ledger
    from gatehouse.components.registry.projection import project

    ledger = Ledger(store, request.model_name)
    run = os.environ.get(RUN_ID, "")
    if request.action == "promote":
        record = registration.promote(ledger, request.version, request.reason, run)
    elif request.action == "rollback":
        record = registration.roll_back(ledger, request.reason, run)
    else:
        raise ConfigurationError(f"action: expected 'promote' or 'rollback', found {request.action!r}.")
    project(store, ledger)
    state = ledger.state()
    champion = state.alias(CHAMPION)
    decision = record.event if record else "unchanged"
    return RegisterResult(decision=decision, version=champion, aliases=state.aliases_of(champion))
