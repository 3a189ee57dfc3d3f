"""Processes that promote and roll back at once, and are killed at random; then the history is checked by the ledger.

    python -m tests.registry.race --store gs --processes 16 --seconds 60

Every act is noted before it is asked for and after it was answered. The order of the ledger's records is the order in
which the acts must have happened, and `problems` lists what contradicts it: an answer that does not fit the state in
which it was given, an act that ended before another began and stands behind it, a record that is lost, doubled or that
nobody asked for, a state without exactly one champion, and aliases in MLflow that differ from those of the ledger.
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

from gatehouse.registry.ledger import ALIASES, CHAMPION, Ledger, Record, State, fold
from gatehouse.registry.projection import project
from gatehouse.registry.promotion import PromotionError, next_promotion, next_rollback, promote, rollback
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of
from gatehouse.tracking.place import URI
from tests.registry.gate import NAME, make_gate
from tests.stand_ins.servers import BUCKET, gcs_server, s3_server

VERSIONS = 6
_KILL_AFTER = 0.1  # Seconds at most, once three acts were begun or answered since the last kill.
_FORK = multiprocessing.get_context("fork")


@dataclass
class Operation:
    """One act as its process saw it; `ended` is infinite, and `answer` empty, if the process was killed within it.

    `answer` is `read`, `done`, or `refused`; `size` and `champion` are of the state that was answered. `position` is
    the record at which the act stands in the ledger; 0 for none.
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

    def record(self, state: State) -> Record | None:
        if self.kind == "promote":
            return next_promotion(state, NAME, self.version, self.key, True, self.to)
        return next_rollback(state, NAME, self.version, self.key)

    def is_refused(self, state: State) -> bool:
        try:
            self.record(state)
        except PromotionError:
            return True
        return False


def work(address: str, notes: Path, worker: str) -> None:
    store, chance = ArtifactStore.open(address), random.Random(worker)
    descriptor = os.open(notes / f"{worker}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(body: dict[str, Any]) -> None:
        os.write(descriptor, (json.dumps(body | {"at": time.monotonic()}) + "\n").encode())

    count = 0
    while not (notes / "stop").exists():
        count += 1
        key, kind = f"{worker}.{count}", chance.choices(("promote", "rollback", "read"), (5, 3, 2))[0]
        version, to = chance.randint(1, VERSIONS), chance.choices((CHAMPION, "canary", "shadow"), (4, 1, 1))[0]
        if kind == "rollback":
            version, to = Ledger(store, NAME).state().champion, ""
        note({"key": key, "kind": kind, "version": version, "to": to})
        try:
            if kind == "promote":
                state = promote(store, NAME, version, key, override=True, to=to)
            else:
                state = rollback(store, NAME, version, key) if kind == "rollback" else Ledger(store, NAME).state()
            answer = {"answer": "read" if kind == "read" else "done", "size": state.size, "champion": state.champion}
        except PromotionError:
            answer = {"answer": "refused"}
        note({"key": key} | answer)


def read_history(notes: Path) -> list[Operation]:
    acts: dict[str, Operation] = {}
    for path in sorted(notes.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            body = json.loads(line)
            at = body.pop("at")
            if "kind" in body:
                acts[body["key"]] = Operation(**body, began=at)
            else:
                for name, value in (body | {"ended": at}).items():
                    setattr(acts[body["key"]], name, value)
    return list(acts.values())


def problems(records: list[Record], before: int, history: list[Operation]) -> Iterator[str]:
    """What in a history contradicts the ledger, which had `before` records when the race began."""
    states = [State()]
    for record in records:
        states.append(fold([record], states[-1]))
    for number, state in enumerate(states[before:], start=before):
        champion = state.version(state.champion)
        is_in_use = champion is not None and not champion.archived and not champion.withdrawn
        if not is_in_use or len(set(state.champions)) != len(state.champions):
            yield f"after record {number}: expected one champion that is in use, found {state.champions}"

    keys = {act.key for act in history}
    written: dict[str, int] = {}
    for number, record in enumerate(records[before:], start=before + 1):
        if record.reason in written:
            yield f"record {number}: {record.reason} was written before, as record {written[record.reason]}"
        if record.reason not in keys:
            yield f"record {number}: nobody asked for {record.reason!r}"
        written[record.reason] = number

    for act in history:
        act.position = written.get(act.key, act.size if act.answer in ("read", "done") else 0)
    for act in history:  # Answers that no state within the act's time explains.
        if act.answer == "refused":
            low = max((other.position for other in history if other.ended < act.began), default=before)
            later = (other.position for other in history if other.began > act.ended and other.position)
            high = min(later, default=len(states) - 1)
            if act.key in written:
                yield f"{act.key}: was refused, and is record {written[act.key]}"
            elif not any(act.is_refused(state) for state in states[low : high + 1]):
                yield f"{act.key}: was refused, though no state between records {low} and {high} refuses it"
        elif act.answer == "done" and act.key not in written and act.record(states[act.size]) is not None:
            yield f"{act.key}: was answered, and its record is lost"
        elif act.answer and states[act.size].champion != act.champion:
            yield f"{act.key}: saw champion {act.champion} after record {act.size}, not {states[act.size].champion}"

    placed = [act for act in history if act.position]
    ended = sorted((act for act in placed if act.answer), key=lambda act: act.ended)
    latest, at = 0, 0
    for act in sorted(placed, key=lambda act: act.began):
        while at < len(ended) and ended[at].ended < act.began:
            latest, at = max(latest, ended[at].position), at + 1
        if act.position < latest:
            yield f"{act.key}: stands at record {act.position}, and began after record {latest} was answered"


def wrong_aliases(store: ArtifactStore) -> Iterator[str]:
    state, tracking = Ledger(store, NAME).state(), tracking_of(store)
    project(store, NAME, state)
    assert tracking is not None
    with tracking.client() as client:
        shown = {name: int(number) for name, number in client.get_registered_model(NAME).aliases.items()}
        tags = {int(entry.version): entry.tags for entry in client.search_model_versions(f"name = '{NAME}'")}
    aliases = {alias: int(tags[number]["gatehouse.version"]) for alias, number in shown.items()}
    expected = {alias: state.holder(alias) for alias in ALIASES if state.holder(alias)}
    if aliases != expected:
        yield f"aliases in MLflow: expected {expected}, as in the ledger, found {aliases}"


def _begin(address: str) -> int:
    """Register all versions, the first of them as champion; gives the number of records."""
    store = ArtifactStore.open(address)
    gate = make_gate(store)
    for seed in range(1, VERSIONS + 1):
        gate.run(gate.model(seed))
    return len(Ledger(store, NAME).records())


def _race(address: str, notes: Path, processes: int, seconds: float, acts: int) -> int:
    """Let workers act, kill one now and then and begin another in its place; gives the number of kills."""
    until, kills, names, noted = time.monotonic() + seconds, 0, iter(range(1_000_000)), 0

    def begin() -> BaseProcess:
        started = _FORK.Process(target=work, args=(address, notes, f"w{next(names)}"))
        started.start()
        return started

    workers = [begin() for _ in range(processes)]
    while time.monotonic() < until or noted < 2 * acts:
        if (lines := sum(path.read_bytes().count(b"\n") for path in notes.glob("*.jsonl"))) < noted + 3:
            time.sleep(0.01)
            continue
        noted = lines
        time.sleep(random.uniform(0, _KILL_AFTER))
        chosen = random.randrange(processes)
        workers[chosen].kill()
        workers[chosen].join()
        kills += 1
        workers[chosen] = begin()
    (notes / "stop").touch()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0, f"a worker ended with {worker.exitcode}"
    return kills


@contextmanager
def _address(kind: str, folder: Path) -> Iterator[str]:
    """An empty store of a kind; its server is a process of its own, as workers are forked from one without threads."""
    if kind == "local":
        yield str(folder / "store")
        return
    here, there = _FORK.Pipe()
    serve: Callable[[], Any] = gcs_server if kind == "gs" else s3_server

    def run() -> None:
        with serve() as proxy:
            there.send(proxy.environment)
            there.recv()

    server = _FORK.Process(target=run, daemon=True)
    server.start()
    os.environ |= here.recv()
    os.environ["GATEHOUSE_CACHE"] = str(folder / "cache")
    try:
        yield f"{kind}://{BUCKET}/race"
    finally:
        here.send(None)
        server.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("local", "s3", "gs"), default="local")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--acts", type=int, default=100, help="At least so many, however slow the machine is.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ[URI] = f"sqlite:///{folder}/mlflow.db"
        (folder / "notes").mkdir()
        with _address(options.store, folder) as address:
            here, there = _FORK.Pipe()  # In another process, so that no client with threads is forked into workers.
            beginning = _FORK.Process(target=lambda: there.send(_begin(address)))
            beginning.start()
            there.close()
            before = here.recv()
            beginning.join()
            kills = _race(address, folder / "notes", options.processes, options.seconds, options.acts)
            store = ArtifactStore.open(address)
            records, history = Ledger(store, NAME).records(), read_history(folder / "notes")
            contradictions = [*problems(records, before, history), *wrong_aliases(store)]
    answers = {word: sum(act.answer == word for act in history) for word in ("done", "read", "refused", "")}
    print(f"{options.store}: {len(records) - before} transitions by {options.processes} processes,")
    print(f"{answers['done']} acts done, {answers['refused']} refused, {answers['read']} reads, {kills} kills,")
    print(f"{answers['']} of them within an act; {len(contradictions)} problems")
    print("\n".join(contradictions))
    sys.exit(1 if contradictions or not answers["done"] else 0)


if __name__ == "__main__":
    main()
