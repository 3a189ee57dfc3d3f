"""Exemptions: a person allows one candidate to break one rule until a day; the ledger records who and why."""

from collections.abc import Sequence
from datetime import date, datetime

from gatehouse.errors import GatehouseError
from gatehouse.evaluation.gate import Rule
from gatehouse.registry.approval import now
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
    """The request to allow a candidate to break a rule, which is named as in the verdict.

    `until` is the last valid day, in UTC. `by` is the person; empty for the user of this process.
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

    Raises ExemptionError if there is no reason, the day has passed, or the gate's last verdict on the candidate does
    not say that it breaks this rule.
    """
    if not request.reason.strip():
        raise ExemptionError("An exemption needs a reason: give --reason.")
    if request.until < now().date():
        raise ExemptionError(f"--until: expected today, {now().date()} in UTC, or later, found {request.until}.")
    ledgers = [Ledger(store, name) for name in model_names(store)]
    judged = ((ledger, last[1]) for ledger in ledgers if (last := ledger.state().last_verdict(request.model)))
    ledger, verdict = next(judged, (None, None))
    if ledger is None or verdict is None:
        raise ExemptionError(f"{request.model} was never judged by the gate. Run the training pipeline first.")
    broken = [rule.name for rule in rules_of(store, verdict.evaluation) if rule.refuses]
    if request.rule not in broken:
        raise ExemptionError(
            f"--rule: expected a rule that {request.model} breaks ({', '.join(broken) or 'none'}), found "
            f"{request.rule!r}."
        )
    by = request.by or whoami()
    exemption = Exemption(
        model=request.model,
        rule=request.rule,
        until=str(request.until),
        by=by,
        reason=request.reason,
        champion=verdict.champion if request.rule.split()[0] in _COMPARING else "",
    )
    record = Record(kind="exempted", exemption=exemption)
    ledger.extend(lambda state: None if exemption in state.exemptions else record, by)
    return ExemptResult(model_name=ledger.model_name, exemption=exemption)


def rules_of(store: ArtifactStore, evaluation: str) -> tuple[Rule, ...]:
    """The rules as an evaluation applied them."""
    return tuple(Rule(**rule) for rule in store.read_json(evaluation, "verdict.json")["rules"])


def exemptions_from(
    rules: Sequence[Rule], model: str, champion: str, state: State, moment: datetime
) -> tuple[Exemption, ...]:
    """The exemptions valid at a moment for rules that this model breaks; for each rule the last one given."""
    valid = {
        exemption.rule: exemption
        for exemption in state.exemptions
        if exemption.model == model and exemption.champion in ("", champion) and _is_valid(exemption, moment)
    }
    return tuple(valid[name] for name in sorted({rule.name for rule in rules if rule.refuses} & valid.keys()))


def why_not_exempted(rule: str, model: str, state: State, moment: datetime) -> str:
    """Why an exemption from a broken rule is not applied, in words; empty if there is no exemption."""
    exemptions = [exemption for exemption in reversed(state.exemptions) if exemption.rule == rule]
    if not exemptions:
        return ""
    last = next((exemption for exemption in exemptions if exemption.model == model), exemptions[0])
    if last.model != model:
        return f"; the exemption by {last.by} is for another candidate, {last.model}"
    if not _is_valid(last, moment):
        return f"; the exemption by {last.by} has expired, on {last.until}"
    return f"; the exemption by {last.by} is for another champion, {last.champion}"


def require_exemptions(name: str, verdict: Verdict, moment: datetime) -> None:
    """Raise ExemptionError if an exemption on which a verdict depends has expired."""
    for exemption in verdict.exempted:
        if not _is_valid(exemption, moment):
            raise ExemptionError(
                f"{name}: the exemption from {exemption.rule!r} by {exemption.by} expired on {exemption.until}. Exempt "
                "it again with `gatehouse models exempt`, and register it again."
            )


def _is_valid(exemption: Exemption, moment: datetime) -> bool:
    return date.fromisoformat(exemption.until) >= moment.date()
