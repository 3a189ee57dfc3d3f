"""Processes that promote and roll back at once, and are killed at random; then the history is held against the ledger.

    python -m tests.registry.race --store gs --processes 16 --seconds 60

Every act is noted before it is asked for and after it was answered. The order of the ledger's records is the order in
which the acts must have happened, and `problems` says what contradicts it: an answer that does not fit the state in
which it was given, an act that ended before another began and stands behind it, a record that is lost, doubled or that
nobody asked for, an instant without exactly one champion, and aliases in MLflow that are not those of the ledger.
"""

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from gatehouse.registry.ledger import Ledger
from gatehouse.registry.projection import project
from gatehouse.registry.promoting.acts import PromotionError, next_promotion, next_rollback, promote, rollback
from gatehouse.registry.state import ALIASES, CHAMPION, Record, State, fold
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of
from gatehouse.tracking.place import URI
from tests.registry.gate import NAME, make_gate
from tests.stand_ins.servers import BUCKET, gcs_server, s3_server

VERSIONS = 6
_KILL_AFTER = 0.1  # Seconds at most, once three acts were begun or answered since the last kill.
_STOP = "stop"
_FORK = multiprocessing.get_context("fork")


@dataclass
class Operation:
    """One act as its process saw it; `ended` is infinite, and `answer` empty, where the process was killed within it.

    `answer` is `read`, `done`, or `refused`; `size` and `champion` are of the state that was answered.
    """

    key: str
    kind: str
    version: int
    to: str
    began: float
    ended: float = float("inf")
    answer: str = ""
    size: int = 0
    champion: int = 0
    position: int = 0


def work(address: str, notes: Path, worker: str) -> None:
    """Act at random until told to stop, and note it."""
    store, chance = ArtifactStore.open(address), random.Random(worker)
    descriptor = os.open(notes / f"{worker}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(body: dict[str, Any]) -> None:
        os.write(descriptor, (json.dumps(body | {"at": time.monotonic()}) + "\n").encode())

    count = 0
    while not (notes / _STOP).exists():
        count += 1
        key, kind = f"{worker}.{count}", chance.choices(("promote", "rollback", "read"), (5, 3, 2))[0]
        version, to = chance.randint(1, VERSIONS), chance.choices((CHAMPION, "canary", "shadow"), (4, 1, 1))[0]
        if kind == "rollback":
            version, to = Ledger(store, NAME).state().champion, ""
        note({"key": key, "kind": kind, "version": version, "to": to})
        try:
            state = _act(store, kind, version, to, key)
            answer = {"answer": "read" if kind == "read" else "done", "size": state.size, "champion": state.champion}
        except PromotionError:
            answer = {"answer": "refused"}
        note({"key": key} | answer)


def _act(store: ArtifactStore, kind: str, version: int, to: str, key: str) -> State:
    if kind == "read":
        return Ledger(store, NAME).state()
    if kind == "promote":
        return promote(store, NAME, version, key, override=True, to=to)
    return rollback(store, NAME, version, key)


def read_history(notes: Path) -> list[Operation]:
    """All acts of all processes."""
    found: dict[str, Operation] = {}
    for path in sorted(notes.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            body = json.loads(line)
            at = body.pop("at")
            if "kind" in body:
                found[body["key"]] = Operation(**body, began=at)
            else:
                for name, value in (body | {"ended": at}).items():
                    setattr(found[body["key"]], name, value)
    return list(found.values())


def problems(records: list[Record], before: int, history: list[Operation]) -> Iterator[str]:
    """What in a history contradicts the ledger.

    Args:
        records: The ledger at the end.
        before: How many of its records were there before the race.
        history: What the processes asked for, and were answered.
    """
    states = [State()]
    for record in records:
        states.append(fold([record], states[-1]))
    yield from _not_one_champion(states[before:], before)
    known = {each.key: each for each in history}
    written: dict[str, int] = {}
    for number, record in enumerate(records[before:], start=before + 1):
        if record.reason in written:
            yield f"record {number}: {record.reason} was written before, as record {written[record.reason]}"
        if record.reason not in known:
            yield f"record {number}: nobody asked for {record.reason!r}"
        written[record.reason] = number
    for each in history:
        each.position = written.get(each.key, each.size if each.answer in ("read", "done") else 0)
    yield from _wrong_answers(states, before, written, history)
    yield from _wrong_order(history)


def _not_one_champion(states: list[State], before: int) -> Iterator[str]:
    for number, state in enumerate(states, start=before):
        champion = state.version(state.champion)
        if (
            champion is None
            or champion.archived
            or champion.withdrawn
            or len(set(state.champions)) != len(state.champions)
        ):
            yield f"after record {number}: expected one champion that is in use, found {state.champions}"


def _wrong_answers(
    states: list[State], before: int, written: dict[str, int], history: list[Operation]
) -> Iterator[str]:
    """Answers that no state within the act's time explains."""
    for each in history:
        if each.answer == "refused":
            low = max((one.position for one in history if one.ended < each.began), default=before)
            high = min(
                (one.position for one in history if one.began > each.ended and one.position), default=len(states) - 1
            )
            if each.key in written:
                yield f"{each.key}: was refused, and is record {written[each.key]}"
            elif not any(_refuses(state, each) for state in states[low : high + 1]):
                yield f"{each.key}: was refused, though no state between records {low} and {high} refuses it"
        elif each.answer == "done" and each.key not in written and _asks(states[each.size], each) is not None:
            yield f"{each.key}: was answered, and its record is lost"
        elif each.answer and states[each.size].champion != each.champion:
            yield f"{each.key}: saw champion {each.champion} after record {each.size}, not {states[each.size].champion}"


def _asks(state: State, each: Operation) -> Record | None:
    """The record that an act still asks for in a state."""
    if each.kind == "promote":
        return next_promotion(state, NAME, each.version, each.key, True, each.to)
    return next_rollback(state, NAME, each.version, each.key)


def _refuses(state: State, each: Operation) -> bool:
    try:
        _asks(state, each)
    except PromotionError:
        return True
    return False


def _wrong_order(history: list[Operation]) -> Iterator[str]:
    """Acts that ended before another began, and stand behind it in the ledger."""
    placed = [each for each in history if each.position]
    ended = sorted((each for each in placed if each.answer), key=lambda each: each.ended)
    latest, at = 0, 0
    for each in sorted(placed, key=lambda each: each.began):
        while at < len(ended) and ended[at].ended < each.began:
            latest, at = max(latest, ended[at].position), at + 1
        if each.position < latest:
            yield f"{each.key}: stands at record {each.position}, and began after record {latest} was answered"


def wrong_aliases(store: ArtifactStore) -> Iterator[str]:
    """Aliases that MLflow has otherwise than the ledger."""
    state, tracking = Ledger(store, NAME).state(), tracking_of(store)
    project(store, NAME, state)
    assert tracking is not None
    with tracking.client() as client:
        shown = {name: int(number) for name, number in client.get_registered_model(NAME).aliases.items()}
        by_number = {int(each.version): each.tags for each in client.search_model_versions(f"name = '{NAME}'")}
    ours = {alias: int(by_number[number]["gatehouse.version"]) for alias, number in shown.items()}
    wanted = {alias: state.holder(alias) for alias in ALIASES if state.holder(alias)}
    if ours != wanted:
        yield f"aliases in MLflow: expected {wanted}, as the ledger says, found {ours}"


def _begin(address: str) -> int:
    """Register all versions, the first of them as champion; gives the number of records."""
    store = ArtifactStore.open(address)
    gate = make_gate(store)
    for seed in range(1, VERSIONS + 1):
        gate.run(gate.model(seed))
    return len(Ledger(store, NAME).records())


def _race(address: str, notes: Path, processes: int, seconds: float, acts: int) -> int:
    """Let workers act, kill one now and then and begin another in its place; gives the number of kills."""
    until, kills, names, seen = time.monotonic() + seconds, 0, iter(range(1_000_000)), 0

    def begin() -> BaseProcess:
        started = _FORK.Process(target=work, args=(address, notes, f"w{next(names)}"))
        started.start()
        return started

    workers = [begin() for _ in range(processes)]
    while time.monotonic() < until or seen < 2 * acts:
        if (now := _noted(notes)) < seen + 3:
            time.sleep(0.01)
            continue
        seen = now
        time.sleep(random.uniform(0, _KILL_AFTER))
        chosen = random.randrange(processes)
        workers[chosen].kill()
        workers[chosen].join()
        kills += 1
        workers[chosen] = begin()
    (notes / _STOP).touch()
    for each in workers:
        each.join()
        assert each.exitcode == 0, f"a worker ended with {each.exitcode}"
    return kills


def _noted(notes: Path) -> int:
    """How many lines the workers noted."""
    return sum(path.read_bytes().count(b"\n") for path in notes.glob("*.jsonl"))


@contextmanager
def _address(kind: str, folder: Path) -> Iterator[str]:
    """An empty store of a kind; its server is a process of its own, as workers are forked from one without threads."""
    if kind == "local":
        yield str(folder / "store")
        return
    ours, theirs = _FORK.Pipe()
    serve: Callable[[], Any] = gcs_server if kind == "gs" else s3_server

    def run() -> None:
        with serve() as proxy:
            theirs.send(proxy.environment)
            theirs.recv()

    server = _FORK.Process(target=run, daemon=True)
    server.start()
    os.environ |= ours.recv()
    os.environ["GATEHOUSE_CACHE"] = str(folder / "cache")
    try:
        yield f"{kind}://{BUCKET}/race"
    finally:
        ours.send(None)
        server.join()


def _in_another_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives in a process of its own, so that clients and their threads are not forked into workers."""
    ours, theirs = _FORK.Pipe()
    child = _FORK.Process(target=lambda: theirs.send(function(*arguments)))
    child.start()
    theirs.close()
    given = ours.recv()
    child.join()
    return given


def main() -> None:
    """Race, check, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("local", "s3", "gs"), default="local")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--acts", type=int, default=100, help="At least so many, however slow the machine is.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ[URI] = f"sqlite:///{folder}/mlflow.db"
        (folder / "notes").mkdir()
        with _address(given.store, folder) as address:
            before = _in_another_process(_begin, address)
            kills = _race(address, folder / "notes", given.processes, given.seconds, given.acts)
            store = ArtifactStore.open(address)
            records, history = Ledger(store, NAME).records(), read_history(folder / "notes")
            found = [*problems(records, before, history), *wrong_aliases(store)]
    answers = {word: sum(each.answer == word for each in history) for word in ("done", "read", "refused", "")}
    print(f"{given.store}: {len(records) - before} transitions by {given.processes} processes in {given.seconds:g} s,")
    print(f"{answers['done']} acts done, {answers['refused']} refused, {answers['read']} reads, {kills} kills,")
    print(f"{answers['']} of them within an act; {len(found)} problems")
    print("\n".join(found))
    sys.exit(1 if found or not answers["done"] else 0)


if __name__ == "__main__":
    main()
