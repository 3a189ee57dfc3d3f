"""The verdict of an evaluation, in the form that the ledger stores."""

from datetime import datetime
from typing import Any

from gatehouse.errors import GatehouseError
from gatehouse.evaluation.gate import verdict_of
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.exempting.exemption import lifting, not_lifting, rules_of
from gatehouse.registry.state import State, Subject, Verdict
from gatehouse.store.canonical import digest_of
from gatehouse.store.identity import identity_digest, identity_of
from gatehouse.store.store import ArtifactStore


class WrongEvaluationError(GatehouseError):
    """An evaluation judges another candidate, or uses another policy, than it is given for."""

    permanent = True


def verdict_on(
    store: ArtifactStore, model: str, evaluation: str, policy: GatePolicy, state: State, moment: datetime
) -> Verdict:
    """The gate's verdict on `model` for the ledger: read from `evaluation`, without the rules that it is exempted from.

    A verdict that depended on an exemption and led to a record stays as it is when the exemption expires.

    Args:
        store: The artifact store.
        model: The candidate.
        evaluation: The evaluation that judged it.
        policy: The policy that it was judged under.
        state: The ledger's state, with all exemptions.
        moment: The moment at which exemptions must be valid.

    Raises:
        WrongEvaluationError: if the evaluation judges another model or policy, or compares the model with itself.
    """
    manifest = store.manifest(evaluation)
    inputs = manifest.derived_from
    champion = inputs.get("champion", "")
    given = identity_of(policy)
    if inputs.get("model") != model:
        raise WrongEvaluationError(
            f"{evaluation} judges {inputs.get('model')}, expected {model}. Evaluate this candidate first."
        )
    if champion == model:
        raise WrongEvaluationError(
            f"{evaluation} compares {model} with itself, which it always passes: expected the "
            "champion other than the candidate. Evaluate it against what `resolve` gives."
        )
    if manifest.configuration.get("policy") != given:
        raise WrongEvaluationError(
            f"{evaluation} applied another policy than the one given here: "
            f"{_difference(manifest.configuration, given)}. Evaluate again under the present policy."
        )
    subject = Subject(
        model=model, training_set=inputs["training_set"], split=inputs["split"], policy=identity_digest(policy)
    )
    last = state.verdict_on(subject)
    if last and last[1].admits and last[1].exempted and last[1].evaluation == evaluation and state.settled(*last):
        return last[1]
    rules = rules_of(store, evaluation)
    exempted = lifting(rules, model, champion, state, moment)
    left = tuple(rule for rule in rules if rule.name not in {each.rule for each in exempted})
    said = verdict_of(left)
    unclear = said == "inconclusive"
    return Verdict(
        subject=subject,
        champion=champion,
        evaluation=evaluation,
        verdict=said,
        reasons=tuple(f"{rule}{not_lifting(rule.name, model, state, moment)}" for rule in left if rule.refuses),
        exempted=exempted,
        approval="manual" if unclear and policy.inconclusive == "approval" else policy.approval,
        approval_days=policy.approval_days,
        four_eyes=policy.four_eyes,
        kept_out=unclear and policy.inconclusive == "refuse",
    )


def require_binding(store: ArtifactStore, verdict: Verdict) -> None:
    """Check that a verdict of the ledger equals what its evaluation says of this model, data, champion and policy.

    Raises:
        WrongEvaluationError: if the evaluation says something else.
        MissingArtifactError, CorruptArtifactError: if the evaluation or model is incomplete.
    """
    manifest, subject = store.manifest(verdict.evaluation), verdict.subject
    expected = {"model": subject.model, "training_set": subject.training_set, "split": subject.split}
    expected |= {"champion": verdict.champion, "policy": subject.policy, "verdict": verdict.verdict}
    found = {role: manifest.derived_from.get(role, "") for role in ("model", "training_set", "split", "champion")}
    found["policy"] = digest_of(manifest.configuration.get("policy"))
    lifted = {each.rule for each in verdict.exempted}
    found["verdict"] = verdict_of(tuple(r for r in rules_of(store, verdict.evaluation) if r.name not in lifted))
    for name, value in expected.items():
        if found[name] != value:
            raise WrongEvaluationError(
                f"{verdict.evaluation}: {name}: expected {value or 'none'}, as in the ledger, found "
                f"{found[name] or 'none'}. Run the training pipeline again to judge the model."
            )
    for reference in (verdict.evaluation, subject.model):
        if problems := store.problems(reference):
            raise problems[0]


def _difference(configuration: dict[str, Any], given: dict[str, Any]) -> str:
    applied = configuration.get("policy") or {}
    names = sorted(name for name in {*applied, *given} if applied.get(name) != given.get(name))
    return f"{', '.join(names)} differ"
