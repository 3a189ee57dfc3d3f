"""Exemptions: a person allows one candidate to break one rule until a day; the ledger records who and why."""

from collections.abc import Sequence
from datetime import date, datetime

from gatehouse.errors import GatehouseError
from gatehouse.evaluation.gate import Rule
from gatehouse.registry.approving.approval import now
from gatehouse.registry.ledger import Ledger, model_names
from gatehouse.registry.state import Exemption, Record, State, Verdict
from gatehouse.store.records import whoami
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

_COMPARING = {"champion", "improvement", "regression", "regressions"}
"""Prefixes of the rules that compare with the champion."""


class ExemptionError(GatehouseError):
    """An exemption cannot be given, or a version passed by an exemption that has expired."""


class ExemptRequest(StageModel):
    """The request to allow a candidate to break a rule.

    Attributes:
        model: Reference of the candidate.
        rule: Name of the rule, as the verdict gives it.
        until: The last valid day, in UTC, such as 2026-12-31.
        reason: The person's reason.
        by: The person; empty for the user of this process.
    """

    model: str
    rule: str
    until: date
    reason: str
    by: str = ""


class ExemptResult(StageModel):
    """The model name in whose ledger the candidate is judged, and the recorded exemption."""

    model_name: str
    exemption: Exemption


def exempt(request: ExemptRequest, store: ArtifactStore) -> ExemptResult:
    """Record an exemption in the ledger; it applies at registration, and is checked again at promotion.

    Raises:
        ExemptionError: if there is no reason, the day has passed, or the gate's last verdict on the candidate does not
            say that it breaks this rule.
    """
    if not request.reason.strip():
        raise ExemptionError("An exemption needs a reason: expected some words, found none. Give --reason.")
    if request.until < now().date():
        raise ExemptionError(f"--until: expected today, {now().date()} in UTC, or later, found {request.until}.")
    ledger, verdict = _judged(store, request.model)
    broken = [rule.name for rule in rules_of(store, verdict.evaluation) if rule.refuses]
    if request.rule not in broken:
        raise ExemptionError(
            f"--rule: expected one of the rules that {request.model} breaks ({', '.join(broken) or 'none'}; "
            f"{verdict.evaluation}), found {request.rule!r}."
        )
    by = request.by or whoami()
    given = Exemption(
        model=verdict.subject.model,
        rule=request.rule,
        until=str(request.until),
        by=by,
        reason=request.reason,
        champion=verdict.champion if request.rule.split()[0] in _COMPARING else "",
    )
    record = Record(kind="exempted", exemption=given)
    ledger.extend(lambda state: None if given in state.exemptions else record, by)
    return ExemptResult(model_name=ledger.model_name, exemption=given)


def rules_of(store: ArtifactStore, evaluation: str) -> tuple[Rule, ...]:
    """The rules as an evaluation applied them."""
    return tuple(Rule(**rule) for rule in store.read_json(evaluation, "verdict.json")["rules"])


def lifting(rules: Sequence[Rule], model: str, champion: str, state: State, moment: datetime) -> tuple[Exemption, ...]:
    """The exemptions valid at a moment for rules that this model breaks; for each rule the last one given."""
    broken = {rule.name for rule in rules if rule.refuses}
    own = (each for each in state.exemptions if each.model == model and each.champion in ("", champion))
    held = {each.rule: each for each in own if _holds(each, moment)}
    return tuple(held[name] for name in sorted(broken & held.keys()))


def not_lifting(rule: str, model: str, state: State, moment: datetime) -> str:
    """Why an exemption from a broken rule is not applied, in words; empty if there is no exemption."""
    for each in reversed(state.exemptions):
        if each.rule == rule and each.model == model:
            if not _holds(each, moment):
                return f"; the exemption by {each.by} has expired, on {each.until}"
            return f"; the exemption by {each.by} is for another champion, {each.champion}"
    others = [each for each in state.exemptions if each.rule == rule and each.model != model]
    return f"; the exemption by {others[-1].by} is for another candidate, {others[-1].model}" if others else ""


def require_exemptions(name: str, verdict: Verdict, moment: datetime) -> None:
    """Check that the exemptions on which a verdict depends are still valid; a later one makes another verdict.

    Raises:
        ExemptionError: if one of them has expired.
    """
    for each in verdict.exempted:
        if not _holds(each, moment):
            raise ExemptionError(
                f"{name}: expected an exemption from the rule {each.rule!r} that is valid today, {moment.date()}; the "
                f"one by {each.by} expired on {each.until}. Exempt it again with `gatehouse models exempt {name} "
                f'--rule "{each.rule}" --until DAY --reason "…"`, unless somebody has done so, and register it again '
                "with `gatehouse run`; or train another candidate."
            )


def _holds(exemption: Exemption, moment: datetime) -> bool:
    return date.fromisoformat(exemption.until) >= moment.date()


def _judged(store: ArtifactStore, model: str) -> tuple[Ledger, Verdict]:
    for name in model_names(store):
        ledger = Ledger(store, name)
        if (last := ledger.state().last_verdict(model)) is not None:
            return ledger, last[1]
    raise ExemptionError(
        f"{model}: expected a candidate that the gate has judged, found no verdict on it in the ledgers of "
        f"{', '.join(model_names(store)) or 'no model'}. Run the training pipeline first."
    )
