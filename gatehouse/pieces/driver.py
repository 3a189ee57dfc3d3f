"""The program that runs the calls of a stage elsewhere: on the head of a Ray cluster, or a pod of an Indexed Job.

It reads calls from a folder of the store, and appends their answers there. Started again, it runs those without one.
"""

import argparse
import json
import logging
import time
import uuid
from collections.abc import Iterator
from typing import Any

from gatehouse.errors import GatehouseError
from gatehouse.pieces.elsewhere import ANSWERS, ENGINE, KEY, LINES
from gatehouse.pieces.engine import Engine
from gatehouse.pieces.ray import run_on_ray
from gatehouse.pieces.worker import answer_to
from gatehouse.store.records import create_record, read_record, read_records
from gatehouse.store.store import ArtifactStore

_LOOK_SECONDS, _SEND_SECONDS, _WORKER_SECONDS = 1.0, 5.0, 600.0
_IDLE_SECONDS = 1800.0
"""After so long without a call, a driver on Ray ends: its task was killed, and was not started again."""


def main() -> None:
    """Run the calls in a folder."""
    parser = argparse.ArgumentParser(description="Run the pieces that a task lists in an artifact store.")
    parser.add_argument("store", help="Address of the artifact store.")
    parser.add_argument("folder", help="Folder of the calls in the store.")
    parser.add_argument("--index", type=int, help="Run this piece alone, in this process.")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    store, folder = ArtifactStore.open(arguments.store), arguments.folder
    if arguments.index is not None:
        _run(store, folder, "0", arguments.index)
        return
    done, until = set[str](), time.monotonic() + _IDLE_SECONDS
    while time.monotonic() < until:
        for key in sorted(set(store.objects.list(f"{folder}/calls")) - done):
            _run(store, folder, key.rpartition("/")[2].removesuffix(".json"))
            done.add(key)
            until = time.monotonic() + _IDLE_SECONDS
        time.sleep(_LOOK_SECONDS)


def _run(store: ArtifactStore, folder: str, call: str, index: int | None = None) -> None:
    """Run the pieces of a call that have no answer yet; an error is an answer, and ends the call."""
    record, into = read_record(store.objects, f"{folder}/calls/{call}.json"), f"{folder}/answers/{call}"
    if record is None:  # The task has ended, and removed it.
        return
    engine = Engine.model_validate(record[ENGINE])
    answered = {
        answer[KEY]
        for sent in read_records(store.objects, store.objects.list(into)).values()
        for answer in sent[ANSWERS]
    }
    lines = [line for line in record[LINES] if json.loads(line)[KEY] not in answered]
    pending, sent = list[dict[str, Any]](), time.monotonic()

    def send() -> None:
        create_record(store.objects, f"{into}/{uuid.uuid4().hex}.json", {ANSWERS: pending})

    def answers() -> Iterator[tuple[str, dict[str, Any]]]:
        if index is not None:
            yield record[LINES][index], json.loads(answer_to(record[LINES][index], engine.memory_bytes))
            return
        for number, answer in run_on_ray(engine, lines, _WORKER_SECONDS) if lines else ():
            yield lines[number], answer

    try:
        for line, answer in answers():
            pending.append(answer | {KEY: json.loads(line)[KEY]})
            if "error" in answer:
                break
            if time.monotonic() - sent > _SEND_SECONDS:
                send()
                pending, sent = [], time.monotonic()
    except GatehouseError as error:
        kind = type(error)
        pending.append({"error": f"{kind.__module__}:{kind.__qualname__}", "message": str(error), KEY: ""})
    if pending:
        send()


if __name__ == "__main__":
    main()
