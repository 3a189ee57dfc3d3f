"""Erasure: the data is gone and stays gone, the record says so, and dependants are marked."""

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.errors import ConfigurationError, ErasedArtifactError, MissingArtifactError
from gatehouse.store import leases, memo
from gatehouse.store.collection import Collection, Collector
from gatehouse.store.eraser import erase, finish, lift, plan_erasure
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from tests.store.memory_objects import Memory, MemoryObjects, Schedule

PERSON = b"a person's rows"


def _family(store: ArtifactStore) -> dict[str, Reference]:
    table = store.publish("datasets", "t", {"a": PERSON, "b": b"other rows"})
    snapshot = store.publish("snapshots", "s", {"source.json": b"a file"}, derived_from={"t": table})
    training = store.publish("training-sets", "x", {"x": b"joined"}, derived_from={"snapshot": snapshot})
    split = store.publish("splits", "x", {"i": b"index"}, derived_from={"training_set": training})
    copy = store.publish("datasets", "copy", {"a": PERSON, "c": b"more"})
    other = store.publish("config", "c", {"c": b"configuration"})
    return {"table": table, "snapshot": snapshot, "training": training, "split": split, "copy": copy, "other": other}


def _erase(store: ArtifactStore, reference: Reference, only: bool = True) -> None:
    erase(store, plan_erasure(store, reference, only), "request 17", "the officer")


def _present(store: ArtifactStore, data: bytes) -> bool:
    return any(store.objects.get_bytes(key) == data for key in store.objects.list("blobs"))


def test_an_erased_artifact_names_its_record_and_others_are_untouched(store: ArtifactStore) -> None:
    family = _family(store)
    training, split = family["training"], family["split"]
    entry = store.manifest(training).files[0]
    memo.remember(store, "split", "key", {"training_set": str(training)})
    plan = plan_erasure(store, training, only=True)
    assert set(plan.holders) == {family[name] for name in ("split", "snapshot", "table", "copy")}
    assert plan.dependants == (split,)
    _erase(store, training)
    with pytest.raises(ErasedArtifactError, match=r"by the officer: request 17 \(record erasures/000001\.json\)"):
        ArtifactStore.open(store.address).path(training, "x")
    assert not _present(store, b"joined") and not store.exists(training)
    assert memo.recall(store, "split", "key") is None
    assert store.manifest(training).derived_from, "the lineage went with the data"
    assert all(store.exists(family[name]) for name in ("table", "snapshot", "split", "copy", "other"))
    assert [type(problem) for problem in store.problems(training)] == [ErasedArtifactError]
    assert store.problems(split) == []
    late = store.publish("models", "m", {"w": b"weights"}, derived_from={"split": split})
    assert (
        store.erasures.behind(split) and store.erasures.behind(late) and not store.erasures.behind(family["snapshot"])
    )
    record = json.loads(store.objects.get_bytes("erasures/000001.json"))
    assert (record["by"], record["reason"], record["requested"]) == ("the officer", "request 17", str(training))
    assert record["blobs"] == [{"key": entry.blob, "sha256": entry.sha256, "bytes": 6, "artifacts": [str(training)]}]
    assert record["dependants"] == [str(split)] and record["at"].endswith("Z")


def test_a_shared_blob_stays_where_one_artifact_alone_is_erased(store: ArtifactStore) -> None:
    family = _family(store)
    assert family["copy"] in plan_erasure(store, family["table"], only=True).holders
    _erase(store, family["table"])
    assert _present(store, PERSON) and store.verify(family["copy"]) == 1
    _erase(store, family["table"], only=False)
    assert not _present(store, PERSON)
    with pytest.raises(ErasedArtifactError):
        ArtifactStore.open(store.address).path(family["copy"], "a")


def test_a_whole_family_goes(store: ArtifactStore) -> None:
    family = _family(store)
    plan = plan_erasure(store, family["snapshot"])
    assert set(plan.erased) == set(family.values()) - {family["other"]}
    assert (plan.holders, plan.dependants) == ((), ())
    erase(store, plan, "request 17")
    assert {store.objects.get_bytes(key) for key in store.objects.list("blobs")} == {b"configuration"}


def test_a_file_without_content_is_no_reason_to_erase_others_and_may_be_published_again(store: ArtifactStore) -> None:
    """So that another snapshot may be found to have no anomalies either, before and after an erasure."""

    def validated(rows: bytes) -> tuple[Reference, Reference]:
        snapshot = store.publish("snapshots", "s", {"part.parquet": rows})
        files = {"anomalies.json": b"[]", "verdict.json": rows + b" pass", "set-aside.parquet": b"no rows"}
        facts = {"derived_from": {"snapshot": snapshot}, "rows_per_file": {"set-aside.parquet": 0}}
        return snapshot, store.publish("validations", "s", files, **facts)  # type: ignore[arg-type]  # Of several types.

    (snapshot, _), (_, other) = validated(PERSON), validated(b"other rows")
    plan = plan_erasure(store, snapshot)
    assert not plan.holders and other not in plan.erased
    erase(store, plan, "request 17")
    assert not _present(store, PERSON) and store.verify(other)
    _, again = validated(b"rows of tomorrow")
    assert store.verify(again)


def test_what_was_derived_from_sharers_goes_too(store: ArtifactStore) -> None:
    family = _family(store)
    derived = store.publish("splits", "derived", {"d": b"derived"}, derived_from={"t": family["copy"]})
    third = store.publish("splits", "third", {"d": b"derived"})
    own = store.publish("splits", "own", {"d": b"own"}, derived_from={"c": family["other"]})
    plan = plan_erasure(store, family["table"])
    assert {family["copy"], derived, third} < set(plan.erased)
    assert plan.holders == () and own not in plan.erased


def test_the_configuration_of_a_project_holds_no_rows(store: ArtifactStore) -> None:
    configuration = store.publish("config", "c", {"c": b"configuration"})
    table = store.publish("datasets", "t", {"a": PERSON}, derived_from={"config": configuration})
    plan = plan_erasure(store, table)
    assert plan.erased == (table,) and plan.holders == ()


def test_rows_that_were_set_aside_go_with_the_inputs(store: ArtifactStore) -> None:
    aside = store.publish("rejected", "t", {"r": PERSON})
    table = store.publish("datasets", "t", {"a": b"rows"}, details={"rejected": str(aside)})
    snapshot = store.publish("snapshots", "s", {"s": b"1"}, derived_from={"t": table})
    assert plan_erasure(store, snapshot, keep_inputs=True).holders == (table, aside)
    assert set(plan_erasure(store, snapshot).erased) == {snapshot, table, aside}


def test_inputs_take_along_what_was_made_from_them_unless_they_are_kept(store: ArtifactStore) -> None:
    places = store.publish("datasets", "places", {"p": b"places"})
    first, second = (
        store.publish("snapshots", name, {"s": name}, derived_from={"p": places}) for name in ("one", "two")
    )
    assert set(plan_erasure(store, first).erased) == {first, second, places}
    plan = plan_erasure(store, first, keep_inputs=True)
    assert plan.erased == (first,) and plan.holders == (places,)


def test_erased_content_does_not_come_back_unless_the_erasure_is_lifted(store: ArtifactStore) -> None:
    family = _family(store)
    _erase(store, family["training"])
    for name in ("x", "another"):
        with pytest.raises(ErasedArtifactError, match=r"not published again.*gatehouse data lift 000001"):
            store.publish("training-sets", name, {"x": b"joined"}, derived_from={"snapshot": family["snapshot"]})
    with pytest.raises(ErasedArtifactError, match=r"content of x was erased"):
        store.keep("x", b"joined")
    assert not _present(store, b"joined")
    lift(store, 1, "consent given")
    with pytest.raises(ErasedArtifactError):
        ArtifactStore.open(store.address).path(family["training"], "x")
    again = store.publish("training-sets", "x", {"x": b"joined"}, derived_from={"snapshot": family["snapshot"]})
    assert again == family["training"] and store.verify(again) == 3
    assert store.erasures.behind(family["split"]) is None
    _erase(store, again)
    assert not ArtifactStore.open(store.address).exists(again)
    behind = store.erasures.behind(family["split"])
    assert behind is not None and behind.key == "erasures/000002.json"
    with pytest.raises(ConfigurationError, match=r"has no erasure 1 in force: expected one of: 2"):
        lift(store, 1, "again")


def test_pages_and_damaged_bytes_that_were_put_aside_go_too(store: ArtifactStore) -> None:
    reference = store.publish("datasets", "t", {"a": PERSON})
    other = store.publish("datasets", "u", {"a": b"other rows"})
    for artifact, style in ((reference, "old"), (reference, "new"), (other, "new")):
        store.objects.put_bytes(f"reports/{artifact}/{style}.html", b"<p>example row")
    path = store.path(reference, "a")
    path.chmod(0o644)
    path.write_bytes(PERSON + b", and more")
    store.intact(reference, lambda message: None)
    store.publish("datasets", "t", {"a": PERSON})
    assert list(store.objects.list("quarantine"))
    _erase(store, reference)
    assert not list(store.objects.list("quarantine"))
    assert list(store.objects.list("reports")) == [f"reports/{other}/new.html"]


def test_an_erasure_needs_a_reason_a_reference_and_something_to_do(store: ArtifactStore) -> None:
    family = _family(store)
    with pytest.raises(ConfigurationError, match="needs a reason"):
        erase(store, plan_erasure(store, family["training"]), " ")
    with pytest.raises(MissingArtifactError):
        plan_erasure(store, f"datasets/none/sha256-{'0' * 64}")
    _erase(store, family["training"])
    with pytest.raises(ConfigurationError, match="nothing is left to erase"):
        _erase(store, family["training"])


def test_the_collector_takes_what_an_eraser_or_writer_left_behind(store: ArtifactStore) -> None:
    family = _family(store)
    blob = store.manifest(family["training"]).files[0].blob
    _erase(store, family["training"])
    store.objects.put_bytes(blob, b"joined")
    collector = Collector(store, Collection(grace=0))
    assert [(item.key, item.why) for item in collector.sweep(collector.mark())] == [(blob, "was erased")]


class Killed(Exception):
    """Stands for the death of an eraser."""


def test_an_eraser_killed_at_any_step_is_finished_by_the_next() -> None:
    for last in range(200):
        memory = Memory()
        store = ArtifactStore(MemoryObjects(memory))
        family = _family(store)
        plan = plan_erasure(store, family["table"])
        steps = iter(range(last))

        def step(operation: str, steps: Iterator[int] = steps) -> None:
            if next(steps, None) is None:
                raise Killed

        try:
            erase(ArtifactStore(MemoryObjects(memory, step)), plan, "request 17")
        except Killed:
            ended = False
        else:
            ended = True
        if any(key.startswith("erasures/") for key in memory.objects):
            for erasure in store.erasures.unfinished():
                finish(store, erasure)
            assert store.erasures.unfinished() == []
            assert not _present(store, PERSON)
            assert {name for name in family if store.erasures.of(family[name])} == set(family) - {"other"}
        else:
            assert all(map(store.exists, family.values()))
        if ended:
            return
    raise AssertionError("the eraser never ended")


@given(st.sets(st.integers(0, 150), max_size=6), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_writer_beside_an_eraser_never_brings_the_data_back(switches: set[int], writer_first: bool) -> None:
    memory = Memory()
    first = ArtifactStore(MemoryObjects(memory)).publish("datasets", "t", {"a": PERSON})
    schedule = Schedule(switches)
    published: list[Reference] = []

    def erase_it(step: Callable[[str], None]) -> None:
        store = ArtifactStore(MemoryObjects(memory, step))
        erase(store, plan_erasure(store, first), "request 17")

    def write(step: Callable[[str], None]) -> None:
        store = ArtifactStore(MemoryObjects(memory, step))
        published.append(store.publish("datasets", "u", {"a": PERSON}, derived_from={"t": first}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "time", SimpleNamespace(sleep=lambda _: schedule.give_way()))
        outcomes = schedule.run(*([write, erase_it] if writer_first else [erase_it, write]))
    trace = "\n".join(schedule.trace)
    assert [type(error) for error in outcomes if error] in ([], [ErasedArtifactError]), trace
    after = ArtifactStore(MemoryObjects(memory))
    assert not _present(after, PERSON), trace
    assert all(map(after.erasures.of, after.references())), trace
