"""Which champion a candidate must compare with."""

from gatehouse.components.registry.ledger import Ledger


def resolve_champion(ledger: Ledger, candidate: str, training_set: str, split: str, policy: str) -> str:
    """Identity of the champion to compare `candidate` with, or an empty string.

    Where a verdict for this candidate, test set and policy stands already, that is the champion of that verdict:
    judging again changes nothing. Otherwise it is the last champion other than the candidate.

    Args:
        ledger: The model's ledger.
        candidate: Identity of the model.
        training_set: Identity of the training set that the test rows are from.
        split: Identity of the split that chooses them.
        policy: Digest of the policy.
    """
    records = ledger.records()
    wanted = (candidate, training_set, split, policy)
    for record in reversed(records):
        if record.evaluation and (record.model, record.training_set, record.split, record.policy) == wanted:
            return record.judged_against
    return ledger.state().champion_other_than(candidate)
