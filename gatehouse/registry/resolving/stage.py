"""The stage that finds the champion that a candidate must be compared with."""

from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.ledger import SEES_CHAMPIONS, Ledger
from gatehouse.registry.state import Subject
from gatehouse.store.identity import identity_digest
from gatehouse.store.stage import Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore


class ResolveRequest(StageModel):
    """The candidate, the test set to measure it on, and the policy to judge it by.

    Attributes:
        model_name: Name under which models are registered.
        candidate: Reference of the candidate.
        training_set: Reference of the training set.
        split: Reference of its split.
        policy: The promotion policy, as a GatePolicy.
    """

    model_name: str
    candidate: str
    training_set: str
    split: str
    policy: GatePolicy


class ResolveResult(StageModel):
    """Identity of the champion that the candidate must be compared with; empty for none."""

    champion: str


@stage(
    "resolve",
    title="Resolve the champion",
    effects=SEES_CHAMPIONS,
    resources=Resources(cpu="500m", memory="1G", minutes=5),
)
def resolve(request: ResolveRequest, store: ArtifactStore) -> ResolveResult:
    """Find the champion that the candidate must be compared with; it is never the candidate itself."""
    subject = Subject(
        model=request.candidate,
        training_set=request.training_set,
        split=request.split,
        policy=identity_digest(request.policy),
    )
    return ResolveResult(champion=Ledger(store, request.model_name).state().expected_champion(subject))
