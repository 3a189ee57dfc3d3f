"""The records of the ledger that follow from an evaluation: its verdict, and the records that the verdict leads to."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from gatehouse.errors import GatehouseError
from gatehouse.evaluation.gate import verdict_of
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.approval import exemptions_from, rules_of, standing, why_not_exempted
from gatehouse.registry.ledger import CHAMPION, STAGING, Record, StaleVerdictError, State, Verdict, VerdictSubject
from gatehouse.store.canonical import digest_of
from gatehouse.store.identity import identity_of
from gatehouse.store.store import ArtifactStore

_WORSE = ("pass", "inconclusive", "refused")
_COMPARED = ("verdict", "champion", "exempted", "reasons", "kept_out")


class WrongEvaluationError(GatehouseError):
    """An evaluation judges another candidate than it is given for, or another than the ledger says."""

    permanent = True


def verdict_on(store: ArtifactStore, model: str, evaluation: str, state: State, moment: datetime) -> Verdict:
    """The gate's verdict on `model` for the ledger: read from `evaluation`, without the rules that it is exempted from.

    A verdict that passed, and led to all that follows from it, stays when its exemption expires, or when the candidate
    is judged again, on the same data and by the same policy, against a later champion. `moment` is when exemptions must
    be valid.

    Raises WrongEvaluationError if the evaluation judges another model, or compares the model with itself.
    """
    manifest = store.manifest(evaluation)
    inputs, applied = manifest.derived_from, manifest.configuration["policy"]
    champion = inputs.get("champion", "")
    if inputs.get("model") != model:
        raise WrongEvaluationError(f"{evaluation} judges {inputs.get('model')}, expected {model}.")
    if champion == model:
        raise WrongEvaluationError(f"{evaluation} compares {model} with itself: evaluate it against another champion.")
    subject = VerdictSubject(
        model=model,
        training_set=inputs["training_set"],
        split=inputs.get("split", ""),  # An evaluation of scores has a test set, and no split.
        policy=digest_of(applied),
    )
    last = state.verdict_on(subject)
    if last and last[1].admits and state.settled(*last):
        moved, lapsed = last[1].champion != champion, last[1].exempted and last[1].evaluation == evaluation
        if moved or lapsed:
            return last[1]
    rules = rules_of(store, evaluation)
    judged = store.read_json(evaluation, "verdict.json")
    if not rules or verdict_of(rules) != judged["verdict"]:
        raise WrongEvaluationError(
            f"{evaluation}: expected the rules that led to its verdict, {judged['verdict']}, found {len(rules)} rules "
            f"that lead to {verdict_of(rules)}. Judge the model again."
        )
    if "alignment" in applied:
        from gatehouse.registry.alignment import alignment_rules  # NumPy: an unchanged run imports none.

        rules = (*rules, *alignment_rules(store, state, _policy_of(evaluation, applied)))
    exempted = exemptions_from(rules, model, champion, state, moment)
    names_exempted = {exemption.rule for exemption in exempted}
    applicable = tuple(rule for rule in rules if rule.name not in names_exempted)
    verdict, policy = verdict_of(applicable), _policy_of(evaluation, applied)
    inconclusive, asks = verdict == "inconclusive", any(rule.asks for rule in applicable)
    best = judged.get("floor") or judged.get("comparison")
    return Verdict(
        subject=subject,
        champion=champion,
        evaluation=evaluation,
        verdict=verdict,
        reasons=tuple(
            f"{rule}{why_not_exempted(rule.name, model, state, moment)}" for rule in applicable if rule.refuses
        ),
        exempted=exempted,
        approval="manual" if asks or (inconclusive and policy.inconclusive == "approval") else policy.approval,
        approval_days=policy.approval_days,
        four_eyes=policy.four_eyes,
        kept_out=inconclusive and policy.inconclusive == "refuse",
        floor=inputs.get("floor", ""),
        below=bool(best) and best["worse_by"] > 0,
        live_required=policy.live_required,
        alignment=next((verdict_of((rule,)) for rule in applicable if rule.name == "alignment" and rule.refuses), ""),
    )


def _policy_of(evaluation: str, applied: Mapping[str, Any]) -> GatePolicy:
    try:
        return GatePolicy.model_validate(applied)
    except ValidationError as error:
        raise WrongEvaluationError(
            f"{evaluation} applied a policy that is not of this version. Judge the model again: {error}"
        ) from error


def require_policy(store: ArtifactStore, evaluation: str, policy: GatePolicy) -> None:
    """Raise WrongEvaluationError if an evaluation applied another policy than this one."""
    applied = store.manifest(evaluation).configuration.get("policy") or {}
    if names := differing(applied, identity_of(policy)):
        raise WrongEvaluationError(
            f"{evaluation} applied another policy: {names} differ. Judge the model again by the present policy."
        )


def differing(left: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    """The keys of different values, listed; empty if there are none."""
    return ", ".join(sorted(name for name in {*left, *right} if left.get(name) != right.get(name)))


def require_binding(store: ArtifactStore, verdict: Verdict) -> None:
    """Check that a verdict of the ledger equals what its evaluation says of this model, data, champion and policy.

    Raises WrongEvaluationError if the evaluation says something else; MissingArtifactError, CorruptArtifactError if the
    evaluation or model is incomplete.
    """
    manifest, subject = store.manifest(verdict.evaluation), verdict.subject
    exempted = {exemption.rule for exemption in verdict.exempted}
    rules = tuple(rule for rule in rules_of(store, verdict.evaluation) if rule.name not in exempted)
    for name, expected, recorded in (
        ("model", subject.model, manifest.derived_from.get("model", "")),
        ("training_set", subject.training_set, manifest.derived_from.get("training_set", "")),
        ("split", subject.split, manifest.derived_from.get("split", "")),
        ("champion", verdict.champion, manifest.derived_from.get("champion", "")),
        ("floor", verdict.floor, manifest.derived_from.get("floor", "")),
        ("policy", subject.policy, digest_of(manifest.configuration.get("policy"))),
        ("verdict", verdict.verdict, max(verdict_of(rules), verdict.alignment or "pass", key=_WORSE.index)),
    ):
        if recorded != expected:
            raise WrongEvaluationError(
                f"{verdict.evaluation}: {name}: expected {expected or 'none'}, as in the ledger, found "
                f"{recorded or 'none'}. Judge the model again, and register it."
            )
    for reference in (verdict.evaluation, subject.model):
        if problems := store.problems(reference):
            raise problems[0]


def next_registration(state: State, verdict: Verdict, lineage: tuple[str, ...]) -> Record | None:
    """The next record that follows from `verdict`, or None if all is done.

    A refusal is recorded once. A candidate that passes becomes a version; a model has at most one version, however
    often it is judged. The version then gets staging and, if the policy's approval is automatic, champion. `lineage`
    holds the identities of all artifacts that the candidate was made from. Raises StaleVerdictError if the verdict
    compares with another champion than the present one.
    """
    model = verdict.subject.model
    last, version = state.verdict_on(verdict.subject), state.version_of(model)
    differs = last is None or any(getattr(last[1], name) != getattr(verdict, name) for name in _COMPARED)
    if last and not differs:  # Once a verdict is settled, another evaluation alone does not count.
        differs = verdict.evaluation != last[1].evaluation and not state.settled(*last)
    if last is None or differs:
        if verdict.champion != state.expected_champion(verdict.subject):
            _require_champion(state.champion_other_than(model), verdict)
        floor = state.expected_floor(verdict.subject)
        if floor not in ("", verdict.floor) and verdict.subject.split:  # Of scores, nobody has those of the floor.
            raise StaleVerdictError(
                f"{model} was not judged against {floor}, the best champion so far, in {verdict.evaluation}. Judge it "
                "again: `evaluate` finds that one by model_name, or by the champion that `resolve` gives."
            )
        if not verdict.admits:
            return Record(kind="refused", verdict=verdict)
        number = version.version if version else len(state.versions) + 1
        return Record(kind="registered", version=number, verdict=verdict, lineage=lineage)
    if version is None or state.settled(*last):
        return None
    _require_champion(state.champion_other_than(model), last[1])
    if version.staged_at < last[0] and state.staging != version.version:
        return Record(kind="promoted", version=version.version, alias=STAGING)
    if last[1].approval == "automatic" and not last[1].waits_for_outcomes and not state.rejected(last[1]):
        return Record(kind="promoted", version=version.version, alias=CHAMPION)
    return None


def _require_champion(present: str, verdict: Verdict) -> None:
    if present != verdict.champion:
        raise StaleVerdictError(
            f"{verdict.subject.model} was judged against {verdict.champion or 'no champion'} in {verdict.evaluation}, "
            f"but it would replace {present or 'no champion'} now. Judge it against that one: "
            "the component `resolve` gives the champion, and its files to score with, to `evaluate`."
        )


def decision_on(state: State, verdict: Verdict, now: datetime) -> str:
    """The decision about a judged candidate, in words.

    `approved`, `awaiting approval`, `awaiting promotion` (by a person or a rollout; a needed approval is there),
    `rejected`,
    `refused`, `inconclusive`, `replaced` (it was champion before), `rolled back` or `archived`.
    """
    version = state.version_of(verdict.subject.model)
    if not verdict.admits or version is None:
        return "refused" if verdict.verdict == "pass" else verdict.verdict
    last = state.verdict_on(verdict.subject)
    settled = "replaced" if version.version in state.champions[:-1] else "approved"
    return version.ended or (settled if last and state.settled(*last) else standing(state, verdict, now))
