"""Promotion, rollback and archiving of registered versions, by a person or an approval pipeline."""

import posixpath
import re
from collections.abc import Mapping

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.registry.approving.approval import now, require_approval, require_other_eyes
from gatehouse.registry.exempting.exemption import require_exemptions
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.registering.evaluated import require_binding
from gatehouse.registry.state import ALIASES, CANARY, CHAMPION, SHADOW, ModelVersion, Record, StaleVerdictError, State
from gatehouse.reports.advice import advised
from gatehouse.store.records import whoami
from gatehouse.store.store import ArtifactStore


class PromotionError(GatehouseError):
    """A version cannot be promoted, rolled back or archived; the message says which can."""

    permanent = True


def promote(
    store: ArtifactStore,
    model_name: str,
    version: int,
    reason: str = "",
    override: bool = False,
    to: str = CHAMPION,
    by: str = "",
) -> State:
    """Give a version an alias, by default champion. A version that has the alias already keeps it.

    The version is verified again: the evaluation agrees with the ledger, the model's files are complete, and the
    exemptions on which the verdict depends are still valid. If the policy's approval is manual, a person's approval of
    the last verdict must be valid now. `shadow` and `staging` need no approval, because users do not get the model's
    answers.

    Args:
        store: The store that holds the ledger.
        model_name: Name under which models are registered.
        version: The version; 0 for the one in staging when this starts, even if another version takes its place later.
        reason: The person's reason, recorded in the ledger. A version that was rolled back needs one.
        override: Promote although the gate's last verdict was negative, or was about another champion, or there is no
            approval. Needs a reason; under `four_eyes` it must come from somebody who neither trained nor submitted the
            model.
        to: The alias.
        by: The person; empty for the user of this process.

    Raises:
        PromotionError: if there is no such version or alias; if it is archived, or was refused later; or if it was
            rolled back and there is no reason.
        StaleVerdictError: if it was judged against another champion than the present one.
        ExemptionError: if it passed by an exemption that has expired.
        ApprovalError: if the policy asks for an approval, and no valid one exists. WrongEvaluationError,
            MissingArtifactError, CorruptArtifactError: if the evaluation contradicts the ledger, or the model or
            evaluation is incomplete.
    """
    if override and not reason.strip():
        raise PromotionError("An override needs a reason: expected some words, found none. Give them with --reason.")
    ledger = Ledger(store, model_name)
    number = version or ledger.state().staging

    def decide(state: State) -> Record | None:
        record = next_promotion(state, model_name, number, reason, override, to)
        if record is not None:
            _require_sound(ledger, state, record, by or whoami())
        return record

    return ledger.extend(decide, by)


def next_promotion(
    state: State, model_name: str, version: int, reason: str, override: bool, to: str = CHAMPION
) -> Record | None:
    """The record that promotes `version`, or None if it has the alias already.

    It uses only the state: `promote` checks the approval and the evaluation with the clock and the store.

    Raises:
        PromotionError: as `promote`.
    """
    if to not in ALIASES:
        raise PromotionError(f"{model_name}: expected one of the aliases {', '.join(ALIASES)}, found {to!r}.")
    wanted = _version(state, model_name, version)
    if state.holder(to) == wanted.version:
        return None
    if wanted.archived:
        raise PromotionError(f"Version {wanted.version} of {model_name} is archived. {_choices(state)}")
    if state.champion == wanted.version and to in (SHADOW, CANARY):
        raise PromotionError(
            f"Version {wanted.version} of {model_name} is the champion: expected another version for {to}. Promote "
            "another version to champion first."
        )
    if wanted.withdrawn and not reason.strip():
        raise PromotionError(
            f"Version {wanted.version} of {model_name} was rolled back: expected a reason to promote it again, found "
            "none. Give --reason."
        )
    if not override:
        _require_verdict(state, model_name, wanted)
    return Record.model_validate(
        {"kind": "promoted", "version": wanted.version, "alias": to, "reason": reason, "override": override}
    )


def _require_sound(ledger: Ledger, state: State, record: Record, by: str) -> None:
    """Check a version to promote against the store and the clock: its evaluation, and the approval in its policy."""
    version = state.version(record.version)
    assert version is not None
    last = state.last_verdict(version.model)
    assert last is not None
    require_binding(ledger.store, last[1])
    if record.alias not in (CANARY, CHAMPION):
        return
    if record.override:
        require_other_eyes(ledger.store, ledger, version, last[1], by)
        return
    require_exemptions(f"{ledger.model_name}:{version.version}", last[1], now())
    if last[1].approval == "automatic":
        return
    given = require_approval(state, ledger.model_name, version, last[1], now())
    require_other_eyes(ledger.store, ledger, version, last[1], given.by)


def _require_verdict(state: State, model_name: str, version: ModelVersion) -> None:
    last = next(each for _, each in reversed(state.verdicts) if each.subject.model == version.model)
    if not last.admits:
        reasons = "".join(f"\n  - {reason}" for reason in advised(last.reasons))
        raise PromotionError(
            f"Version {version.version} of {model_name} was {last.verdict} when it was last judged "
            f"({last.evaluation}):{reasons}\nTo promote it nevertheless, give --override and a --reason."
        )
    present = state.champion_other_than(version.model)
    if last.champion != present:
        raise StaleVerdictError(
            f"Version {version.version} of {model_name} was judged against {last.champion or 'no champion'}, but "
            f"would replace {present or 'no champion'}. Run the training pipeline again to judge it against the "
            "present champion; or use rollback to return to the champion before; or promote with --override and "
            "a --reason."
        )


def rollback(store: ArtifactStore, model_name: str, version: int, reason: str = "", by: str = "") -> State:
    """Take `version` out of production and staging; a repeat changes nothing.

    If it is the champion, the previous champion returns; canary, shadow and staging just end.

    Args:
        store: The store that holds the ledger.
        model_name: Name under which models are registered.
        version: The version to withdraw; a retry with the same number changes nothing.
        reason: The person's reason, recorded in the ledger.
        by: The person; empty for the user of this process.

    Raises:
        PromotionError: if `version` has no alias, or is the first champion.
    """
    return Ledger(store, model_name).extend(lambda state: next_rollback(state, model_name, version, reason), by)


def next_rollback(state: State, model_name: str, version: int, reason: str) -> Record | None:
    """The record that withdraws `version`, or None if that is done.

    Raises:
        PromotionError: as `rollback`.
    """
    wanted = _version(state, model_name, version)
    if state.champion != wanted.version:
        if wanted.withdrawn:
            return None
        if state.aliases_of(wanted.version):
            return Record(kind="withdrawn", version=wanted.version, reason=reason)
        raise PromotionError(
            f"Version {wanted.version} of {model_name} is not the champion: expected version "
            f"{state.champion or 'none'}."
        )
    if len(state.champions) < 2:
        others = [each.version for each in state.versions if not each.archived and each.version != wanted.version]
        todo = (
            f"Promote another: `gatehouse models promote {model_name}:{others[-1]}`"
            if others
            else "Train another with `gatehouse run`, which becomes champion where the gate approves it; until then, "
            "stop what serves this one"
        )
        raise PromotionError(
            f"Version {wanted.version} is the first champion of {model_name}: there is none to return to. {todo}."
        )
    return Record(kind="rolled_back", version=state.champions[-2], alias=CHAMPION, reason=reason)


def archive(store: ArtifactStore, model_name: str, version: int, reason: str = "", by: str = "") -> State:
    """Archive a version: it is kept for the record and can no longer be promoted. A repeat changes nothing.

    Raises:
        PromotionError: if there is no such version, or it is the champion.
    """
    return Ledger(store, model_name).extend(lambda state: next_archiving(state, model_name, version, reason), by)


def next_archiving(state: State, model_name: str, version: int, reason: str) -> Record | None:
    """The record that archives `version`, or None if that is done.

    Raises:
        PromotionError: as `archive`.
    """
    wanted = _version(state, model_name, version)
    if wanted.archived:
        return None
    if state.champion == wanted.version:
        raise PromotionError(
            f"Version {wanted.version} is the champion of {model_name}: promote another version or roll back "
            "before archiving it."
        )
    return Record(kind="archived", version=wanted.version, reason=reason)


def tag(store: ArtifactStore, model_name: str, version: int, tags: Mapping[str, str], by: str = "") -> State:
    """Set tags of a version, by which it can be found; an empty value removes a tag.

    Raises:
        ConfigurationError: if MLflow does not accept a name.
        PromotionError: if there is no such version.
    """
    if wrong := [name for name in tags if not _is_tag(name)]:
        raise ConfigurationError(
            f"Tags of {model_name}: expected names of 1 to 250 letters, digits, spaces and any of _ . : / -, found "
            f"{', '.join(map(repr, wrong))}."
        )

    def decide(state: State) -> Record | None:
        wanted = _version(state, model_name, version)
        known = dict(wanted.tags)
        new = {name: value for name, value in tags.items() if known.get(name, "") != value}
        return Record(kind="tagged", version=version, tags=new) if new else None

    return Ledger(store, model_name).extend(decide, by)


def _is_tag(name: str) -> bool:
    """Whether MLflow, where the ledger is copied, accepts the name of a tag; it may become part of a path."""
    shortest = posixpath.normpath(name) == name and name != "." and not name.startswith(("..", "/"))
    return shortest and bool(name.strip()) and re.fullmatch(r"[\w./ :-]{1,250}", name) is not None


def _version(state: State, model_name: str, number: int) -> ModelVersion:
    version = state.version(number)
    if version is None:
        found = f"version {number}" if number else "no version in staging"
        raise PromotionError(f"{model_name}: expected a registered version, found {found}. {_choices(state)}")
    return version


def _choices(state: State) -> str:
    able = ", ".join(
        str(each.version) for each in state.versions if not each.archived and each.version != state.champion
    )
    return f"Versions that can be promoted: {able or 'none'}."
