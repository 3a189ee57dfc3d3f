"""The state of a registered model, computed from the ledger's records one by one."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gatehouse.errors import GatehouseError
from gatehouse.store.canonical import digest_of

STAGING, SHADOW, CANARY, CHAMPION = "staging", "shadow", "canary", "champion"
ALIASES = (STAGING, SHADOW, CANARY, CHAMPION)
"""The aliases that a version can have, from lowest to highest."""


class LedgerError(GatehouseError):
    """A record of a ledger cannot follow the records before it: it was altered, or two stores were mixed."""

    permanent = True


class StaleVerdictError(GatehouseError):
    """The champion changed after the candidate was judged: the verdict is about an earlier champion."""


class Subject(BaseModel):
    """The subject of a verdict: a candidate, the test set it was measured on, and the policy it was judged by."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    training_set: str
    split: str
    policy: str = Field(description="SHA-256 of what identifies the policy; rules that it does not name do not count.")


class Exemption(BaseModel):
    """Permission for one candidate to break one rule of the gate.

    Attributes:
        model: Identity of the candidate.
        rule: Name of the rule.
        until: The last valid day, in UTC, as `2013-01-15`.
        by, reason: Who gave it, and why.
        champion: For a rule that compares with the champion, that champion; empty for other rules.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    rule: str
    until: str
    by: str
    reason: str
    champion: str = ""

    def __str__(self) -> str:
        return f"exempted from {self.rule} until {self.until} by {self.by}: {self.reason}"


class Verdict(BaseModel):
    """The gate's verdict on a subject, compared with `champion` (empty if there was none).

    `exempted` lists the exemptions that were applied: rules that the candidate breaks and is allowed to break.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    subject: Subject
    champion: str
    evaluation: str
    verdict: Literal["pass", "refused", "inconclusive"]
    reasons: tuple[str, ...] = ()
    exempted: tuple[Exemption, ...] = ()
    approval: Literal["automatic", "manual"] = "automatic"
    approval_days: int = Field(7, description="How long an approval of it holds.")
    four_eyes: bool = Field(False, description="Who trained or submitted the candidate may not approve it.")
    kept_out: bool = Field(False, description="It is inconclusive, and the policy refuses what is.")

    @property
    def admits(self) -> bool:
        """Whether the candidate becomes a version: it passed, or it is inconclusive and a person decides."""
        asked = self.verdict == "inconclusive" and self.approval == "manual" and not self.kept_out
        return self.verdict == "pass" or asked

    @property
    def told(self) -> str:
        """The verdict in words, with the exemptions that were applied."""
        return "; ".join([self.verdict, *map(str, self.exempted)])

    @property
    def digest(self) -> str:
        """SHA-256 of all its content: this is what an approval signs.

        Defaults are left out, so a new field with a default leaves old digests as they are. A default never changes.
        """
        return digest_of(self.model_dump(mode="json", exclude_defaults=True))


class Approval(BaseModel):
    """A person's approval or rejection of one verdict.

    Attributes:
        verdict: Digest of the verdict; it does not apply to any other verdict.
        by: The person.
        until: End of the validity of an approval, in UTC as `2013-01-15T08:15:00Z`; empty for a rejection.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: str
    by: str
    until: str = ""


class Record(BaseModel):
    """One entry of a ledger.

    `verdict` and `lineage` are given for `registered`, `verdict` for `refused`, `alias` for `promoted`, `approval` for
    `approved` and `rejected`, `exemption` for `exempted`, `tags` for `tagged`. `version` is 0 for `refused` and
    `exempted`, and for `rolled_back` the version that becomes champion again. `provenance` (who, when, in which run)
    and `reason` (a person's words) have no effect on the state.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal[
        "registered",
        "refused",
        "approved",
        "rejected",
        "promoted",
        "withdrawn",
        "rolled_back",
        "archived",
        "tagged",
        "exempted",
    ]
    version: int = Field(0, ge=0)
    alias: Literal["", "staging", "shadow", "canary", "champion"] = ""
    verdict: Verdict | None = None
    approval: Approval | None = None
    exemption: Exemption | None = None
    tags: dict[str, str] = Field(default_factory=dict, description="An empty value removes a tag.")
    lineage: tuple[str, ...] = ()
    override: bool = False
    reason: str = ""
    provenance: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class ModelVersion:
    """One registered version.

    Attributes:
        version: Its number, from 1 without gaps.
        model: Identity of the model; each model has at most one version.
        evaluation: Identity of the evaluation that it was registered with.
        lineage: Identities of all artifacts that it was made from.
        registered_at, staged_at, promoted_at: Numbers of the last such records; 0 for never.
        withdrawn: A rollback took it out of production and staging; only a person can promote it again, with a reason.
        archived: It is kept for the record and cannot be promoted.
        tags: Tags that people set.
    """

    version: int
    model: str
    evaluation: str
    lineage: tuple[str, ...]
    registered_at: int
    staged_at: int = 0
    promoted_at: int = 0
    withdrawn: bool = False
    archived: bool = False
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def ended(self) -> str:
        """The version's end in words: archived or rolled back; empty for any other state."""
        return "archived" if self.archived else "rolled back" if self.withdrawn else ""


@dataclass(frozen=True)
class State:
    """The state after all records of a ledger.

    Attributes:
        size: Number of records.
        versions: Registered versions; version n is at index n - 1.
        verdicts: Number of the record and verdict, in order.
        staging, shadow, canary: The version with this alias; 0 for none.
        approvals: Records `approved` and `rejected`, in order.
        exemptions: All exemptions, in order, including expired ones.
        champions: The champion last, before it the champions to which a rollback can return. No version is listed
            twice.
    """

    size: int = 0
    versions: tuple[ModelVersion, ...] = ()
    verdicts: tuple[tuple[int, Verdict], ...] = ()
    staging: int = 0
    shadow: int = 0
    canary: int = 0
    approvals: tuple[Record, ...] = ()
    exemptions: tuple[Exemption, ...] = ()
    champions: tuple[int, ...] = ()

    @property
    def champion(self) -> int:
        """The version that is champion; 0 for none."""
        return self.champions[-1] if self.champions else 0

    def version(self, number: int) -> ModelVersion | None:
        """The version with this number, or None."""
        return self.versions[number - 1] if 0 < number <= len(self.versions) else None

    def version_of(self, model: str) -> ModelVersion | None:
        """The version that a model was registered as, or None."""
        return next((each for each in self.versions if each.model == model), None)

    def aliases_of(self, version: int) -> tuple[str, ...]:
        """The aliases of a version, in the order of `ALIASES`."""
        return tuple(alias for alias in ALIASES if version and self.holder(alias) == version)

    def holder(self, alias: str) -> int:
        """The version that holds an alias; 0 for none."""
        held: int = getattr(self, alias)
        return held

    def stage_of(self, version: ModelVersion) -> str:
        """The stage of a version: its highest alias, archived, rolled back, replaced (as champion), or candidate."""
        if version.ended or not (held := self.aliases_of(version.version)):
            return version.ended or ("replaced" if version.version in self.champions else "candidate")
        return held[-1]

    def last_verdict(self, model: str) -> tuple[int, Verdict] | None:
        """The last verdict on a model under any policy, with the number of its record; None for none."""
        return next((each for each in reversed(self.verdicts) if each[1].subject.model == model), None)

    def word_on(self, verdict: Verdict) -> Record | None:
        """The last approval or rejection of a verdict, or None."""
        return self.word_with(verdict.digest)

    def word_with(self, digest: str) -> Record | None:
        """The last approval or rejection of the verdict with this digest, or None."""
        words = (each for each in reversed(self.approvals) if each.approval and each.approval.verdict == digest)
        return next(words, None)

    def champion_other_than(self, model: str) -> str:
        """Identity of the newest champion that is not `model`; empty for none."""
        others = (self.versions[number - 1].model for number in reversed(self.champions))
        return next((other for other in others if other != model), "")

    def verdict_on(self, subject: Subject) -> tuple[int, Verdict] | None:
        """The last verdict on a subject with the number of its record, or None."""
        return next((each for each in reversed(self.verdicts) if each[1].subject == subject), None)

    def uses_before(self, number: int, subject: Subject) -> int:
        """How many other candidates were judged on the subject's test set before record `number`."""
        data = (subject.training_set, subject.split)
        earlier = (each.subject for at, each in self.verdicts if at < number)
        return len({each.model for each in earlier if (each.training_set, each.split) == data} - {subject.model})

    def settled(self, number: int, verdict: Verdict) -> bool:
        """Whether everything that follows from the verdict of record `number` has been done, or ruled out."""
        version = self.version_of(verdict.subject.model)
        if not verdict.admits or version is None:
            return True
        promoted = version.promoted_at > number or self.champion == version.version
        return promoted or version.withdrawn or version.archived

    def stands(self, number: int, verdict: Verdict) -> bool:
        """Whether judging again would change nothing: settled, or still against the present champion."""
        return self.settled(number, verdict) or verdict.champion == self.champion_other_than(verdict.subject.model)

    def expected_champion(self, subject: Subject) -> str:
        """Identity of the champion that the subject's candidate is judged against; empty for none.

        It is the champion other than the candidate. If a verdict on the subject is still current, it is that verdict's
        champion, so that judging again changes nothing.
        """
        last = self.verdict_on(subject)
        if last is not None and self.stands(*last):
            return last[1].champion
        return self.champion_other_than(subject.model)


def fold(records: Iterable[Record], state: State | None = None) -> State:
    """The state after `records`; a record that is already true only increases the size.

    Raises:
        LedgerError: at the first record that cannot follow those before it.
    """
    current = state or State()
    for record in records:
        current = replace(_APPLY[record.kind](current, record), size=current.size + 1)
    return current


def _registered(state: State, record: Record) -> State:
    verdict = _verdict(state, record, admits=True)
    model = verdict.subject.model
    known = state.version_of(model)
    if known and state.verdict_on(verdict.subject) == (known.registered_at, verdict):
        return state
    expected = known.version if known else len(state.versions) + 1
    if record.version != expected:
        raise _impossible(state, record, f"registers {model} as version {record.version}", f"version {expected}")
    number = state.size + 1
    if known:
        versions = _changed(state, replace(known, registered_at=number, evaluation=verdict.evaluation))
    else:
        new = ModelVersion(expected, model, verdict.evaluation, record.lineage, registered_at=number)
        versions = (*state.versions, new)
    return replace(state, versions=versions, verdicts=(*state.verdicts, (number, verdict)))


def _refused(state: State, record: Record) -> State:
    verdict = _verdict(state, record, admits=False)
    last = state.verdict_on(verdict.subject)
    if last is not None and last[1] == verdict:
        return state
    return replace(state, verdicts=(*state.verdicts, (state.size + 1, verdict)))


def _promoted(state: State, record: Record) -> State:
    version = _known(state, record)
    if version.archived:
        raise _impossible(state, record, f"promotes version {version.version}, which is archived", "another version")
    number = state.size + 1
    if record.alias in state.aliases_of(version.version):
        return state
    if record.alias == STAGING:
        return replace(state, staging=version.version, versions=_changed(state, replace(version, staged_at=number)))
    if not record.alias:
        raise _impossible(state, record, "promotes to no alias", f"one of {', '.join(ALIASES)}")
    if record.alias != CHAMPION:
        if version.version == state.champion:
            raise _impossible(state, record, f"makes the champion the {record.alias}", "another version")
        back = replace(version, withdrawn=False)
        placed: dict[str, Any] = {record.alias: version.version}
        return replace(state, **placed, versions=_changed(state, back))
    others = tuple(each for each in state.champions if each != version.version)
    changed = replace(version, promoted_at=number, withdrawn=False)
    risen = _without(state, {version.version}, SHADOW, CANARY)
    return replace(risen, champions=(*others, version.version), versions=_changed(state, changed))


def _withdrawn(state: State, record: Record) -> State:
    version = _known(state, record)
    if state.champion == version.version:
        raise _impossible(state, record, f"withdraws version {version.version}, the champion", "another version")
    changed = _changed(state, replace(version, withdrawn=True))
    champions = tuple(each for each in state.champions if each != version.version)
    return replace(_without(state, {version.version}, *_PLACES), champions=champions, versions=changed)


def _rolled_back(state: State, record: Record) -> State:
    target = _known(state, record).version
    if target not in state.champions:
        raise _impossible(state, record, f"returns to version {target}", f"a former champion among {state.champions}")
    kept = state.champions.index(target) + 1
    withdrawn = state.champions[kept:]
    versions = tuple(replace(each, withdrawn=True) if each.version in withdrawn else each for each in state.versions)
    cleared = _without(state, {*withdrawn, target}, SHADOW, CANARY)
    return replace(_without(cleared, {*withdrawn}, STAGING), champions=state.champions[:kept], versions=versions)


def _archived(state: State, record: Record) -> State:
    version = _known(state, record)
    if state.champion == version.version:
        raise _impossible(state, record, f"archives version {version.version}, the champion", "another version")
    return replace(
        _without(state, {version.version}, *_PLACES),
        champions=tuple(each for each in state.champions if each != version.version),
        versions=_changed(state, replace(version, archived=True)),
    )


def _judged_by_a_person(state: State, record: Record) -> State:
    version, given = _known(state, record), record.approval
    verdicts = {each.digest for _, each in state.verdicts if each.subject.model == version.model}
    if given is None or given.verdict not in verdicts:
        found = f"is about the verdict {given.verdict if given else 'none'}"
        raise _impossible(state, record, found, f"a verdict on version {version.version}")
    bare = record.model_copy(update={"provenance": {}})
    return state if state.word_with(given.verdict) == bare else replace(state, approvals=(*state.approvals, bare))


def _exempted(state: State, record: Record) -> State:
    given = record.exemption
    if given is None or state.last_verdict(given.model) is None:
        found = f"exempts {given.model if given else 'nothing'}"
        raise _impossible(state, record, found, "a candidate that was judged")
    return replace(state, exemptions=(*state.exemptions, given))


def _tagged(state: State, record: Record) -> State:
    version = _known(state, record)
    tags = {name: value for name, value in (dict(version.tags) | record.tags).items() if value}
    return replace(state, versions=_changed(state, replace(version, tags=tuple(sorted(tags.items())))))


_PLACES = (STAGING, SHADOW, CANARY)
_APPLY = {
    "registered": _registered,
    "refused": _refused,
    "approved": _judged_by_a_person,
    "rejected": _judged_by_a_person,
    "exempted": _exempted,
    "withdrawn": _withdrawn,
    "tagged": _tagged,
    "promoted": _promoted,
    "rolled_back": _rolled_back,
    "archived": _archived,
}


def _without(state: State, versions: Set[int], *aliases: str) -> State:
    """The state in which none of the versions holds any of the aliases."""
    cleared: dict[str, Any] = {alias: 0 for alias in aliases if state.holder(alias) in versions}
    return replace(state, **cleared)


def _changed(state: State, version: ModelVersion) -> tuple[ModelVersion, ...]:
    return tuple(version if each.version == version.version else each for each in state.versions)


def _known(state: State, record: Record) -> ModelVersion:
    version = state.version(record.version)
    if version is None:
        raise _impossible(state, record, f"names version {record.version}", f"one of {len(state.versions)} versions")
    return version


def _verdict(state: State, record: Record, *, admits: bool) -> Verdict:
    if record.verdict is None or record.verdict.admits != admits:
        found = record.verdict.verdict if record.verdict else "none"
        raise _impossible(state, record, f"has the verdict {found}", "pass" if admits else "refused or inconclusive")
    return record.verdict


def _impossible(state: State, record: Record, found: str, expected: str) -> LedgerError:
    return LedgerError(
        f"Record {state.size + 1} of the ledger ({record.kind}) {found}; expected {expected}. "
        "Restore the ledger from a copy."
    )
