"""The promotion ledger: numbered records that are created only once and decide which version is champion.

A record is `<store>/registry/<model>/ledger/<n>.json`, n from 1 without gaps. It is decided on the state after all
earlier records, and created under the next number; if another writer took that number first, it is decided again. So
two writers never contradict each other, and a killed writer leaves no partial record. `heads/<n>-<digest>` beside them
repeats the digest of each record, so that a last record which is gone, or is another one, is noticed.
"""

import json
import logging
import os
import unicodedata
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gatehouse.errors import ConfigurationError, GatehouseError, StoreError
from gatehouse.store.canonical import canonical_json, digest_of
from gatehouse.store.objects.base import side_by_side
from gatehouse.store.records import author, whoami
from gatehouse.store.run import RUN_ID
from gatehouse.store.stage import Effects
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

STAGING, SHADOW, CANARY, CHAMPION = "staging", "shadow", "canary", "champion"
ALIASES = (STAGING, SHADOW, CANARY, CHAMPION)
"""The aliases that a version can have, from lowest to highest."""
SHARE = 0.05
"""The share of the requests that a canary answers if no other is named."""


class LedgerError(GatehouseError):
    """A record of a ledger cannot follow the records before it: it was altered, or two stores were mixed."""

    permanent = True


class StaleVerdictError(GatehouseError):
    """The champion changed after the candidate was judged: the verdict is about an earlier champion."""


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class VerdictSubject(_Entry):
    """The subject of a verdict: a candidate, the test set it was measured on, and the policy it was judged by."""

    model: str
    training_set: str
    split: str
    policy: str = Field(description="SHA-256 of what identifies the policy; rules that it does not name do not count.")


class Exemption(_Entry):
    """Permission of a person for one candidate to break one rule of the gate.

    `until` is the last valid day, in UTC, as `2013-01-15`. A rule that compares with the champion is exempted for
    `champion` alone, which is empty for other rules.
    """

    model: str
    rule: str
    until: str
    by: str
    reason: str
    champion: str = ""

    def __str__(self) -> str:
        return f"exempted from {self.rule} until {self.until} by {self.by}: {self.reason}"


class Verdict(_Entry):
    """The gate's verdict on a subject, compared with `champion` (empty if there was none).

    `exempted` lists the exemptions that were applied: rules that the candidate breaks and is allowed to break. `floor`
    is the best champion so far, with which it was compared too; empty if that is `champion`.
    """

    subject: VerdictSubject
    champion: str
    evaluation: str
    verdict: Literal["pass", "refused", "inconclusive"]
    reasons: tuple[str, ...] = ()
    exempted: tuple[Exemption, ...] = ()
    approval: Literal["automatic", "manual"] = "automatic"
    approval_days: int = Field(7, description="How long an approval of it holds.")
    four_eyes: bool = Field(False, description="Who trained or submitted the candidate may not approve it.")
    kept_out: bool = Field(False, description="It is inconclusive, and the policy refuses what is.")
    floor: str = ""
    below: bool = Field(False, description="On the test rows it is worse than the floor, however little.")
    live_required: bool = Field(False, description="The policy asks for a live verdict before it becomes champion.")
    alignment: Literal["", "refused", "inconclusive"] = Field("", description="By the ledger's rule, if that refuses.")

    @property
    def admits(self) -> bool:
        """Whether the candidate becomes a version: it passed, or it is inconclusive and a person decides."""
        awaits_approval = self.verdict == "inconclusive" and self.approval == "manual" and not self.kept_out
        return self.verdict == "pass" or awaits_approval

    @property
    def waits_for_outcomes(self) -> bool:
        """Whether it becomes champion by a live verdict only; without a champion there is nothing to compare with."""
        return self.live_required and bool(self.champion)

    @property
    def summary(self) -> str:
        """The verdict in words, with the exemptions that were applied."""
        return "; ".join([self.verdict, *map(str, self.exempted)])

    @property
    def digest(self) -> str:
        """SHA-256 of all its content: this is what an approval signs.

        Defaults are left out, so a new field with a default leaves old digests as they are. A default never changes.
        """
        return digest_of(self.model_dump(mode="json", exclude_defaults=True))

    @property
    def short(self) -> str:
        """The digest as a person gives it."""
        return f"sha256-{self.digest[:12]}"


class LiveVerdict(_Entry):
    """The verdict of an evaluation on live outcomes: on a canary beside a champion, both named by their models."""

    champion: str
    canary: str
    evaluation: str
    rules: str = Field(description="SHA-256 of the section `live` of the policy.")
    verdict: Literal["promote", "go on", "back"]
    reasons: tuple[str, ...] = ()
    outcomes: int = Field(0, description="Keys of the canary with an outcome, in what has fewest.")
    since: int = Field(0, description="The record that gave the canary the share at which this was measured.")

    @property
    def short(self) -> str:
        """The digest of all its content, as a person gives it."""
        return f"sha256-{digest_of(self.model_dump(mode='json'))[:12]}"


class Approval(_Entry):
    """A person's approval or rejection of the verdict with this digest.

    `until` is when an approval expires, in UTC as `2013-01-15T08:15:00Z`; empty for a rejection.
    """

    verdict: str
    by: str
    until: str = ""


class Counterpart(_Entry):
    """The record of another store's ledger from which, or to which, a version was copied, and its version there."""

    direction: Literal["from", "to"]
    store: str
    version: int
    record: int
    digest: str


class Record(_Entry):
    """One entry of a ledger.

    `verdict` and `lineage` are given for `registered`, `verdict` for `refused`, `alias` for `promoted`, `approval` for
    `approved` and `rejected`, `exemption` for `exempted`, `tags` for `tagged`, `live` for `compared`,
    `counterpart` for `copied`. `share` is the share of the requests that a canary answers; None for its present one, or
    `SHARE`. `version` is 0 for `refused` and `exempted`, and for `rolled_back` the version that becomes champion again.
    `provenance` (who, when, in which run) and `reason` (a person's words) have no effect on the state.
    """

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
        "compared",
        "copied",
    ]
    version: int = Field(0, ge=0)
    alias: Literal["", "staging", "shadow", "canary", "champion"] = ""
    share: float | None = Field(None, ge=0.0, le=1.0)
    verdict: Verdict | None = None
    approval: Approval | None = None
    exemption: Exemption | None = None
    live: LiveVerdict | None = None
    counterpart: Counterpart | None = None
    tags: dict[str, str] = Field(default_factory=dict, description="An empty value removes a tag.")
    lineage: tuple[str, ...] = ()
    override: bool = False
    reason: str = ""
    provenance: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class ModelVersion:
    """One registered version; numbers run from 1 without gaps, and each model has at most one.

    `registered_at`, `staged_at` and `promoted_at` are the numbers of the last such records; 0 for never. A withdrawn
    version was rolled back: a person can promote it again, with a reason. An archived one cannot be promoted. `floor`
    is the best champion when it became champion itself, which is its own model if the gate did not measure it as worse,
    or if a person took the decision.
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
    floor: str = ""
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def ended(self) -> str:
        """`archived`, `rolled back`, or empty for any other state."""
        return "archived" if self.archived else "rolled back" if self.withdrawn else ""


@dataclass(frozen=True)
class State:
    """The state after all records of a ledger, of which there are `size`.

    Version n is at index n - 1 of `versions`. `verdicts` are pairs of the record's number and the verdict, `approvals`
    the records `approved` and `rejected`; `live` are pairs as `verdicts`, of live verdicts. `staging`, `shadow` and
    `canary` are versions; 0 for none. `canary_share` is the share of the requests that the canary answers, since record
    `canary_at`. `champions` holds the champion last, before it the champions to
    which a rollback can return; no version is listed twice.
    """

    size: int = 0
    versions: tuple[ModelVersion, ...] = ()
    verdicts: tuple[tuple[int, Verdict], ...] = ()
    staging: int = 0
    shadow: int = 0
    canary: int = 0
    canary_share: float = 0.0
    canary_at: int = 0
    live: tuple[tuple[int, LiveVerdict], ...] = ()
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
        return next((version for version in self.versions if version.model == model), None)

    def aliases_of(self, version: int) -> tuple[str, ...]:
        """The aliases of a version, in the order of `ALIASES`."""
        return tuple(alias for alias in ALIASES if version and self.holder(alias) == version)

    def holder(self, alias: str) -> int:
        """The version that holds an alias; 0 for none."""
        return int(getattr(self, alias))

    def stage_of(self, version: ModelVersion) -> str:
        """The stage of a version: its highest alias, archived, rolled back, replaced (as champion), or candidate."""
        if version.ended or not (aliases := self.aliases_of(version.version)):
            return version.ended or ("replaced" if version.version in self.champions else "candidate")
        return aliases[-1]

    def verdict_on(self, subject: VerdictSubject) -> tuple[int, Verdict] | None:
        """The last verdict on a subject with the number of its record, or None."""
        return next((entry for entry in reversed(self.verdicts) if entry[1].subject == subject), None)

    def last_verdict(self, model: str) -> tuple[int, Verdict] | None:
        """The last verdict on a model under any policy with the number of its record, or None."""
        return next((entry for entry in reversed(self.verdicts) if entry[1].subject.model == model), None)

    def last_live(self, canary: str, champion: str, before: int | None = None) -> tuple[int, LiveVerdict] | None:
        """The last live verdict on two models, perhaps before a record, with the number of its record, or None."""
        return next(
            (
                (at, live)
                for at, live in reversed(self.live)
                if (live.canary, live.champion) == (canary, champion) and (before is None or at < before)
            ),
            None,
        )

    def rejected(self, verdict: Verdict) -> bool:
        """Whether the last signature on a verdict rejects it."""
        signature = self.signature_on(verdict.digest)
        return signature is not None and signature.kind == "rejected"

    def signature_on(self, digest: str) -> Record | None:
        """The last approval or rejection of the verdict with this digest, or None."""
        signed = (
            record for record in reversed(self.approvals) if record.approval and record.approval.verdict == digest
        )
        return next(signed, None)

    def champion_other_than(self, model: str) -> str:
        """Identity of the newest champion that is not `model`; empty for none."""
        models = (self.versions[number - 1].model for number in reversed(self.champions))
        return next((champion for champion in models if champion != model), "")

    def floor_other_than(self, model: str) -> str:
        """Identity of the best champion so far if it is neither the champion to compare with nor `model`; else empty.

        A version that a person rolled back or archived is no floor.
        """
        champion = self.version(self.champion)
        best = self.version_of(champion.floor) if champion else None
        if best is None or best.ended or best.model in (model, self.champion_other_than(model)):
            return ""
        return best.model

    def uses_before(self, number: int, subject: VerdictSubject) -> int:
        """How many other candidates were judged on the subject's test set before record `number`."""
        data = (subject.training_set, subject.split)
        earlier = (verdict.subject for at, verdict in self.verdicts if at < number)
        return len({other.model for other in earlier if (other.training_set, other.split) == data} - {subject.model})

    def settled(self, number: int, verdict: Verdict) -> bool:
        """Whether everything that follows from the verdict of record `number` has been done, or ruled out."""
        version = self.version_of(verdict.subject.model)
        if not verdict.admits or version is None:
            return True
        promoted = version.promoted_at > number or self.champion == version.version
        return promoted or version.withdrawn or version.archived

    def expected_champion(self, subject: VerdictSubject) -> str:
        """Identity of the champion that the subject's candidate is judged against; empty for none.

        It is the champion other than the candidate. If a verdict on the subject is settled, it is that verdict's
        champion, so that judging again changes nothing.
        """
        last = self.verdict_on(subject)
        return last[1].champion if last and self.settled(*last) else self.champion_other_than(subject.model)

    def expected_floor(self, subject: VerdictSubject) -> str:
        """Identity of the floor that the subject's candidate is judged against, as `expected_champion`."""
        last = self.verdict_on(subject)
        if not last or not self.settled(*last):
            return self.floor_other_than(subject.model)
        floor = self.version_of(last[1].floor)
        return floor.model if floor and not floor.ended else ""


def fold(records: Iterable[Record], state: State | None = None) -> State:
    """The state after `records`; a record that is true already adds to the size only. Raises LedgerError."""
    current = state or State()
    for record in records:
        current = replace(_apply(current, record), size=current.size + 1)
    return current


def _apply(state: State, record: Record) -> State:
    number, verdict, exemption = state.size + 1, record.verdict, record.exemption

    def impossible(reason: str) -> LedgerError:
        return LedgerError(
            f"Record {number} of the ledger ({record.kind}) is impossible: {reason}. Restore the ledger from a copy."
        )

    if record.kind in ("registered", "refused"):
        if verdict is None or verdict.admits != (record.kind == "registered"):
            raise impossible(f"its verdict is {verdict.verdict if verdict else 'missing'}")
        last = state.verdict_on(verdict.subject)
        if record.kind == "refused":
            repeated = last is not None and last[1] == verdict
            return state if repeated else replace(state, verdicts=(*state.verdicts, (number, verdict)))
        model = verdict.subject.model
        earlier = state.version_of(model)
        if earlier and last == (earlier.registered_at, verdict):
            return state
        expected = earlier.version if earlier else len(state.versions) + 1
        if record.version != expected:
            raise impossible(f"expected version {expected}, found {record.version}")
        if earlier:
            versions = _changed(state, replace(earlier, registered_at=number, evaluation=verdict.evaluation))
        else:
            new = ModelVersion(expected, model, verdict.evaluation, record.lineage, registered_at=number)
            versions = (*state.versions, new)
        return replace(state, versions=versions, verdicts=(*state.verdicts, (number, verdict)))

    if record.kind == "exempted":
        if exemption is None or state.last_verdict(exemption.model) is None:
            raise impossible("it exempts no candidate that was judged")
        return replace(state, exemptions=(*state.exemptions, exemption))

    version = state.version(record.version)
    if version is None:
        raise impossible(f"there is no version {record.version}")
    is_champion = version.version == state.champion

    if record.kind in ("approved", "rejected"):
        digests = {entry.digest for _, entry in state.verdicts if entry.subject.model == version.model}
        if record.approval is None or record.approval.verdict not in digests:
            raise impossible(f"it signs no verdict on version {version.version}")
        bare = record.model_copy(update={"provenance": {}})
        if state.signature_on(record.approval.verdict) == bare:
            return state
        ends = {version.version} if record.kind == "rejected" else set[int]()
        return replace(_without(state, ends, SHADOW, CANARY), approvals=(*state.approvals, bare))

    if record.kind == "compared":
        if record.live is None or record.live.canary != version.model:
            raise impossible(f"it holds no live verdict on version {version.version}")
        known = state.last_live(version.model, record.live.champion)
        repeated = known is not None and known[1] == record.live
        return state if repeated else replace(state, live=(*state.live, (number, record.live)))

    if record.kind == "copied":
        if record.counterpart is None:
            raise impossible("it names no record of another ledger")
        return state

    if record.kind == "tagged":
        tags = {name: value for name, value in (dict(version.tags) | record.tags).items() if value}
        return replace(state, versions=_changed(state, replace(version, tags=tuple(sorted(tags.items())))))

    if record.kind in ("withdrawn", "archived"):
        if is_champion:
            raise impossible(f"version {version.version} is the champion")
        ended = replace(version, withdrawn=True) if record.kind == "withdrawn" else replace(version, archived=True)
        return replace(
            _without(state, {version.version}, STAGING, SHADOW, CANARY),
            champions=tuple(champion for champion in state.champions if champion != version.version),
            versions=_changed(state, ended),
        )

    if record.kind == "rolled_back":
        if version.version not in state.champions:
            raise impossible(f"version {version.version} was never champion")
        kept = state.champions.index(version.version) + 1
        withdrawn = set(state.champions[kept:])
        versions = tuple(replace(old, withdrawn=True) if old.version in withdrawn else old for old in state.versions)
        state = _without(state, {*withdrawn, version.version}, SHADOW, CANARY)
        return replace(_without(state, withdrawn, STAGING), champions=state.champions[:kept], versions=versions)

    if version.archived or not record.alias:
        raise impossible(f"version {version.version} is archived" if version.archived else "it names no alias")
    if record.share is not None and record.alias != CANARY:
        raise impossible(f"a share of the requests is for {CANARY}, not {record.alias}")
    if record.alias in state.aliases_of(version.version):
        return state if record.share is None else replace(state, canary_share=record.share, canary_at=number)
    if record.alias == STAGING:
        staged = replace(version, staged_at=number, withdrawn=False)
        return replace(state, staging=version.version, versions=_changed(state, staged))
    if record.alias == CHAMPION:
        champions = (*(champion for champion in state.champions if champion != version.version), version.version)
        (_, judged), floor = state.last_verdict(version.model) or (0, None), version.model
        if judged and judged.below and not (record.override or judged.exempted or state.signature_on(judged.digest)):
            floor = judged.floor or judged.champion
        promoted = replace(version, promoted_at=number, withdrawn=False, floor=floor)
        cleared = _without(state, {version.version}, SHADOW, CANARY)
        return replace(cleared, champions=champions, versions=_changed(state, promoted))
    if is_champion:
        raise impossible(f"version {version.version} is the champion")
    alias: dict[str, Any] = {record.alias: version.version}
    if record.alias == CANARY:
        alias |= {"canary_share": SHARE if record.share is None else record.share, "canary_at": number}
    return replace(state, **alias, versions=_changed(state, replace(version, withdrawn=False)))


def _without(state: State, versions: Set[int], *aliases: str) -> State:
    """The state in which none of the versions holds any of the aliases."""
    cleared: dict[str, Any] = {alias: 0 for alias in aliases if state.holder(alias) in versions}
    return replace(state, **cleared | ({"canary_share": 0.0, "canary_at": 0} if CANARY in cleared else {}))


def _changed(state: State, version: ModelVersion) -> tuple[ModelVersion, ...]:
    return tuple(version if old.version == version.version else old for old in state.versions)


FORMAT = "gatehouse/ledger/1"
SEES_CHAMPIONS = Effects(reads="the ledger", why="Champions change without any parameter changing.")
WRITES_LEDGER = Effects(
    reads="the ledger",
    writes="the ledger, MLflow",
    why="Appends to the ledger once; a repeat finds its record.",
)


def _acts(sign: str) -> bool:
    turns = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    controls = unicodedata.category(sign) == "Cc" and sign not in "\n\t"
    return controls or unicodedata.bidirectional(sign) in turns


def _require_printable(record: Record, by: str) -> None:
    """Raise ConfigurationError if a person's words hold what a terminal obeys, or what turns other words round."""
    words = {
        "reason": record.reason,
        "by": by or whoami(),
        **{f"tag {name}": text for name, text in record.tags.items()},
    }
    words |= {"reason of the exemption": record.exemption.reason} if record.exemption else {}
    for name, text in words.items():
        hidden = [sign for sign in text if _acts(sign)]
        if hidden:
            raise ConfigurationError(f"{name}: expected words without control characters, found {hidden[0]!a}.")


class Ledger:
    """The ledger of one registered model in one store."""

    def __init__(self, store: ArtifactStore, model_name: str) -> None:
        self.store = store
        self.model_name = model_name
        self._prefix, self._heads = (f"registry/{model_name}/{part}" for part in ("ledger", "heads"))
        self._verified: list[tuple[Record, str]] = []

    def records(self) -> list[Record]:
        """All records in order. Raises LedgerError if a record is missing or was altered."""
        return self._read()[0]

    def state(self) -> State:
        """The state after all records."""
        return fold(self.records())

    def extend(self, decide: Callable[[State], Record | None], by: str = "") -> State:
        """Append the records that `decide` returns, one after another, until it returns None; returns the last state.

        `decide` is a pure function of the state. It is called again if another writer was faster, and may raise.
        """
        state = self.state()
        while (record := decide(state)) is not None:
            state = self.append(record, state, by) or self.state()
        return state

    def append(self, record: Record, state: State, by: str = "") -> State | None:
        """Append a record after `state`, which was read here; the state after it, or None if another writer was faster.

        Raises LedgerError if the record cannot follow.
        """
        _require_printable(record, by)
        record = record.model_copy(update={"provenance": author(by) | {"run": os.environ.get(RUN_ID, "")}})
        after, head = fold([record], state), self._verified[state.size - 1][1] if state.size else ""
        body = _sealed(record.model_dump(mode="json"), head)
        if head:
            self._put_head(state.size, head)  # A killed writer left none.
        if not self.store.objects.put_bytes(self._key(after.size), (canonical_json(body) + "\n").encode()):
            return None
        self._verified.append((record, str(body["digest"])))
        try:
            self._put_head(after.size, str(body["digest"]))
        except StoreError as error:
            logger.warning("%s: the next record will note record %d: %s", self._heads, after.size, error)
        return after

    def counterpart(self, direction: Literal["from", "to"], version: int, number: int) -> Counterpart:
        """A record of this ledger about a version, as the ledger of another store names it."""
        self._read()
        of = {"store": self.store.address, "version": version, "record": number}
        return Counterpart.model_validate({"direction": direction, **of, "digest": self._verified[number - 1][1]})

    def _put_head(self, number: int, digest: str) -> None:
        self.store.objects.put_bytes(f"{self._heads}/{number:06d}-{digest}", b"")

    def _key(self, number: int) -> str:
        return f"{self._prefix}/{number:06d}.json"

    def _read(self) -> tuple[list[Record], str]:
        """All records, and the digest of the last one; records that were read before are not read again."""
        heads = list(self.store.objects.list(self._heads))  # First: each is written after its record.
        keys = list(self.store.objects.list(self._prefix))
        for number, key in enumerate(keys, start=1):
            if key != self._key(number):
                raise LedgerError(f"{self._key(number)} is missing before {key}. Restore the ledger from a copy.")
        head = self._verified[-1][1] if self._verified else ""
        keys = keys[len(self._verified) :]
        for key, data in zip(keys, side_by_side(self.store.objects, self.store.objects.get_bytes, keys), strict=True):
            try:
                body: dict[str, Any] = json.loads(data)
                record = Record.model_validate(body["record"])
                sealed = _sealed(body["record"], head)
            except (ValueError, KeyError, TypeError, ValidationError) as error:
                raise LedgerError(f"{key} is not a ledger record: {error}. Restore the ledger from a copy.") from error
            if sealed != body:
                raise LedgerError(
                    f"{key} was altered, or does not follow the record before it: expected digest {sealed['digest']}, "
                    f"found {body.get('digest')}. Restore the ledger from a copy."
                )
            head = str(body["digest"])
            self._verified.append((record, head))
        last, _, digest = heads[-1].rpartition("/")[2].partition("-") if heads else ("0", "", "")
        if int(last) > len(self._verified) or (digest and self._verified[int(last) - 1][1] != digest):
            raise LedgerError(
                f"{self._key(int(last))}: expected the record with the digest {digest}, as {heads[-1]} says, found "
                "none or another. Restore the ledger from a copy."
            )
        return [record for record, _ in self._verified], head


def _sealed(record: dict[str, Any], previous: str) -> dict[str, Any]:
    """The record as stored, with the digest of the record before it."""
    body = {"format": FORMAT, "previous": previous, "record": record}
    return body | {"digest": digest_of(body)}


def model_names(store: ArtifactStore) -> list[str]:
    """Names of all models that have a ledger in this store."""
    return [name for name in store.objects.folders("registry") if any(store.objects.list(f"registry/{name}/ledger"))]
