"""Which champion a candidate must compare with."""

from gatehouse.components.artifacts.identity import identity_digest
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.evaluation.spec import GatePolicy
from gatehouse.components.registry.ledger import Ledger
from gatehouse.components.registry.state import State, Subject


def policy_digest(policy: GatePolicy) -> str:
    """SHA-256 of what identifies a policy, as 64 hexadecimal digits; rules that it does not name are in no digest."""
    return identity_digest(policy)


def resolve_champion(
    store: ArtifactStore, model_name: str, candidate: str, training_set: str, split: str, policy: str
) -> str:
    """Identity of the champion that `candidate` is judged against; empty where there is none.

    It is the champion other than the candidate; or, where a verdict on this candidate, test set and policy stands, the
    champion of that verdict, so that judging again is a no-op.

    Args:
        store: The store that holds the ledger.
        model_name: Name under which models are registered.
        candidate: Identity of the model to be judged.
        training_set: Identity; with `split` it names the test set.
        split: Identity.
        policy: Digest of the policy (`policy_digest`).
    """
    subject = Subject(model=candidate, training_set=training_set, split=split, policy=policy)
    return expected_champion(Ledger(store, model_name).state(), subject)


def expected_champion(state: State, subject: Subject) -> str:
    """The same, of a state."""
    last = state.verdict_on(subject)
    if last is not None and state.stands(*last):
        return last[1].champion
    return state.champion_other_than(subject.model)
