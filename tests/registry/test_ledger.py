"""The ledger: records that cannot follow, any interleaving of writers, replays, tampering, processes at once."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.errors import ConfigurationError
from gatehouse.registry.ledger import (
    ALIASES,
    Approval,
    Exemption,
    Ledger,
    LedgerError,
    Record,
    StaleVerdictError,
    State,
    Verdict,
    VerdictSubject,
    fold,
    model_names,
)
from gatehouse.registry.naming import UnknownVersionError
from gatehouse.registry.promotion import PromotionError, next_archiving, next_promotion, next_rollback, tag
from gatehouse.registry.registration import WrongEvaluationError, next_registration
from gatehouse.store.store import ArtifactStore
from tests.registry.gate import MANUAL, NAME, Gate

Decide = Callable[[State], Record | None]
MODELS = [
    Verdict(
        subject=VerdictSubject(model=f"models/m/sha256-{number:064x}", training_set="t", split="s", policy="p"),
        champion="",
        evaluation="e",
        verdict="pass",
    )
    for number in range(4)
]
REGISTERED = [Record(kind="registered", version=number, verdict=MODELS[number]) for number in (1, 2, 3)]
CHAMPIONS = [Record(kind="promoted", version=number, alias="champion") for number in (1, 2)]
ARCHIVED = Record(kind="archived", version=3)
UNKNOWN = {"verdict": "0" * 64, "by": "mallory", "until": "2099-01-01T00:00:00Z"}
UNJUDGED = Exemption(model="models/x", rule="bar roc_auc", until="2999-01-01", by="grace", reason="-")


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "registered", "version": 7, "verdict": MODELS[0]},
        {"kind": "registered", "version": 4, "verdict": MODELS[0].model_copy(update={"verdict": "refused"})},
        {"kind": "refused", "verdict": MODELS[0]},
        {"kind": "promoted", "version": 3, "alias": "staging"},
        {"kind": "promoted", "version": 1},
        {"kind": "promoted", "version": 2, "alias": "canary"},
        {"kind": "promoted", "version": 1, "alias": "staging", "share": 0.5},
        {"kind": "promoted", "version": 2, "alias": "shadow"},
        {"kind": "rolled_back", "version": 3},
        {"kind": "archived", "version": 2},
        {"kind": "withdrawn", "version": 2},
        {"kind": "approved", "version": 1, "approval": UNKNOWN},
        {"kind": "exempted", "exemption": UNJUDGED},
        *(
            {"kind": kind, "version": 9, "alias": "champion"}
            for kind in get_args(Record.model_fields["kind"].annotation)
        ),
    ],
)
def test_a_record_that_cannot_follow_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(LedgerError, match=rf"Record 7 of the ledger \({record['kind']}\)") as raised:
        fold([*REGISTERED, *CHAMPIONS, ARCHIVED, Record.model_validate(record)])
    assert raised.value.permanent


def test_the_stage_of_a_version_at_its_edges() -> None:
    state = fold([*REGISTERED, *CHAMPIONS, ARCHIVED])
    assert [state.stage_of(version) for version in state.versions] == ["replaced", "champion", "archived"]
    assert fold(REGISTERED).stage_of(state.versions[0]) == "candidate"
    assert not REGISTERED[0].override and not MODELS[1].kept_out
    assert PromotionError.permanent and WrongEvaluationError.permanent


def test_earlier_uses_of_a_test_set_count_other_candidates_before_the_record() -> None:
    refused = MODELS[0].model_copy(update={"verdict": "refused"})
    state = fold([*REGISTERED, Record(kind="refused", verdict=refused)])
    assert state.verdict_on(refused.subject) == (4, refused)
    assert state.settled(4, refused)
    assert [state.uses_before(number, MODELS[number % 4].subject) for number in (1, 2, 3, 4)] == [0, 1, 2, 3]
    again = MODELS[3].model_copy(update={"verdict": "refused", "evaluation": "later"})
    assert fold([*REGISTERED, Record(kind="refused", verdict=again)]).settled(4, again), "though it is a version"
    assert state.uses_before(1, MODELS[0].subject.model_copy(update={"model": "models/m/other"})) == 0


def test_a_verdict_after_the_promotion_of_its_version_is_not_settled_by_it() -> None:
    again = MODELS[1].model_copy(update={"evaluation": "later", "champion": MODELS[2].subject.model})
    records = [*REGISTERED, *CHAMPIONS, Record(kind="registered", version=1, verdict=again)]
    assert not fold(records).settled(6, again)
    assert not fold(records).settled(4, again), "record 4 is the promotion itself"
    assert fold([*records, Record(kind="promoted", version=1, alias="champion")]).settled(6, again)


RECORDED = {
    "subject": {"model": "models/m/a", "training_set": "training-sets/m/b", "split": "splits/m/c", "policy": "d"},
    "champion": "models/m/e",
    "evaluation": "evaluations/m/f",
    "verdict": "inconclusive",
    "reasons": ["bar log_loss: expected at most 0.5, found 0.51"],
    "exempted": [
        {"model": "models/m/a", "rule": "bar roc_auc", "until": "2026-12-31", "by": "grace", "reason": "a pilot"}
    ],
    "approval": "manual",
    "approval_days": 3,
    "four_eyes": True,
}
"""A verdict as ledgers hold it, and as people have signed it: its digest stays for ever."""


class GrownSubject(VerdictSubject):
    country: str = ""


class GrownVerdict(Verdict):
    subject: GrownSubject
    weight: float = 1.0


@pytest.mark.parametrize("form", [Verdict, GrownVerdict])
@pytest.mark.parametrize(
    ("defaults", "digest"),
    [
        ((), "1a11481f2dc957a265a5e5585f5671caa6af0cc2e0e961befbdc26f92561e71b"),
        (
            ("exempted", "approval", "approval_days", "four_eyes"),
            "6aa63a2cc2bbdad9aea0a7c17407e66d1b6e047bb0e0b147aaafce004c0a7c3d",
        ),
    ],
)
def test_the_digest_of_a_recorded_verdict_stays_when_a_field_with_a_default_is_added(
    form: type[Verdict], defaults: tuple[str, ...], digest: str
) -> None:
    recorded = form.model_validate({name: value for name, value in RECORDED.items() if name not in defaults})
    assert recorded.digest == form.model_validate_json(recorded.model_dump_json()).digest == digest
    assert recorded.model_copy(update={"four_eyes": not recorded.four_eyes}).digest != digest


def _identity(kind: str, number: int) -> str:
    return f"{kind}/m/sha256-{number:064x}"


def _subject(model: int, policy: int = 0) -> VerdictSubject:
    return VerdictSubject(
        model=_identity("models", model),
        training_set=_identity("training-sets", 0),
        split=_identity("splits", 0),
        policy=f"{policy:064x}",
    )


def _verdict(model: int, champion: str, good: bool = True, approval: str = "automatic", policy: int = 0) -> Verdict:
    return Verdict.model_validate(
        {
            "subject": _subject(model, policy),
            "champion": champion,
            "evaluation": _identity("evaluations", model),
            "verdict": "pass" if good else "refused",
            "approval": approval,
        }
    )


class Writer:
    """A client that decides on a state it read some time ago, and writes only if nobody was faster."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.seen: list[Record] = []

    def step(self, ledger: list[Record]) -> None:
        try:
            record = self.decide(fold(self.seen))
        except (StaleVerdictError, PromotionError, UnknownVersionError):
            record = None
        if record is not None and len(ledger) == len(self.seen):
            ledger.append(record)
        self.seen = list(ledger)


def _ledger(decisions: list[Decide], schedule: list[int]) -> list[Record]:
    """The ledger of writers that step in this order; each state on the way is checked."""
    writers, ledger = [Writer(decide) for decide in decisions], list[Record]()
    for turn in schedule:
        writers[turn % len(writers)].step(ledger)
        _assert_sound(fold(ledger))
    return ledger


def _registering(model: int, good: bool, approval: str, policy: int) -> Decide:
    judged: list[Verdict] = []

    def decide(state: State) -> Record | None:
        if not judged:
            judged.append(_verdict(model, state.expected_champion(_subject(model, policy)), good, approval, policy))
        return next_registration(state, judged[0], ())

    return decide


def _signature(state: State, number: int) -> Record | None:
    version = state.version(number)
    if version is None:
        return None
    verdict = next(verdict for _, verdict in state.verdicts if verdict.subject.model == version.model)
    approval = Approval(verdict=verdict.digest, by="ada", until="2013-01-15T08:15:00Z")
    return Record(kind="approved", version=number, approval=approval)


registrations = st.builds(
    _registering, st.integers(1, 3), st.booleans(), st.sampled_from(["automatic", "manual"]), st.integers(0, 1)
)
acts = st.one_of(
    registrations,
    st.integers(0, 3).map(lambda version: lambda state: next_promotion(state, NAME, version, "", False)),
    st.builds(
        lambda version, to: lambda state: next_promotion(state, NAME, version, "because", True, to),
        st.integers(0, 3),
        st.sampled_from(ALIASES),
    ),
    st.integers(1, 3).map(lambda version: lambda state: _signature(state, version)),
    st.integers(1, 3).map(lambda version: lambda state: next_rollback(state, NAME, version, "")),
    st.integers(1, 3).map(lambda version: lambda state: next_archiving(state, NAME, version, "")),
)


def _assert_sound(state: State) -> None:
    models = [version.model for version in state.versions]
    assert len(set(models)) == len(models), "a model has two versions"
    assert [version.version for version in state.versions] == list(range(1, len(models) + 1))
    assert len(set(state.champions)) == len(state.champions)
    champion = state.version(state.champion)
    assert champion is None or not (champion.archived or champion.withdrawn)
    assert state.champion == 0 or state.champion not in (state.shadow, state.canary)
    ended = [version.version for version in state.versions if version.archived or version.withdrawn]
    assert not any(state.aliases_of(version) for version in ended)
    assert all(state.champion_other_than(model) != model for model in models)


@settings(max_examples=300, deadline=None)
@given(st.lists(acts, min_size=1, max_size=5), st.lists(st.integers(0, 4), max_size=60), st.integers(0, 60))
def test_any_interleaving_is_sound_and_folds_in_parts_and_with_repeats_to_the_same_state(
    decisions: list[Decide], schedule: list[int], cut: int
) -> None:
    ledger = _ledger(decisions, schedule)
    once = fold(ledger[:cut])
    assert fold(ledger[cut:], once) == fold(ledger)
    twice = fold(ledger[:cut][-1:], once)
    assert replace(twice, size=once.size) == once, "a record written twice changes nothing"


@settings(max_examples=80, deadline=None)
@given(st.lists(registrations, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=60))
def test_a_candidate_that_is_judged_again_and_again_comes_to_rest(decisions: list[Decide], schedule: list[int]) -> None:
    ledger = _ledger(decisions, schedule)
    for model, policy in [(model, policy) for model in (1, 2, 3) for policy in (0, 1)]:
        last = fold(ledger).verdict_on(_subject(model, policy))
        good, approval = (last[1].verdict == "pass", last[1].approval) if last else (True, "automatic")
        for _ in range(2):
            state = fold(ledger)
            verdict = _verdict(model, state.expected_champion(_subject(model, policy)), good, approval, policy)
            while (record := next_registration(fold(ledger), verdict, ())) is not None:
                ledger.append(record)
                assert len(ledger) < 200
        again = _verdict(model, fold(ledger).expected_champion(_subject(model, policy)), good, approval, policy)
        assert next_registration(fold(ledger), again, ()) is None


@pytest.mark.parametrize("damage", ["gone", "another"])
def test_a_last_record_that_is_gone_or_another_one_is_noticed(gate: Gate, damage: str) -> None:
    gate.run(gate.model(1))
    ledger, size = Ledger(gate.store, NAME), gate.state.size
    gate.store.objects.local_path(f"registry/{NAME}/ledger/{size:06d}.json").unlink()
    if damage == "another":
        for head in gate.store.objects.list(f"registry/{NAME}/heads"):
            if f"{size:06d}-" in head:
                aside = gate.store.objects.local_path(head)
                content = aside.name
                aside.unlink()
        records = iter([Record(kind="promoted", version=1, alias="shadow")])
        ledger.extend(lambda state: next(records, None))
        (aside.parent / content).touch()
        (present,) = (path for path in aside.parent.glob(f"{size:06d}-*") if path.name != content)
        present.unlink()
    with pytest.raises(LedgerError, match=f"{size:06d}.json: expected the record with the digest"):
        Ledger(gate.store, NAME).state()


def test_a_head_that_a_killed_writer_did_not_write_comes_with_the_next_record(gate: Gate) -> None:
    gate.run(gate.model(1))
    size = gate.state.size
    (head,) = (key for key in gate.store.objects.list(f"registry/{NAME}/heads") if f"/{size:06d}-" in key)
    gate.store.objects.local_path(head).unlink()
    gate.run(gate.model(2))
    assert gate.state.size > size and gate.store.objects.stat(head) is not None


@pytest.mark.parametrize("hidden", ["\x1b[2J", "\0", "\u202e"])
def test_words_of_persons_hold_nothing_that_a_terminal_obeys(gate: Gate, hidden: str) -> None:
    gate.run(gate.model(1), policy=MANUAL)
    size = gate.state.size
    for words in ({"reason": f"fine{hidden}"}, {"by": f"ada{hidden}"}):
        with pytest.raises(ConfigurationError, match="control characters"):
            gate.approve(**words)
    with pytest.raises(ConfigurationError, match="control characters"):
        tag(gate.store, NAME, 1, {"season": hidden})
    assert gate.state.size == size
    gate.approve(reason="naïve, 日本語, مرحبا\nand a second line")


@pytest.mark.parametrize(
    ("damage", "message"), [("altered", r"000002.json was altered"), ("missing", "000002.json is missing")]
)
def test_damage_to_a_record_is_found(gate: Gate, damage: str, message: str) -> None:
    gate.run(gate.model(1))
    path = gate.store.objects.local_path(f"registry/{NAME}/ledger/000002.json")
    body = json.loads(path.read_text())
    body["record"]["reason"] = "another reason"
    path.write_text(json.dumps(body)) if damage == "altered" else path.unlink()
    with pytest.raises(LedgerError, match=message):
        Ledger(gate.store, NAME).records()


def test_an_object_that_is_no_record_is_named(store: ArtifactStore) -> None:
    store.objects.put_bytes("registry/m/ledger/000001.json", b"[]")
    with pytest.raises(LedgerError, match=r"000001\.json is not a ledger record"):
        Ledger(store, "m").records()


def test_provenance_decides_nothing(gate: Gate) -> None:
    assert model_names(gate.store) == []
    gate.run(gate.model(1))
    records = Ledger(gate.store, NAME).records()
    assert all(set(record.provenance) == {"by", "at", "run"} for record in records)
    assert fold(record.model_copy(update={"provenance": {}}) for record in records) == fold(records)
    assert model_names(gate.store) == [NAME]


_RACER = """
import sys
from pathlib import Path
from tests.registry.gate import make_gate
from gatehouse.store.store import ArtifactStore
from gatehouse.registry import projection
from gatehouse.registry.ledger import StaleVerdictError
projection.tracking_of = lambda store: None
address, seed, ready, number, racers = sys.argv[1:]
gate = make_gate(ArtifactStore.open(address))
model = gate.model(int(seed))
evaluation = gate.evaluate(model, "")
Path(ready, number).touch()
while len(list(Path(ready).iterdir())) < int(racers):
    pass
try:
    print(gate.register(model, evaluation).decision)
except StaleVerdictError:
    print("stale")
"""


@pytest.mark.parametrize("seeds", [[1, 1, 1], [1, 2, 3]])
def test_processes_that_register_at_once_make_one_version_a_model_and_one_champion(
    tmp_path: Path, store: ArtifactStore, seeds: list[int]
) -> None:
    (tmp_path / "ready").mkdir()
    racers = []
    for number, seed in enumerate(seeds):
        arguments = [store.address, str(seed), str(tmp_path / "ready"), str(number), str(len(seeds))]
        command = [sys.executable, "-c", _RACER, *arguments]
        racers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]))
    decisions = [racer.communicate(timeout=60)[0].strip() for racer in racers]
    state = Ledger(store, NAME).state()
    _assert_sound(state)
    assert state.champion > 0
    assert len(state.champions) == 1
    if len(set(seeds)) == 1:
        assert decisions == ["approved"] * len(seeds) and len(state.versions) == 1 and state.size == 3
    else:
        assert sorted(decisions) == ["approved"] + ["stale"] * (len(seeds) - 1)
