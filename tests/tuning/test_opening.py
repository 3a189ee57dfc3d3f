"""Where an experiment lies while it runs: no controller loses or repeats a trial."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.controller import Controller
from gatehouse.tuning.journal import (
    SecondControllerError,
    StoreJournal,
    ask_to_stop,
    controller_turn,
    is_asked_to_stop,
    remember,
)
from gatehouse.tuning.runner import Ended, Event
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.study import ExperimentStudy, best_configurations, opened_study, read_study
from tests.tuning.stand_in import DROPOUT, SPACES, STEPS, Scripted, experiment, trained

SPEC = experiment(max_trial_count=6, parameters=SPACES["TPESampler"], early_stopping="MedianPruner")
TWELVE = SPEC.model_copy(update={"max_trial_count": 12})


def _controlled(store: ArtifactStore, spec: ExperimentSpec = SPEC) -> Scripted:
    runner = Scripted()
    with opened_study(store.objects, "k1", spec, 3, STEPS) as study:
        Controller(study, runner).run()
    return runner


def test_a_trial_is_in_the_journal_as_a_whole_or_not_at_all(store: ArtifactStore) -> None:
    _controlled(store)
    keys = list(store.objects.list("tuning/k1/journal"))
    assert keys == [f"tuning/k1/journal/{number:08d}.json" for number in range(len(keys))]
    assert len(keys) <= 1 + 2 * 6, "more than one object for a suggestion and one for an end"
    for count in range(1, len(keys) + 1):
        copy = ArtifactStore.open(Path(store.objects.address).parent / f"copy-{count}")
        for key in keys[:count]:
            copy.objects.put_bytes(key, store.objects.get_bytes(key))
        trials, _ = read_study(copy.objects, "k1")
        assert all(trial.parameters for trial in trials) and len(trials) == count // 2
        runner = _controlled(copy)
        assert read_study(copy.objects, "k1")[0] == read_study(store.objects, "k1")[0]
        assert runner.started == list(range((count - 1) // 2, 6)), "a trial was lost or repeated"


def test_a_second_controller_is_refused_while_the_first_lives(store: ArtifactStore) -> None:
    with controller_turn(store.objects, "k1", beat=0.05):
        with pytest.raises(SecondControllerError, match=f"has a controller, process {os.getpid()} on"):
            controller_turn(store.objects, "k1", beat=1).__enter__()
        assert read_study(store.objects, "k1")[1] == "running"
    with controller_turn(store.objects, "k1"):
        pass
    assert read_study(store.objects, "k1")[1] == "ended"


def test_the_turn_of_a_process_that_is_gone_is_taken_over(store: ArtifactStore) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with controller_turn(store.objects, "k1", beat=60):
        key = "tuning/k1/controller.json"
        body = json.loads(store.objects.get_bytes(key))
        store.objects.put_bytes("tuning/k2/controller.json", json.dumps(body | {"process": gone.pid}).encode())
        store.objects.put_bytes("tuning/k3/controller.json", json.dumps(body | {"host": "another"}).encode())
    began = time.monotonic()
    with controller_turn(store.objects, "k2", beat=60):
        assert time.monotonic() - began < 60, "the holder was watched, though its process is gone"
    with controller_turn(store.objects, "k3", beat=0.05):
        assert json.loads(store.objects.get_bytes("tuning/k3/controller.json"))["process"] == os.getpid()


def test_a_controller_that_lost_its_journal_to_another_ends(store: ArtifactStore) -> None:
    first, other = (StoreJournal(store.objects, "k1") for _ in range(2))
    for journal in (first, other):
        journal.append_logs([{"op_code": 0}])
    first.flush()
    with pytest.raises(SecondControllerError, match="written by another controller"):
        other.flush()


def test_an_experiment_is_asked_to_stop_until_another_run_begins_it(store: ArtifactStore) -> None:
    remember(store.objects, "k1", {}, "run 1")
    assert not is_asked_to_stop(store.objects, "k1")
    assert ask_to_stop(store.objects, "k1") and not ask_to_stop(store.objects, "k1")
    remember(store.objects, "k1", {}, "run 1")
    assert is_asked_to_stop(store.objects, "k1"), "a retry of the task that was stopped goes on"
    for run in ("run 2", ""):
        ask_to_stop(store.objects, "k1")
        remember(store.objects, "k1", {}, run)
        assert not is_asked_to_stop(store.objects, "k1")


def test_the_best_configurations_of_earlier_experiments_that_fit_are_read_once_each(
    store: ArtifactStore, caplog: pytest.LogCaptureFixture
) -> None:
    trials = [{"number": number, "parameters": {"model.dropout": number % 3 / 10}} for number in range(5)]
    references = []
    for best, front in ((2, [0, 2, 3]), (1, [1])):
        about = canonical_json({"best_trial": best, "front": front})
        files = {"trials.json": canonical_json(trials), "experiment.json": about}
        references.append(str(store.publish("experiments", "flights", files)))
    wide, narrow = (experiment(warm_start=references, parameters=[DROPOUT | {"max": most}]) for most in (0.5, 0.1))
    assert [configuration["model.dropout"] for configuration in best_configurations(store, wide)] == [0.2, 0.0, 0.1]
    assert not caplog.messages
    assert [configuration["model.dropout"] for configuration in best_configurations(store, narrow)] == [0.0, 0.1]
    assert caplog.messages == [
        f"warm_start: trial 2 of {references[0]} is left out: "
        "model.dropout is 0.2, expected from 0 to 0.1 in steps of 0.1"
    ]
    unknown = f"experiments/flights/sha256-{'0' * 64}"
    with pytest.raises(ConfigurationError, match=rf"tuning.warm_start: .*{unknown}"):
        best_configurations(store, experiment(warm_start=[unknown]))


def _to_be_killed(folder: Path) -> None:
    """A controller, each of whose trials notes in a file when it is done."""

    def script(number: int, parameters: dict[str, Any]) -> Iterator[Event]:
        for event in trained(number, parameters):
            if isinstance(event, Ended):
                with (folder.parent / "log").open("a") as log:
                    log.write(f"done {number}\n")
            yield event

    with opened_study(ArtifactStore.open(folder).objects, "k1", TWELVE, 3, STEPS) as study:
        Controller(study, Scripted(script)).run()


def test_a_controller_that_is_killed_at_any_point_loses_and_repeats_nothing(store: ArtifactStore) -> None:
    folder = Path(store.objects.address)
    log = folder.parent / "log"
    log.touch()
    for more in (1, 3, 2, None):
        child = multiprocessing.get_context("fork").Process(target=_to_be_killed, args=[folder])
        child.start()
        before = log.read_text().count("done")
        while more and child.is_alive() and log.read_text().count("done") < before + more:
            time.sleep(0.001)
        if more:
            child.kill()
        child.join()
    assert child.exitcode == 0
    done = Counter(log.read_text().splitlines())
    trials, state = read_study(store.objects, "k1")
    assert tuple(trials) == Controller(ExperimentStudy(TWELVE, 3, STEPS, "k1"), Scripted()).run().trials
    assert state == "ended" and set(done) == {f"done {number}" for number in range(12)}
    assert sum(done.values()) - len(done) <= 3, "a trial that had ended was run again"
