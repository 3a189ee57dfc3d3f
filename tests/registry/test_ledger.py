"""The ledger: any interleaving of writers, replays, tampering, two processes at once."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.registry.ledger import Ledger, model_names
from gatehouse.registry.promoting.acts import PromotionError, next_archiving, next_promotion, next_rollback
from gatehouse.registry.registering.registration import next_registration
from gatehouse.registry.state import (
    ALIASES,
    Approval,
    Exemption,
    LedgerError,
    Record,
    StaleVerdictError,
    State,
    Subject,
    Verdict,
    fold,
)
from gatehouse.store.store import ArtifactStore
from tests.registry.gate import NAME, Gate

Decide = Callable[[State], Record | None]

DEFAULTS = ("exempted", "approval", "approval_days", "four_eyes")
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


class GrownExemption(Exemption):
    """An exemption of a later version, with one field more."""

    ticket: str = ""


class GrownSubject(Subject):
    """A subject of a later version, with one field more."""

    country: str = ""


class GrownVerdict(Verdict):
    """A verdict of a later version, with one field more, also in what it is made of."""

    subject: GrownSubject
    exempted: tuple[GrownExemption, ...] = ()
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
    ids=["all given", "defaults"],
)
def test_the_digest_of_a_recorded_verdict_stays_also_where_a_field_with_a_default_is_added(
    form: type[Verdict], defaults: tuple[str, ...], digest: str
) -> None:
    recorded = form.model_validate({name: value for name, value in RECORDED.items() if name not in defaults})
    assert recorded.digest == digest
    assert form.model_validate_json(recorded.model_dump_json()).digest == digest
    assert recorded.model_copy(update={"four_eyes": not recorded.four_eyes}).digest != digest


def _identity(kind: str, number: int) -> str:
    return f"{kind}/m/sha256-{number:064x}"


def _subject(model: int, policy: int = 0) -> Subject:
    return Subject(
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
        except (StaleVerdictError, PromotionError):
            record = None
        if record is not None and len(ledger) == len(self.seen):
            ledger.append(record)
        self.seen = list(ledger)


def _registering(model: int, good: bool, approval: str, policy: int) -> Decide:
    judged: list[Verdict] = []

    def decide(state: State) -> Record | None:
        if not judged:
            judged.append(_verdict(model, state.expected_champion(_subject(model, policy)), good, approval, policy))
        return next_registration(state, judged[0], ())

    return decide


def _word(state: State, number: int) -> Record | None:
    version = state.version(number)
    if version is None:
        return None
    _, verdict = next(each for each in state.verdicts if each[1].subject.model == version.model)
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
    st.integers(1, 3).map(lambda version: lambda state: _word(state, version)),
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
    assert not any(version.archived and state.aliases_of(version.version) for version in state.versions)
    assert all(state.champion_other_than(model) != model for model in models)


@settings(max_examples=300, deadline=None)
@given(st.lists(acts, min_size=1, max_size=5), st.lists(st.integers(0, 4), max_size=60))
def test_any_interleaving_leaves_one_version_a_model_and_at_most_one_champion(
    decisions: list[Decide], schedule: list[int]
) -> None:
    writers = [Writer(decide) for decide in decisions]
    ledger: list[Record] = []
    for turn in schedule:
        writers[turn % len(writers)].step(ledger)
        _assert_sound(fold(ledger))


@settings(max_examples=200, deadline=None)
@given(st.lists(acts, min_size=1, max_size=5), st.lists(st.integers(0, 4), max_size=60), st.data())
def test_a_record_written_twice_changes_nothing(
    decisions: list[Decide], schedule: list[int], data: st.DataObject
) -> None:
    writers = [Writer(decide) for decide in decisions]
    ledger: list[Record] = []
    for turn in schedule:
        writers[turn % len(writers)].step(ledger)
    cut = data.draw(st.integers(0, len(ledger)))
    once = fold(ledger[:cut])
    twice = fold(ledger[cut - 1 : cut], once) if cut else once
    assert replace(twice, size=once.size) == once


@settings(max_examples=100, deadline=None)
@given(st.lists(acts, min_size=1, max_size=5), st.lists(st.integers(0, 4), max_size=60), st.integers(0, 60))
def test_folding_in_two_parts_is_folding_at_once(decisions: list[Decide], schedule: list[int], cut: int) -> None:
    writers = [Writer(decide) for decide in decisions]
    ledger: list[Record] = []
    for turn in schedule:
        writers[turn % len(writers)].step(ledger)
    assert fold(ledger[cut:], fold(ledger[:cut])) == fold(ledger)


@settings(max_examples=80, deadline=None)
@given(st.lists(registrations, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=60))
def test_whoever_is_judged_again_after_the_dust_settled_comes_to_rest(
    decisions: list[Decide], schedule: list[int]
) -> None:
    writers = [Writer(decide) for decide in decisions]
    ledger: list[Record] = []
    for turn in schedule:
        writers[turn % len(writers)].step(ledger)
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


@pytest.mark.parametrize("kind", get_args(Record.model_fields["kind"].annotation))
def test_a_record_that_cannot_come_first_is_refused(kind: str) -> None:
    with pytest.raises(LedgerError, match=f"Record 1 of the ledger \\({kind}\\)"):
        fold([Record.model_validate({"kind": kind, "version": 1, "alias": "champion"})])


def test_an_altered_record_is_found(gate: Gate, store: ArtifactStore) -> None:
    gate.run(gate.model(1))
    path = store.objects.local_path(f"registry/{NAME}/ledger/000002.json")
    body = json.loads(path.read_text())
    body["record"]["reason"] = "somebody else's"
    path.write_text(json.dumps(body))
    with pytest.raises(LedgerError, match=r"000002.json was altered"):
        Ledger(store, NAME).records()


def test_a_missing_record_is_found(gate: Gate, store: ArtifactStore) -> None:
    gate.run(gate.model(1))
    store.objects.local_path(f"registry/{NAME}/ledger/000002.json").unlink()
    with pytest.raises(LedgerError, match="no record 2"):
        Ledger(store, NAME).state()


def test_provenance_decides_nothing(gate: Gate, store: ArtifactStore) -> None:
    gate.run(gate.model(1))
    records = Ledger(store, NAME).records()
    assert all(set(record.provenance) == {"by", "at", "run"} for record in records)
    assert fold(record.model_copy(update={"provenance": {}}) for record in records) == fold(records)


def test_names_of_models_with_a_ledger(gate: Gate, store: ArtifactStore) -> None:
    assert model_names(store) == []
    gate.run(gate.model(1))
    assert model_names(store) == [NAME]


_RACER = """
import sys
from pathlib import Path
from tests.registry.gate import NAME, Gate, make_gate
from gatehouse.store.store import ArtifactStore
from gatehouse.registry import projection
from gatehouse.registry.state import StaleVerdictError
projection.tracking_of = lambda store: None
gate = make_gate(ArtifactStore.open(sys.argv[1]))
seed = int(sys.argv[2])
model = gate.model(seed)
evaluation = gate.evaluate(model, "")
Path(sys.argv[3], sys.argv[4]).touch()
while len(list(Path(sys.argv[3]).iterdir())) < int(sys.argv[5]):
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
    racers = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                _RACER,
                store.address,
                str(seed),
                str(tmp_path / "ready"),
                str(index),
                str(len(seeds)),
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for index, seed in enumerate(seeds)
    ]
    said = [racer.communicate(timeout=60)[0].strip() for racer in racers]
    state = Ledger(store, NAME).state()
    _assert_sound(state)
    assert state.champion > 0
    assert len(state.champions) == 1
    if len(set(seeds)) == 1:
        assert said == ["approved"] * len(seeds) and len(state.versions) == 1 and state.size == 3
    else:
        assert sorted(said) == ["approved"] + ["stale"] * (len(seeds) - 1)
