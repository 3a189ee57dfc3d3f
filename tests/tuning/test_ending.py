"""Why an experiment ends is judged until its last trial has ended."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from gatehouse.tuning.controller import Controller, ExperimentStoppedError
from gatehouse.tuning.runner import Event, Stopped
from gatehouse.tuning.study import ExperimentStudy
from tests.tuning.stand_in import STEPS, Scripted, experiment, trained
from tests.tuning.test_controller import NAME, run


@pytest.mark.parametrize(
    ("given", "ended"),
    [
        ({"budget": {"steps": 11}}, "steps"),
        ({"budget": {"minutes": 0.5}}, "minutes"),
        ({"budget": {"cost": 0.5}}, "cost"),
        ({"objective": {"metric": "log_loss", "goal": 9.0}}, "goal"),
        ({}, "stopped"),
    ],
)
@pytest.mark.parametrize("parallel", [1, 3], ids=["one at a time", "all at once"])
def test_an_ending_comes_also_while_the_last_trials_run(given: dict[str, Any], ended: str, parallel: int) -> None:
    """The last trial comes to its end only once it is told to."""
    runner, readings = _LastRunsOn(), itertools.count(1)
    study = ExperimentStudy(experiment(max_trial_count=3, parallel_trial_count=parallel, **given), 3, STEPS, NAME)

    def late() -> bool:
        return len(runner.started) == 3 and sum(trial.ended for trial in study.trials) == 2

    done = Controller(
        study,
        runner,
        stopped=lambda: ended == "stopped" and late(),
        clock=lambda: 100.0 * next(readings) * late(),
        price=3600.0,
    ).run()
    assert done.ended == ended and done.trials[0].state == "succeeded"
    assert done.trials[-1].state == "killed" or (ended == "goal" and parallel == 1)


class _LastRunsOn(Scripted):
    """A runner whose third trial reports three steps, and ends when it is stopped."""

    def start(self, number: int, parameters: dict[str, Any], notify: Callable[[Event], None]) -> Any:
        if number < 2:
            return super().start(number, parameters, notify)
        self.started.append(number)
        for event, _ in zip(trained(number, parameters), range(3), strict=False):
            notify(event)
        return _Ends(lambda: notify(Stopped(number, "job")))


class _Ends:
    def __init__(self, stop: Callable[[], None]) -> None:
        self.stop = stop


def test_a_stop_before_any_trial_succeeded_is_not_tried_again() -> None:
    with pytest.raises(ExperimentStoppedError, match="None of 0 trials succeeded") as raised:
        run(experiment(), stopped=lambda: True)
    assert raised.value.permanent
