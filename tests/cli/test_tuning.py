"""`gatehouse tuning`: experiments that are published, under way and interrupted."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gatehouse.api.tuning import Experiment, matching
from gatehouse.cli import tuning
from gatehouse.cli.tuning import app
from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.store.canonical import canonical_json
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.journal import controller_turn, is_asked_to_stop, remember
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.study import opened_study
from tests.tuning.experiments import about, trials

STUDY = "5eed" * 16
SPEC = {
    "objective": "log_loss",
    "max_trial_count": 6,
    "parameters": [{"name": "model.dropout", "type": "double", "min": 0.1, "max": 0.5}],
}
GOES_ON = "The next run of its pipeline goes on with it."


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followed experiments are looked at every hundredth of a second."""
    monkeypatch.setattr(tuning, "_SECONDS", 0.01)


def find_experiment(store: ArtifactStore, text: str) -> Experiment:
    return matching(store, text)[0]


def listed(store: ArtifactStore, *arguments: str) -> Any:
    return json.loads(run(store, "list", *arguments, "--json").output)


def run(store: ArtifactStore, *arguments: str) -> Result:
    """A command that ends well."""
    result = CliRunner().invoke(app, [*arguments, "--store", store.address])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result


def published(store: ArtifactStore, count: int = 8, study: str = "", **changes: Any) -> Reference:
    made = trials(count)
    ended = [item for item in made if item["state"] == "succeeded"]
    best = min(ended, key=lambda trial: trial["values"]["log_loss"])["number"]
    files = {"experiment.json": canonical_json(about(best_trial=best, **changes)), "trials.json": canonical_json(made)}
    result = store.publish("experiments", "flights", files, details={"best_trial": best, "trials": count})
    store.append(f"measurements/{result}", {"stage": "tune", "study": study, "seconds": 600.0})
    return result


def begun(
    store: ArtifactStore,
    ended: int = 2,
    running: int = 1,
    key: str = STUDY,
    failed: int = 0,
    spec: Any = SPEC,
) -> None:
    """A study with so many trials that ended and that run, whose controller is gone."""
    sought = ExperimentSpec.model_validate(spec)
    remember(
        store.objects,
        key,
        {"name": "flights", "experiment": sought.described(4), "max_failed_trial_count": sought.max_failed_trial_count},
    )
    with opened_study(store.objects, key, sought, 1, 4) as study:
        for _ in range(failed):
            study.end(replace(study.ask(), state="failed", reason="OutOfMemory", message="Less memory, pturn."))
        for number in range(ended):
            trial = study.ask()
            study.report(trial.number, 1, 0.7)
            study.end(replace(trial, state="succeeded", values={"log_loss": 0.6 - number / 100}, intermediate=()))
        for _ in range(running):
            study.ask()


def test_what_is_published_is_listed_with_its_best_trial_and_why_it_ended(store: ArtifactStore) -> None:
    reference = published(store)
    assert reference.short in run(store, "list").output
    refused = CliRunner().invoke(app, ["list", "other", "--store", store.address])
    assert "has the models flights: expected the name of one, found 'other'" in str(refused.exception)
    (body,) = listed(store)
    assert (body["model"], body["state"], body["trials"], body["reference"]) == ("flights", "ended", 8, str(reference))
    assert body["values"]["log_loss"] < 0.6 and "max_trial_count" in body["why"]


def test_the_newest_experiment_of_a_model_is_meant_published_or_not(store: ArtifactStore) -> None:
    begun(store)
    made = published(store, study="other")
    assert find_experiment(store, "flights").reference == made
    first, second = listed(store)
    assert (first["state"], first["began"], second["state"]) == ("ended", None, "interrupted")
    written = store.objects.stat(f"{made}/manifest.json").modified
    assert first["changed"].startswith(time.strftime("%Y-%m-%dT%H:%M", time.gmtime(written))) and second["began"]
    begun(store, key="beef" * 16)
    assert find_experiment(store, "flights").study == "beef" * 16


def test_a_study_that_is_under_way_stands_first_and_its_trials_are_shown(store: ArtifactStore) -> None:
    published(store, study="other")
    begun(store)
    first = listed(store)[0]
    assert (first["model"], first["state"], first["trials"], first["study"]) == ("flights", "interrupted", 2, STUDY)
    shown = run(store, "show", "flights").output
    assert f"Interrupted: its controller is gone, 1 trial not finished. {GOES_ON}" in shown
    assert "3 trials (2 succeeded, 1 interrupted)" in shown and "trial 1 with log_loss 0.59" in shown
    trials = json.loads(run(store, "show", "flights", "--json").output)["trials"]
    assert [trial["state"] for trial in trials] == ["succeeded", "succeeded", "interrupted"]
    with controller_turn(store.objects, STUDY):
        assert listed(store)[0]["why"] == "Under way: 1 trial runs"
        os.utime(Path(store.address) / f"tuning/{STUDY}/controller.json", (time.time() - 20,) * 2)
        assert "its controller gave no sign of life for 20 s, 60 s mean interrupted" in listed(store)[0]["why"]


def test_a_name_is_a_model_a_reference_or_a_key(store: ArtifactStore) -> None:
    reference = published(store)
    begun(store)
    assert find_experiment(store, reference.short).reference == reference
    assert find_experiment(store, STUDY[:6]).study == STUDY
    assert find_experiment(store, "flights").study == STUDY
    with pytest.raises(ConfigurationError, match="gatehouse tuning list"):
        find_experiment(store, "weather")
    with pytest.raises(ConfigurationError, match="expected an experiment"):
        find_experiment(store, store.publish("models", "a", {"a.json": "{}"}).short)


def test_stop_asks_the_controller_and_only_one_that_runs(store: ArtifactStore) -> None:
    begun(store)
    refused = CliRunner().invoke(app, ["stop", "flights", "--store", store.address])
    assert isinstance(refused.exception, GatehouseError)
    assert "found one that is interrupted" in str(refused.exception)
    with controller_turn(store.objects, STUDY):
        assert "is asked to end;" in run(store, "stop", "flights").output
        assert is_asked_to_stop(store.objects, STUDY)
        assert "already" in run(store, "stop", "flights").output


def test_following_prints_a_line_for_each_event_and_ends_with_the_controller(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(store, ended=1, running=1)
    turn = controller_turn(store.objects, STUDY)
    turn.__enter__()
    monkeypatch.setattr(tuning.time, "sleep", lambda _: turn.__exit__(None, None, None))
    lines = run(store, "show", "flights", "--follow").output.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["trial 0", "trial 1 started"]
    assert lines[0].endswith("log_loss 0.6, best so far")
    assert lines[-1].startswith("Interrupted")
