"""Copies a version to the registry of another store, such as from staging to production, behind the gate there."""

from collections.abc import Callable

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.evaluation.stage import EvaluateRequest, evaluate
from gatehouse.registry.explanation import provenance_of
from gatehouse.registry.ledger import Counterpart, Ledger, Record
from gatehouse.registry.naming import VersionName
from gatehouse.registry.stage import RegisterRequest, RegisterResult, ResolveRequest, register, resolve
from gatehouse.store.identity import identity_of
from gatehouse.store.manifest import Manifest
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore
from gatehouse.store.transfer import Pulled, pull

_CHECKS = ("validation", "leakage", "split_checks", "integration")


class Copied(StageModel):
    """A version of a store and what the gate of another one made of it; `version` is 0 if it was not admitted.

    `copied` counts artifacts that the target lacked, of `artifacts`.
    """

    source: str
    target: str
    decision: str
    version: int
    reasons: tuple[str, ...]
    evaluation: str
    copied: int
    artifacts: int


def copy_version(
    name: VersionName,
    target: ArtifactStore,
    policy: GatePolicy | None = None,
    spec: EvaluationSpec | None = None,
    by: str = "",
    notify: Callable[[Pulled], None] | None = None,
) -> Copied:
    """Copy a version with all evidence to another store, and register it there.

    The evidence is what `verify`, `explain` and `reproduce` read: the model, its evaluation, everything that both were
    made from, with raw data and configuration, and their provenance, measurements and code records. All is created
    only once, so a repeat goes on where a killed copy stopped, and the version has a number of its own in the target.
    Both ledgers then name the record of the other one.

    Args:
        policy: That of the target; None for the one by which the version was judged last. If it is another one, or the
            target has another champion, the version is evaluated there anew.
        spec: What is measured then; None for what was measured before.

    Raises ConfigurationError if both stores are one; ErasedArtifactError if the version was erased; as `pull`,
    `evaluate` and `register` raise.
    """
    ledger, version, model_name = name.ledger, name.version, name.ledger.model_name
    source = ledger.store
    if target.address == source.address:
        raise ConfigurationError(f"--to: expected another store than {source.address}.")
    pulled: dict[Reference, Pulled] = {}
    for identity in (version.model, version.evaluation):
        _copy_evidence(source, identity, target, pulled, notify)
    recorded = source.manifest(version.evaluation)
    applied = policy or GatePolicy.model_validate(recorded.configuration["policy"])
    inputs = recorded.derived_from
    beside = resolve(ResolveRequest(model_name=model_name, candidate=version.model, policy=applied), target)
    evaluation = version.evaluation
    same = recorded.configuration["policy"] == identity_of(applied) and (spec is None or spec == _spec_of(recorded))
    if not same or (beside.champion, beside.floor) != (inputs.get("champion", ""), inputs.get("floor", "")):
        if "split" not in inputs:
            raise ConfigurationError(
                f"{model_name}:{version.version} was judged by scores, beside another champion or by another policy "
                f"than in {target.address}: judge its scores there with the component evaluate."
            )
        request = EvaluateRequest(
            model=version.model,
            champion=beside.champion,
            floor=beside.floor,
            split=inputs["split"],
            spec=spec or _spec_of(recorded),
            policy=applied,
            **{check: inputs.get(check, "") for check in _CHECKS},
        )
        evaluation = evaluate(request, target).evaluation
    result = register(RegisterRequest(model_name=model_name, model=version.model, evaluation=evaluation, by=by), target)
    if result.version:
        _note(ledger, version.version, Ledger(target, model_name), result, by)
    return Copied(
        source=f"{model_name}:{version.version} of {source.address}",
        target=f"{model_name}:{result.version} of {target.address}" if result.version else target.address,
        decision=result.decision,
        version=result.version,
        reasons=result.reasons,
        evaluation=evaluation,
        copied=sum(item.state == "copied" for item in pulled.values()),
        artifacts=len(pulled),
    )


def _spec_of(evaluation: Manifest) -> EvaluationSpec:
    return EvaluationSpec.model_validate(evaluation.configuration["spec"])


def _copy_evidence(
    source: ArtifactStore,
    identity: str,
    target: ArtifactStore,
    pulled: dict[Reference, Pulled],
    notify: Callable[[Pulled], None] | None,
) -> None:
    """Copy an artifact, what it was made from, and what the requests for it name, with the records beside them."""
    pending = [identity]
    while pending:
        reference = Reference.parse(pending.pop())
        if reference in pulled:
            continue
        for item in pull(source, reference, target):
            if item.reference in pulled:
                continue
            pulled[item.reference] = item
            if notify:
                notify(item)
            made = provenance_of(source, item.reference)
            records = [f"code/{made['code']}.json"] if made.get("code") else []
            for folder in ("provenance", "measurements"):
                records += source.objects.list(f"{folder}/{item.reference}")
            for key in records:
                if source.objects.stat(key) is not None:
                    target.objects.put_bytes(key, source.objects.get_bytes(key))
            pending += map(str, filter(source.exists, references_in(made.get("request") or {})))


def _note(ledger: Ledger, number: int, other: Ledger, result: RegisterResult, by: str) -> None:
    """Let both ledgers name the record of the other one, the target's first; a repeat writes what is missing."""
    version = ledger.state().versions[number - 1]
    origin = ledger.counterpart("from", number, version.registered_at)
    there = _noted(other, result.version, origin, by)
    _noted(ledger, number, other.counterpart("to", result.version, there), by)


def _noted(ledger: Ledger, number: int, counterpart: Counterpart, by: str) -> int:
    """The number of the record that names a counterpart, which is appended if there is none."""
    record = Record(kind="copied", version=number, counterpart=counterpart)

    def place() -> int:
        pairs = [(record.version, record.counterpart) for record in ledger.records()]
        return pairs.index((number, counterpart)) + 1 if (number, counterpart) in pairs else 0

    ledger.extend(lambda _: None if place() else record, by)
    return place()
