"""Erasure: the data is gone, the record says so, and what still holds it is reported."""

import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from gatehouse.api.data import notes
from gatehouse.errors import ConfigurationError, ErasedArtifactError, MissingArtifactError
from gatehouse.store import memo
from gatehouse.store.collection import collect
from gatehouse.store.eraser import erase, finish, plan_erasure
from gatehouse.store.records import create_record, read_record
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from tests.store.memory_objects import Memory, MemoryObjects

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
    memo.remember(store, "split", "key", {"training_set": str(training)})
    plan = plan_erasure(store, training, only=True)
    assert set(plan.holders) == {family[name] for name in ("split", "snapshot", "table", "copy")}
    _erase(store, training)
    with pytest.raises(ErasedArtifactError, match=r"by the officer: request 17 \(record erasures/000001\.json\)"):
        ArtifactStore.open(store.address).path(training, "x")
    assert not _present(store, b"joined") and not store.exists(training)
    assert memo.recall(store, "split", "key") is None
    assert store.manifest(training).derived_from, "the lineage went with the data"
    assert all(store.exists(family[name]) for name in ("table", "snapshot", "split", "copy", "other"))
    assert [type(problem) for problem in store.problems(training)] == [ErasedArtifactError]
    assert store.problems(split) == [] and "derived from erased data" in str(notes(store, split))
    record = json.loads(store.objects.get_bytes("erasures/000001.json"))
    assert (record["by"], record["reason"], record["requested"]) == ("the officer", "request 17", str(training))
    assert record["artifacts"] == [str(training)] and str(split) in record["holders"] and record["at"].endswith("Z")


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
    assert set(plan.erased) == set(family.values()) - {family["other"]} and plan.holders == ()
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
    assert plan.erased == (first,) and plan.holders == (places, second)


def test_an_erased_artifact_is_not_published_again(store: ArtifactStore) -> None:
    family = _family(store)
    _erase(store, family["training"])
    with pytest.raises(ErasedArtifactError, match="neither read nor published again"):
        store.publish("training-sets", "x", {"x": b"joined"}, derived_from={"snapshot": family["snapshot"]})
    assert not _present(store, b"joined")


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


class Killed(Exception):
    """Stands for the death of an eraser."""


def test_an_eraser_killed_at_any_step_is_finished_by_the_next() -> None:
    for last in itertools.count():
        memory = Memory()
        store = ArtifactStore(MemoryObjects(memory))
        family = _family(store)
        delivery = {"snapshot": str(family["snapshot"]), "tables": {"t": "quotes rows"}}
        create_record(store.objects, "sources/s/all/000001.json", delivery)
        piece = store.publish("pieces", "part", {"rows": b"rows of a piece"})
        memo.remember(store, "gather", "0" * 64, {"rows": str(piece)})
        plan = plan_erasure(store, family["table"])
        steps = iter(range(last))

        def step(operation: str, steps: Iterator[int] = steps) -> None:
            if next(steps, None) is None:
                raise Killed

        ended = True
        try:
            erase(ArtifactStore(MemoryObjects(memory, step)), plan, "request 17")
        except Killed:
            ended = False
        recorded = any(key.startswith("erasures/") for key in memory.objects)
        finish(store)
        assert _present(store, PERSON) != recorded
        assert {name for name in family if store.exists(family[name])} == ({"other"} if recorded else set(family))
        kept = {"snapshot": delivery["snapshot"], "erased": True} if recorded else delivery
        assert read_record(store.objects, "sources/s/all/000001.json") == kept, "a kill lost the record"
        assert not list(store.objects.list("gc/shortened"))
        if not recorded:
            erase(store, plan, "request 17")
        assert not _present(store, b"rows of a piece") and not list(store.objects.list("memo"))
        assert not store.exists(piece)
        if ended:
            return


@pytest.mark.parametrize("name", ["t", "u"], ids=["the same artifact", "another artifact"])
def test_an_erasure_at_any_moment_of_a_writer_removes_the_data_or_tells_who_has_it(name: str) -> None:
    for moment in itertools.count():
        memory, operations = Memory(), itertools.count()
        first = ArtifactStore(MemoryObjects(memory)).publish("datasets", "t", {"a": PERSON})

        def erase_it(operation: str, memory: Memory = memory, at: int = moment, steps: Any = operations) -> None:
            if next(steps) == at:
                store = ArtifactStore(MemoryObjects(memory))
                _erase(store, next(store.references()), only=False)

        with suppress(ErasedArtifactError):
            ArtifactStore(MemoryObjects(memory, erase_it)).publish("datasets", name, {"a": PERSON})
        after = ArtifactStore(MemoryObjects(memory))
        if next(operations) <= moment:
            break
        collect(after, days=0)
        assert not after.exists(first)
        others = set(after.references()) - {first}
        assert _present(after, PERSON) == bool(others)
        assert others <= set(plan_erasure(after, first).erased), "an erasure that is repeated takes it too"
