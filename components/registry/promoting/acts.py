"""Promotion, rollback and archiving of registered versions: what a person, or an approval pipeline, does."""

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.registry.ledger import Ledger
from gatehouse.components.registry.state import CHAMPION, ModelVersion, Record, StaleVerdictError, State
from gatehouse.errors import GatehouseError


class PromotionError(GatehouseError):
    """A version cannot be promoted, rolled back or archived; the message says which can."""

    permanent = True


def promote(store: ArtifactStore, model_name: str, version: int, reason: str = "", override: bool = False) -> State:
    """Make a version the champion. A version that is champion already stays so.

    Args:
        store: The store that holds the ledger.
        model_name: Name under which models are registered.
        version: The version; 0 for the one in staging.
        reason: Why, in a person's words; goes into the ledger. A version that was rolled back needs one.
        override: Promote although the gate's last word was no, or was about another champion. Needs a reason.

    Raises:
        PromotionError: if there is no such version, or it is archived, or refused since, or it was rolled back and
            there is no reason.
        StaleVerdictError: if it was judged against another champion than the present one.
    """
    if override and not reason.strip():
        raise PromotionError("An override needs a reason: expected some words, found none. Give them with --reason.")
    return Ledger(store, model_name).extend(lambda state: next_promotion(state, model_name, version, reason, override))


def next_promotion(state: State, model_name: str, version: int, reason: str, override: bool) -> Record | None:
    """The record that promotes `version`, or None where it is champion; raises as `promote` does."""
    wanted = _version(state, model_name, version or state.staging)
    if state.champion == wanted.version:
        return None
    if wanted.archived:
        raise PromotionError(f"Version {wanted.version} of {model_name} is archived. {_choices(state)}")
    if wanted.withdrawn and not (version and reason.strip()):
        raise PromotionError(
            f"Version {wanted.version} of {model_name} was rolled back: expected its number and a reason to promote it "
            f"again, found {'no reason' if version else 'no number'}. Give --reason with what makes it right now."
        )
    if not override:
        _require_verdict(state, model_name, wanted)
    return Record(kind="promoted", version=wanted.version, alias=CHAMPION, reason=reason, override=override)


def _require_verdict(state: State, model_name: str, version: ModelVersion) -> None:
    last = next(each for _, each in reversed(state.verdicts) if each.subject.model == version.model)
    if last.verdict == "refused":
        reasons = "".join(f"\n  - {reason}" for reason in last.reasons)
        raise PromotionError(
            f"Version {version.version} of {model_name} was refused when it was last judged "
            f"({last.evaluation}):{reasons}\n"
            "Promote it all the same with --override and a --reason."
        )
    present = state.champion_other_than(version.model)
    if last.champion != present:
        raise StaleVerdictError(
            f"Version {version.version} of {model_name} was judged against {last.champion or 'no champion'}, but "
            f"would replace {present or 'no champion'}. Run the training pipeline again to judge it against the "
            "present champion; or use rollback to return to the champion before; or promote with --override and "
            "a --reason."
        )


def rollback(store: ArtifactStore, model_name: str, version: int, reason: str = "") -> State:
    """Take `version` out of production and of staging, and return to the champion before it; a repeat changes nothing.

    Args:
        store: The store that holds the ledger.
        model_name: Name under which models are registered.
        version: The champion to withdraw; naming it makes a retry harmless.
        reason: Why, in a person's words; goes into the ledger.

    Raises:
        PromotionError: if `version` is not the champion, or there was none before it.
    """
    return Ledger(store, model_name).extend(lambda state: next_rollback(state, model_name, version, reason))


def next_rollback(state: State, model_name: str, version: int, reason: str) -> Record | None:
    """The record that withdraws `version`, or None where that is done; raises as `rollback` does."""
    wanted = _version(state, model_name, version)
    if state.champion != wanted.version:
        if wanted.withdrawn:
            return None
        raise PromotionError(
            f"Version {wanted.version} of {model_name} is not the champion: expected version "
            f"{state.champion or 'none'}."
        )
    if len(state.champions) < 2:
        raise PromotionError(
            f"Version {wanted.version} is the first champion of {model_name}: there is none to return to. "
            f"{_choices(state)}"
        )
    return Record(kind="rolled_back", version=state.champions[-2], alias=CHAMPION, reason=reason)


def archive(store: ArtifactStore, model_name: str, version: int, reason: str = "") -> State:
    """Archive a version: it is kept for the record and cannot be promoted any more. A repeat changes nothing.

    Raises:
        PromotionError: if there is no such version, or it is the champion.
    """
    return Ledger(store, model_name).extend(lambda state: next_archiving(state, model_name, version, reason))


def next_archiving(state: State, model_name: str, version: int, reason: str) -> Record | None:
    """The record that archives `version`, or None where that is done; raises as `archive` does."""
    wanted = _version(state, model_name, version)
    if wanted.archived:
        return None
    if state.champion == wanted.version:
        raise PromotionError(
            f"Version {wanted.version} is the champion of {model_name}: promote another version or roll back "
            "before archiving it."
        )
    return Record(kind="archived", version=wanted.version, reason=reason)


def _version(state: State, model_name: str, number: int) -> ModelVersion:
    version = state.version(number)
    if version is None:
        found = f"version {number}" if number else "no version in staging"
        raise PromotionError(f"{model_name}: expected a registered version, found {found}. {_choices(state)}")
    return version


def _choices(state: State) -> str:
    able = ", ".join(str(each.version) for each in state.versions if not each.archived)
    return f"Versions that can be promoted: {able or 'none'}."
