"""Promotion, rollback and archiving of registered versions, by a person or an approval pipeline."""

import posixpath
import re
from collections.abc import Mapping

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.registry.approval import now, require_approval, require_exemptions, require_other_eyes
from gatehouse.registry.ledger import (
    ALIASES,
    CANARY,
    CHAMPION,
    SHADOW,
    STAGING,
    Ledger,
    ModelVersion,
    Record,
    StaleVerdictError,
    State,
    Verdict,
)
from gatehouse.registry.naming import UnknownVersionError
from gatehouse.registry.registration import WrongEvaluationError, require_binding
from gatehouse.reports.advice import advised
from gatehouse.store.records import whoami
from gatehouse.store.store import ArtifactStore


class PromotionError(GatehouseError):
    """A version cannot be promoted, rolled back or archived; the message says which can."""

    permanent = True


class LiveVerdictError(GatehouseError):
    """The policy asks for a live verdict of *promote*, and the last one is another one, or there is none."""


def promote(
    store: ArtifactStore,
    model_name: str,
    version: int,
    reason: str = "",
    override: bool = False,
    to: str = CHAMPION,
    by: str = "",
    share: float | None = None,
) -> State:
    """Give a version an alias, by default champion. A version that has the alias already keeps it.

    `share` is the share of the requests that a canary answers, by default `SHARE`; for the present canary, only its
    share changes. A canary's share may always become smaller, whatever holds of the version by now.

    The version is verified again: the evaluation agrees with the ledger, the model's files are complete, and the
    exemptions on which the verdict depends are still valid. If the policy's approval is manual, a person's approval of
    the last verdict must be valid now. `shadow` and `staging` need no approval, because users do not get the model's
    answers; a version whose last verdict a person rejected gets `staging` only. If the policy asks for live outcomes, a
    champion needs their verdict *promote*. Version 0 is the one in staging when this starts, even if another one takes
    its place later. A version that was rolled back needs a reason. With `override` it is promoted although the gate's
    last verdict was negative, or about another champion, or there is no approval or live verdict; this needs a reason,
    under `four_eyes` from somebody who neither trained nor submitted it.

    Raises PromotionError if the version cannot get the alias; StaleVerdictError if it was judged against another
    champion; ExemptionError, ApprovalError, LiveVerdictError if an exemption has expired, or an approval or live
    verdict is missing; WrongEvaluationError, MissingArtifactError, CorruptArtifactError if evaluation or model are not
    as in the ledger.
    """
    if override and not reason.strip():
        raise PromotionError("An override needs a reason: give --reason.")
    ledger = Ledger(store, model_name)
    number = version or ledger.state().staging
    return ledger.extend(lambda state: verified_promotion(ledger, state, number, reason, override, to, share, by), by)


def verified_promotion(
    ledger: Ledger,
    state: State,
    number: int,
    reason: str = "",
    override: bool = False,
    to: str = CHAMPION,
    share: float | None = None,
    by: str = "",
) -> Record | None:
    """The record that promotes a version, verified as `promote` says; None if it has the alias already."""
    store, model_name = ledger.store, ledger.model_name
    record = next_promotion(state, model_name, number, reason, override, to, share)
    if record is None or _only_lowers(state, record):
        return record
    chosen, verdict = _judged(state, model_name, number)
    require_binding(store, verdict)
    if override:
        require_other_eyes(store, ledger, chosen, verdict, by or whoami())
        return record
    answers = to in (CANARY, CHAMPION)
    if answers:
        require_exemptions(f"{model_name}:{number}", verdict, now())
    if (answers and verdict.approval == "manual") or (to != STAGING and state.rejected(verdict)):
        approval = require_approval(state, model_name, chosen, verdict, now())
        require_other_eyes(store, ledger, chosen, verdict, approval.by)
    if to == CHAMPION and verdict.waits_for_outcomes:
        require_live(store, state, model_name, chosen, verdict.champion)
    return record


def require_live(store: ArtifactStore, state: State, model_name: str, version: ModelVersion, champion: str) -> None:
    """Raise LiveVerdictError unless the last live verdict on a version beside the champion is *promote*.

    Raises WrongEvaluationError if its evaluation says something else; CorruptArtifactError if that is damaged.
    """
    name, last = f"{model_name}:{version.version}", state.last_live(version.model, champion)
    if last is None or last[1].verdict != "promote":
        present = f"{last[1].verdict}: {'; '.join(last[1].reasons)}" if last else "none"
        raise LiveVerdictError(
            f"{name}: the policy asks for the verdict promote on live outcomes beside {champion}, found {present}. "
            f"`gatehouse models rollout {model_name}` serves it to a share of the requests; or give --override and a "
            "--reason."
        )
    live, manifest = last[1], store.manifest(last[1].evaluation)
    recorded = (manifest.derived_from.get(CANARY), manifest.derived_from.get(CHAMPION), manifest.details.get("verdict"))
    if recorded != (live.canary, live.champion, live.verdict):
        raise WrongEvaluationError(
            f"{live.evaluation}: expected {live.verdict}, as in the ledger, found {recorded[2]}."
        )
    if problems := store.problems(live.evaluation):
        raise problems[0]


def next_promotion(
    state: State,
    model_name: str,
    version: int,
    reason: str,
    override: bool,
    to: str = CHAMPION,
    share: float | None = None,
) -> Record | None:
    """The record that promotes `version`, or None if it has the alias already; errors are those of `promote`.

    It uses only the state: `promote` checks the approval and the evaluation with the clock and the store.
    """
    if to not in ALIASES:
        raise PromotionError(f"{model_name}: expected one of the aliases {', '.join(ALIASES)}, found {to!r}.")
    if share is not None and (to != CANARY or not 0 <= share <= 1):
        raise PromotionError(
            f"{model_name}: expected a share from 0 to 1 for {CANARY} alone, found {share:g} for {to}."
        )
    chosen, verdict = _judged(state, model_name, version)
    name = f"{model_name}:{chosen.version}"
    record = Record.model_validate(
        {"kind": "promoted", "version": chosen.version, "alias": to, "reason": reason, "override": override}
        | ({} if share is None else {"share": share})
    )
    if state.holder(to) == chosen.version and share in (None, state.canary_share):
        return None
    if _only_lowers(state, record):
        return record
    if chosen.archived:
        raise PromotionError(f"{name} is archived. {_choices(state)}")
    if state.champion == chosen.version and to in (SHADOW, CANARY):
        raise PromotionError(f"{name} is the champion: expected another version for {to}.")
    if chosen.withdrawn and not reason.strip():
        raise PromotionError(f"{name} was rolled back: to promote it again needs a reason, give --reason.")
    present = state.champion_other_than(chosen.model)
    if not override and not verdict.admits:
        reasons = "".join(f"\n  - {reason}" for reason in advised(verdict.reasons))
        raise PromotionError(
            f"{name} was {verdict.verdict} when it was last judged ({verdict.evaluation}):{reasons}\nTo promote it "
            "nevertheless, give --override and a --reason."
        )
    if not override and verdict.champion != present:
        raise StaleVerdictError(
            f"{name} was judged against {verdict.champion or 'no champion'}, and the champion is now "
            f"{present or 'none'}. Run the training pipeline again, or give --override and a --reason."
        )
    return record


def _only_lowers(state: State, record: Record) -> bool:
    """Whether a record only lowers the share of the present canary."""
    return record.share is not None and record.version == state.canary and record.share < state.canary_share


def rollback(store: ArtifactStore, model_name: str, version: int, reason: str = "", by: str = "") -> State:
    """Take `version` out of production and staging; a repeat with the same number changes nothing.

    If it is the champion, the previous champion returns; canary, shadow and staging just end. Raises PromotionError if
    `version` has no alias, or is the first champion.
    """
    return Ledger(store, model_name).extend(lambda state: next_rollback(state, model_name, version, reason), by)


def next_rollback(state: State, model_name: str, version: int, reason: str) -> Record | None:
    """The record that withdraws `version`, or None if that is done; errors are those of `rollback`."""
    chosen = _version(state, model_name, version)
    if state.champion != chosen.version:
        if chosen.withdrawn:
            return None
        if state.aliases_of(chosen.version):
            return Record(kind="withdrawn", version=chosen.version, reason=reason)
        raise PromotionError(f"{model_name}:{version} is not the champion: expected {state.champion or 'none'}.")
    if len(state.champions) < 2:
        raise PromotionError(
            f"{model_name}:{version} is the first champion: there is none to return to. Promote another version "
            "(`gatehouse models list` shows them), or train one."
        )
    return Record(kind="rolled_back", version=state.champions[-2], alias=CHAMPION, reason=reason)


def archive(store: ArtifactStore, model_name: str, version: int, reason: str = "", by: str = "") -> State:
    """Archive a version, so that it cannot be promoted any more. Raises PromotionError for the champion."""
    return Ledger(store, model_name).extend(lambda state: next_archiving(state, model_name, version, reason), by)


def next_archiving(state: State, model_name: str, version: int, reason: str) -> Record | None:
    """The record that archives `version`, or None if that is done; errors are those of `archive`."""
    chosen = _version(state, model_name, version)
    if chosen.archived:
        return None
    if state.champion == chosen.version:
        raise PromotionError(f"{model_name}:{version} is the champion: promote another version or roll back first.")
    return Record(kind="archived", version=chosen.version, reason=reason)


def tag(store: ArtifactStore, model_name: str, version: int, tags: Mapping[str, str], by: str = "") -> State:
    """Set tags of a version, by which it can be found; an empty value removes a tag.

    Raises ConfigurationError if MLflow, where the ledger is copied, does not accept a name; PromotionError if there is
    no such version.
    """
    for name in tags:  # The name may become part of a path in MLflow.
        is_path = posixpath.normpath(name) == name and name != "." and not name.startswith(("..", "/"))
        if not (is_path and name.strip() and re.fullmatch(r"[\w./ :-]{1,250}", name)):
            raise ConfigurationError(
                f"tag {name!r} of {model_name}: expected a name of 1 to 250 letters, digits, spaces and _ . : / -."
            )

    def decide(state: State) -> Record | None:
        present = dict(_version(state, model_name, version).tags)
        new = {name: value for name, value in tags.items() if present.get(name, "") != value}
        return Record(kind="tagged", version=version, tags=new) if new else None

    return Ledger(store, model_name).extend(decide, by)


def _version(state: State, model_name: str, number: int) -> ModelVersion:
    version = state.version(number)
    if version is None:
        missing = f"version {number}" if number else "no number, and no version in staging"
        error = UnknownVersionError if number else PromotionError
        raise error(f"{model_name}: expected a registered version, found {missing}. {_choices(state)}")
    return version


def _judged(state: State, model_name: str, number: int) -> tuple[ModelVersion, Verdict]:
    version = _version(state, model_name, number)
    last = state.last_verdict(version.model)
    assert last is not None, "a version has the verdict that it was registered with"
    return version, last[1]


def _choices(state: State) -> str:
    able = (
        str(version.version) for version in state.versions if not version.archived and version.version != state.champion
    )
    return f"Versions that can be promoted: {', '.join(able) or 'none'}."
