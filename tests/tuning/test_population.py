"""Population-based training: the worst members copy the best, and every member is one ordinary training."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from gatehouse.store.store import ArtifactStore
from gatehouse.training.spec import NetworkTraining, beginning, changed
from gatehouse.tuning.controller import Controller, Experiment, ExperimentFailedError
from gatehouse.tuning.runner import Ended, Event, Reported
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.study import ExperimentStudy, opened_study
from gatehouse.tuning.trial import Trial
from tests.training.specs import network
from tests.tuning.stand_in import DROPOUT, RATE, REFUSED, Script, Scripted, experiment, replay
from tests.tuning.test_controller import Interrupted, Killed, Threaded, _Inbox

EPOCHS, SIZE = 5, 6
CLIP = {"name": "optimizer.clip_norm", "type": "categorical", "choices": [0.1, 1.0, 10.0]}
BASE = network(epochs=EPOCHS)


def population(**fields: Any) -> ExperimentSpec:
    algorithm = {"name": "population", "population_size": SIZE} | fields.pop("algorithm", {})
    fields = {"parameters": [RATE, CLIP, DROPOUT], "max_trial_count": 100, "steps_per_trial": 0} | fields
    return experiment(algorithm=algorithm, **fields)


def as_spec(settings: dict[str, Any]) -> NetworkTraining:
    spec = changed(BASE, settings)
    assert isinstance(spec, NetworkTraining)
    return spec


def trained(number: int, settings: dict[str, Any]) -> Iterator[Event]:
    """A training that each epoch brings on by so much as its learning rate is near to that which is best then."""
    spec, left, losses = as_spec(settings), 1.0, []
    for epoch in range(spec.stopping.epochs):
        left *= 0.4 + 0.8 * min(1.0, abs(math.log10(spec.optimizer.at(epoch).learning_rate / 0.1 ** (1 + epoch / 2))))
        losses.append(left)
        yield Reported(number, epoch + 1, spec.stopping.epochs, {"log_loss": left})
    yield Ended(number, {"log_loss": min(losses)}, {"size_bytes": 1.0}, f"model-{number}", f"job-{number}")


def run(spec: ExperimentSpec, runner: Any = None, **fields: Any) -> Experiment:
    return Controller(ExperimentStudy(spec, 3, EPOCHS, "k", **fields), runner or Scripted(trained)).run()


def _last(trial: Trial) -> float:
    return trial.intermediate[-1][1] if trial.intermediate else math.inf


def test_the_worst_members_go_on_from_the_best_and_each_is_one_training() -> None:
    specs: dict[int, NetworkTraining] = {}

    def script(number: int, settings: dict[str, Any]) -> Iterator[Event]:
        specs[number] = as_spec(settings)
        yield from trained(number, settings)

    spec = population()
    done = run(spec, Scripted(script))
    assert (done.ended, len(done.trials), done.steps) == ("generations", SIZE * EPOCHS, SIZE * EPOCHS)
    copied = 0
    for trial in done.trials[SIZE:]:
        generation = trial.number // SIZE
        before = sorted(done.trials[(generation - 1) * SIZE : generation * SIZE], key=_last)
        assert trial.parent is not None
        parent = done.trials[trial.parent]
        assert beginning(specs[trial.number], generation) == specs[trial.parent], "it is not what its parent began"
        if done.trials[trial.number - SIZE] is before[-1]:
            copied += 1
            assert parent is before[0]
            assert trial.parameters["model.dropout"] == parent.parameters["model.dropout"]
            rate, old = trial.parameters["optimizer.learning_rate"], parent.parameters["optimizer.learning_rate"]
            near = [min(max(old * factor, RATE["min"]), RATE["max"]) for factor in (0.8, 1.25)]
            assert rate != old and (rate in near or RATE["min"] <= rate <= RATE["max"])
        else:
            assert trial.parent == trial.number - SIZE and trial.parameters == parent.parameters
    assert copied == EPOCHS - 1
    best = as_spec(done.settings | {"stopping.epochs": EPOCHS})
    assert beginning(best, specs[done.best.number].stopping.epochs) == specs[done.best.number]
    assert best.optimizer.changes and best.optimizer.is_independent_of_length
    constant = [list(trained(0, trial.parameters | {"stopping.epochs": EPOCHS}))[-1] for trial in done.trials[:SIZE]]
    assert done.best.values["log_loss"] < min(entry.values["log_loss"] for entry in constant)  # type: ignore[union-attr]


def test_a_population_is_the_same_at_any_parallelism_and_with_any_interruption(store: ArtifactStore) -> None:
    spec = population(algorithm={"interval": 2, "quantile": 0.5})
    whole = run(spec)
    assert [len(trial.intermediate) for trial in whole.trials[::SIZE]] == [2, 4, 5] and whole.steps == SIZE * EPOCHS
    for parallel in (2, 4, 30):
        done = run(spec.model_copy(update={"parallel_trial_count": parallel}), Threaded(trained))
        assert [(entry.parameters, entry.parent, entry.values) for entry in done.trials] == [
            (entry.parameters, entry.parent, entry.values) for entry in whole.trials
        ]
        assert replay(spec, 3, EPOCHS, "k", done.trials) is None
    for trials, events in ((2, 1), (5, 0), (3, 2)):
        interrupted = Interrupted(trials, events)
        interrupted.script = trained
        with opened_study(store.objects, "k", spec, 3, EPOCHS) as study, pytest.raises(Killed):
            Controller(study, interrupted, inbox=_Inbox()).run()
    runner = Scripted(trained)
    with opened_study(store.objects, "k", spec, 3, EPOCHS) as study:
        assert Controller(study, runner).run().trials == whole.trials
    assert runner.started == list(range(runner.started[0], len(whole.trials))), "a trial was repeated"


def failing(*numbers: int) -> Script:
    def script(number: int, settings: dict[str, Any]) -> Iterator[Event]:
        if number in numbers:
            yield Ended(number, error=REFUSED)
        else:
            yield from trained(number, settings)

    return script


def test_a_failed_member_is_replaced_by_a_copy_of_a_good_one_and_counts() -> None:
    done = run(population(), Scripted(failing(1, 2)))
    best = min(done.trials[:SIZE], key=_last)
    assert done.trials[SIZE + 1].parent == done.trials[SIZE + 2].parent == best.number
    assert done.trials[SIZE + 1].parameters != done.trials[SIZE + 2].parameters
    with pytest.raises(ExperimentFailedError, match=r"(?s)2 of \d+ trials failed.*trial 1: .*trial 2: "):
        run(population(max_failed_trial_count=1), Scripted(failing(1, 2)))
    anew = run(population(max_failed_trial_count=SIZE), Scripted(failing(*range(SIZE))))
    assert [trial.parent for trial in anew.trials[SIZE : 2 * SIZE]] == [None] * SIZE, "nobody is there to copy"
    assert len({trial.parameters["optimizer.learning_rate"] for trial in anew.trials[: 2 * SIZE]}) == 2 * SIZE


def test_members_begin_with_earlier_configurations_and_what_they_take_counts() -> None:
    warm = {"optimizer.learning_rate": 0.02, "optimizer.clip_norm": 10.0, "model.dropout": 0.3}
    done = run(population(budget={"steps": SIZE + 1}), warm=(warm, {"optimizer.learning_rate": 0.03}))
    assert done.trials[0].parameters == warm and done.trials[1].parameters["optimizer.learning_rate"] == 0.03
    assert (done.ended, done.steps, len(done.trials)) == ("steps", SIZE + 1, SIZE + 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parameters": [DROPOUT]}, "needs a parameter that may change in training: optimizer.learning_rate, opt"),
        ({"trial_settings": {"stopping.epochs": 3}}, "stopping.epochs: a population decides it"),
        ({"trial_settings": {"optimizer.schedule": "linear"}}, "optimizer.schedule: a population decides it"),
        ({"max_trial_count": 2 * SIZE - 1}, "at least two generations, 12, found 11"),
        ({"steps_per_trial": 4}, "the steps of a population are epochs"),
        ({"early_stopping": "MedianPruner"}, "a population replaces its worst members"),
        ({"objective": "size_bytes"}, "size_bytes is not measured while a member trains"),
        ({"objective": ["log_loss", "roc_auc"]}, "population takes one objective"),
        ({"algorithm": {"quantile": 0.6}}, "less than or equal to 0.5"),
    ],
)
def test_what_a_population_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        population(**settings)
