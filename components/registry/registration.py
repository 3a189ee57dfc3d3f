"""Turns a verdict into a ledger record: a version with its aliases, or a refusal with its reasons."""

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.registry.ledger import CHAMPION, STAGING, Ledger, Record, State
from gatehouse.errors import GatehouseError


class StaleVerdictError(GatehouseError):
    """The champion changed since the candidate was compared with it."""


class UnknownVersionError(GatehouseError):
    """A version does not exist, or cannot be what was asked of it."""


def record_verdict(
    store: ArtifactStore, ledger: Ledger, model: str, evaluation: str, policy: str, automatic: bool, run: str
) -> Record:
    """Record what an evaluation decided about a model, once; returns the record that stands.

    Args:
        store: Holds the evaluation.
        ledger: The model's ledger.
        model: Identity of the candidate.
        evaluation: Identity of its evaluation.
        policy: Digest of the policy.
        automatic: Whether a passing candidate becomes champion at once, or waits in staging.
        run: Id of the run.

    Raises:
        StaleVerdictError: if the candidate passed against a champion that is not the champion any more.
    """
    judged = store.manifest(evaluation)
    if judged.derived_from["model"] != str(Reference.parse(model)):
        raise StaleVerdictError(f"{evaluation} judges {judged.derived_from['model']}, not {model}. Evaluate this model.")
    passed = judged.details["verdict"] == "pass"
    against = judged.derived_from.get("champion", "")

    def decide(records: list[Record], state: State) -> Record | None:
        if any(record.evaluation == evaluation for record in records):
            return None
        version = state.version_of(model)
        event, aliases, reasons = "refused", (), _reasons(store, evaluation)
        if passed:
            current = state.champion_other_than(model)
            if current != against:
                raise StaleVerdictError(
                    f"{model} was compared with {against or 'no champion'}, but the champion is now {current}. "
                    "Run the pipeline again: only the comparison is repeated."
                )
            event = "confirmed" if version else "registered"
            version = version or len(state.versions) + 1
            aliases, reasons = ((STAGING, CHAMPION) if automatic else (STAGING,)), ()
        return Record(
            event=event,
            version=version,
            model=model,
            evaluation=evaluation,
            judged_against=against,
            training_set=judged.derived_from["training_set"],
            split=judged.derived_from["split"],
            policy=policy,
            aliases=aliases,
            reasons=reasons,
            run=run,
        )

    written = ledger.append(decide)
    return written or next(record for record in reversed(ledger.records()) if record.evaluation == evaluation)


def _reasons(store: ArtifactStore, evaluation: str) -> tuple[str, ...]:
    rules = store.read_json(evaluation, "verdict.json")["rules"]
    return tuple(
        f"{rule['name']}: expected {rule['expected']}, found {rule['found']}" for rule in rules if not rule["holds"]
    )


def promote(ledger: Ledger, version: int, reason: str, run: str = "") -> Record | None:
    """Make a registered version champion; None where it is champion already.

    Raises:
        UnknownVersionError: if there is no such version.
    """

    def decide(_: list[Record], state: State) -> Record | None:
        if not 1 <= version <= len(state.versions):
            raise UnknownVersionError(
                f"{ledger.name} has no version {version}: expected one of 1 to {len(state.versions)}. See `gatehouse models list`."
            )
        if state.alias(CHAMPION) == version:
            return None
        return Record("promoted", version, state.versions[version - 1], aliases=(CHAMPION,), reasons=(reason,), run=run)

    return ledger.append(decide)


def roll_back(ledger: Ledger, reason: str, run: str = "") -> Record | None:
    """Give the champion's place back to the champion before it.

    Raises:
        UnknownVersionError: if there was no other champion before.
    """

    def decide(_: list[Record], state: State) -> Record | None:
        now = state.alias(CHAMPION)
        before = [version for version in state.champions if version != now]
        if not before:
            raise UnknownVersionError(f"{ledger.name} had no champion before version {now}: there is nothing to roll back to.")
        version = before[-1]
        return Record("rolled back", version, state.versions[version - 1], aliases=(CHAMPION,), reasons=(reason,), run=run)

    return ledger.append(decide)
