"""The controller: every trial ends in a state with its reason, and an interrupted experiment is the same experiment."""

import itertools
import math
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import optuna
import pytest

from gatehouse.errors import StoreError
from gatehouse.launchers.launcher import EvictedError, TrainingStoppedError
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.controller import (
    Controller,
    Experiment,
    ExperimentFailedError,
    ExperimentStoppedError,
    best_trial,
)
from gatehouse.tuning.runner import Ended, Event, Handle, Reported
from gatehouse.tuning.spec import Constraint, ExperimentSpec
from gatehouse.tuning.study import ExperimentStudy, opened_study, read_study
from gatehouse.tuning.trial import Trial
from tests.tuning.stand_in import (
    DEPTH,
    LATE,
    SPACES,
    STEPS,
    Script,
    Scripted,
    experiment,
    failing,
    loss,
    replay,
    trained,
)

NAME = "sha256-test"


def run(spec: ExperimentSpec, script: Script = trained, seed: int = 3, **settings: Any) -> Experiment:
    return Controller(ExperimentStudy(spec, seed, STEPS, NAME), Scripted(script), **settings).run()


class Killed(Exception):
    """Stands for the end of the controller's process."""


class Interrupted(Scripted):
    """A runner whose controller is killed when it has begun so many trials, and had so many events of the last."""

    def __init__(self, trials: int, events: int) -> None:
        super().__init__()
        self.trials, self.events = trials, events

    def start(self, number: int, parameters: dict[str, Any], notify: Callable[[Event], None]) -> Any:
        if len(self.started) < self.trials:
            return super().start(number, parameters, notify)
        for event, _ in zip(self.script(number, parameters), range(self.events), strict=False):
            notify(event)
        self.events = 0
        return _Kills()


class _Kills:
    def stop(self) -> None:
        """Nothing is left to stop."""


class _Inbox(queue.SimpleQueue[Event]):
    """Ends the controller where it would wait."""

    def get(self, block: bool = True, timeout: float | None = None) -> Event:
        if self.empty():
            raise Killed
        return super().get(block, timeout)


@pytest.mark.parametrize(
    "algorithm", ["RandomSampler", "GridSampler", "QMCSampler", "TPESampler", "GPSampler", "NSGAIISampler"]
)
def test_an_interrupted_experiment_is_the_one_that_was_not(store: ArtifactStore, algorithm: str) -> None:
    settings: dict[str, Any] = {"name": algorithm}
    settings |= {
        "TPESampler": {"n_startup_trials": 4},
        "GPSampler": {"n_startup_trials": 11},  # Its suggestions take a second each.
        "NSGAIISampler": {"population_size": 4},
    }.get(algorithm, {})
    spec = experiment(
        algorithm=settings, parameters=SPACES[algorithm], max_trial_count=14, early_stopping="SuccessiveHalvingPruner"
    )
    whole = run(spec)
    for trials, events in ((0, 2), (1, 0), (4, 5), (0, 4)):
        with opened_study(store.objects, "k1", spec, 3, STEPS) as study, pytest.raises(Killed):
            Controller(study, Interrupted(trials, events), inbox=_Inbox()).run()
    runner = Scripted()
    with opened_study(store.objects, "k1", spec, 3, STEPS) as study:
        gone_on = Controller(study, runner).run()
    assert gone_on.trials == whole.trials and gone_on.best == whole.best
    assert runner.started == list(range(runner.started[0], 14)) and runner.started[0] >= 5, "a trial was repeated"
    assert replay(spec, 3, STEPS, "k1", gone_on.trials) is None


class Threaded(Scripted):
    """A runner with a thread a trial, which waits for its turn, so that trials end in an order that differs."""

    def start(self, number: int, parameters: dict[str, Any], notify: Callable[[Event], None]) -> Handle:
        self.started.append(number)
        handle = _Thread(self.script(number, parameters), notify, number)
        threading.Thread(target=handle.run).start()
        return handle


class _Thread:
    def __init__(self, events: Iterator[Event], notify: Callable[[Event], None], number: int) -> None:
        self.events, self.message, self.number, self.ended = events, notify, number, threading.Event()

    def run(self) -> None:
        for event in self.events:
            if self.ended.is_set():
                self.message(Ended(self.number, error=TrainingStoppedError()))
                return
            self.message(event)

    def stop(self) -> None:
        self.ended.set()


def test_trials_in_parallel_are_suggested_by_what_their_record_says() -> None:
    spec = experiment(
        max_trial_count=30,
        parallel_trial_count=4,
        algorithm={"name": "TPESampler", "n_startup_trials": 4},
        parameters=SPACES["TPESampler"],
        early_stopping="MedianPruner",
    )
    done = Controller(ExperimentStudy(spec, 3, STEPS, NAME), Threaded(trained)).run()
    assert [trial.number for trial in done.trials] == list(range(30)) and all(trial.ended for trial in done.trials)
    assert any(len(trial.beside) == 3 for trial in done.trials) and max(len(trial.beside) for trial in done.trials) == 3
    assert replay(spec, 3, STEPS, NAME, done.trials) is None


@pytest.mark.parametrize(
    "name", ["MedianPruner", "PercentilePruner", "SuccessiveHalvingPruner", "HyperbandPruner", "PatientPruner"]
)
def test_trials_are_pruned_as_by_optunas_own_loop(name: str) -> None:
    rule: dict[str, Any] = {"name": name}
    rule |= {"n_startup_trials": 2} if name in ("MedianPruner", "PercentilePruner") else {}
    rule |= {"percentile": 25.0} if name == "PercentilePruner" else {}
    rule |= {"patience": 1} if name == "PatientPruner" else {}
    rule |= {"reduction_factor": 2, "min_resource": 1} if "H" in name else {}
    spec = experiment(max_trial_count=25, early_stopping=rule, algorithm="RandomSampler")
    study = ExperimentStudy(spec, 3, STEPS, NAME)

    def curve(parameters: dict[str, Any], step: int) -> float:
        """Large rates become worse with every step."""
        return loss(parameters, step) + (0.2 * step if parameters["optimizer.learning_rate"] > 0.01 else 0.0)

    def script(number: int, parameters: dict[str, Any]) -> Iterator[Event]:
        for step in range(1, STEPS + 1):
            yield Reported(number, step, STEPS, {"log_loss": curve(parameters, step)})
        yield _won(number, curve(parameters, STEPS))

    done = Controller(study, Scripted(script)).run()
    own = optuna.create_study(pruner=study.optuna.pruner, study_name=NAME)

    def objective(trial: optuna.Trial) -> float:
        parameters = done.trials[trial.number].parameters
        for step in range(1, STEPS):
            trial.report(curve(parameters, step), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return curve(parameters, STEPS)

    own.optimize(objective, n_trials=25)
    pruned = [trial.state == "early_stopped" for trial in done.trials]
    assert pruned == [entry.state == optuna.trial.TrialState.PRUNED for entry in own.trials] and any(pruned)
    assert {trial.reason for trial in done.trials if trial.state == "early_stopped"} <= {
        f"pruned at step {step} of 4" for step in (1, 2, 3)
    }


@pytest.mark.parametrize(
    ("script", "reason", "message"),
    [
        (failing(1), "TrainingFailedError", "out of memory"),
        (
            lambda number, _: iter(
                [Reported(number, 1, 4, {"log_loss": math.nan if number == 1 else 1.0}), _won(number)]
            ),
            "NonFiniteValue",
            "log_loss is nan at step 1 of 4",
        ),
        (lambda number, _: iter([_won(number, math.inf if number == 1 else 1.0)]), "NonFiniteValue", "log_loss is inf"),
    ],
    ids=["an error", "a report", "a result"],
)
def test_a_failed_trial_says_why_and_the_experiment_goes_on(script: Script, reason: str, message: str) -> None:
    done = run(experiment(max_trial_count=3), script)
    assert [trial.state for trial in done.trials] == ["succeeded", "failed", "succeeded"]
    assert done.trials[1].reason == reason and message in done.trials[1].message and not done.trials[1].feasible


def _won(number: int, value: float = 1.0) -> Ended:
    return Ended(number, {"log_loss": value})


def test_too_many_failed_trials_end_the_experiment_with_all_reasons() -> None:
    with pytest.raises(
        ExperimentFailedError, match=r"(?s)2 of 3 trials failed, expected at most 1\..*trial 0: .*trial 2"
    ):
        run(experiment(max_failed_trial_count=1), failing(0, 2, 4))
    with pytest.raises(ExperimentFailedError, match=r"None of 2 trials succeeded .*\(2 failed\)"):
        run(experiment(max_trial_count=2), failing(0, 1))


@pytest.mark.parametrize(("evictions", "state", "starts"), [(2, "succeeded", 3), (3, "failed", 3)])
def test_what_may_pass_is_begun_again_twice(evictions: int, state: str, starts: int) -> None:
    left = [evictions]

    def script(number: int, parameters: dict[str, Any]) -> Iterator[Event]:
        if number == 1 and left[0]:
            left[0] -= 1
            yield Reported(number, 1, STEPS, {"log_loss": loss(parameters, 1)})
            yield Ended(number, error=EvictedError("The pod was evicted."))
        else:
            yield from trained(number, parameters)

    runner = Scripted(script)
    done = Controller(ExperimentStudy(experiment(max_trial_count=3), 3, STEPS, NAME), runner).run()
    assert done.trials[1].state == state and runner.started.count(1) == starts
    steps = [step for step, _ in done.trials[1].intermediate]
    assert steps == sorted(set(steps)), "a step counted twice"


@pytest.mark.parametrize(
    ("settings", "ended", "trials"),
    [
        ({}, "max_trial_count", 8),
        ({"budget": {"steps": 10}}, "steps", 3),
        ({"objective": {"metric": "log_loss", "goal": 0.31}}, "goal", 5),
        ({"algorithm": "GridSampler", "parameters": [DEPTH | {"when": {}}]}, "exhausted", 4),
        ({"budget": {"minutes": 1}}, "minutes", 3),
        ({"budget": {"cost": 0.5}}, "cost", 3),
    ],
)
def test_an_experiment_ends_by_its_limits_and_says_which(settings: dict[str, Any], ended: str, trials: int) -> None:
    """A clock that goes on by a second whenever it is read, and a trial costs a cent a second."""
    time = iter(range(10_000))
    limited = "budget" in settings and not settings["budget"].get("steps")
    clock = (lambda: next(time) * 1.0) if limited else (lambda: 0.0)
    done = run(experiment(**settings), clock=clock, price=72.0)
    assert done.ended == ended
    assert len(done.trials) == trials or limited
    assert all(trial.state in ("succeeded", "killed") for trial in done.trials)
    killed = [trial for trial in done.trials if trial.state == "killed"]
    assert [trial.reason for trial in killed] == [f"the experiment ended: {ended}"] * len(killed)


def test_earlier_configurations_are_tried_first_as_far_as_they_fit() -> None:
    warm = (
        {"model.architecture": "xgboost", "optimizer.learning_rate": 0.05, "model.max_depth": 7},
        {"model.architecture": "tabular_mlp", "optimizer.learning_rate": 7.0},
    )
    spec = experiment(parameters=SPACES["TPESampler"], max_trial_count=4)
    done = Controller(ExperimentStudy(spec, 3, STEPS, NAME, warm=warm), Scripted()).run()
    assert done.trials[0].parameters == warm[0]
    assert done.trials[1].parameters["model.architecture"] == "tabular_mlp"
    assert done.trials[1].parameters["optimizer.learning_rate"] != 7.0
    assert len(done.trials) == 4 and replay(spec, 3, STEPS, NAME, done.trials, warm) is None


def test_constraints_decide_what_can_be_best_and_steer_the_sampler() -> None:
    at_most = {"parameters": SPACES["TPESampler"], "constraints": [{"measure": "size_bytes", "at_most": 400}]}
    spec = experiment(max_trial_count=20, algorithm={"name": "TPESampler", "n_startup_trials": 5}, **at_most)
    study = ExperimentStudy(spec, 3, STEPS, NAME)
    done = Controller(study, Scripted()).run()
    assert {trial.feasible for trial in done.trials} == {True, False}
    assert all(trial.feasible == (trial.measures["size_bytes"] <= 400) for trial in done.trials)
    assert done.best.feasible and done.best.number in done.front
    violations = [entry.system_attrs["constraints:0:size_bytes"] for entry in study.optuna.trials]
    assert violations == [trial.measures["size_bytes"] - 400 for trial in done.trials]
    free = run(spec.model_copy(update={"constraints": ()}))
    assert [entry.parameters for entry in free.trials] != [entry.parameters for entry in done.trials]
    with pytest.raises(ExperimentFailedError, match=r"keeps to all constraints: size_bytes: at most 1, the"):
        run(experiment(max_trial_count=2, constraints=[{"measure": "size_bytes", "at_most": 1}]))


def test_an_error_of_the_store_ends_the_controller_and_its_trials_are_gone_on_with(store: ArtifactStore) -> None:
    def script(number: int, parameters: dict[str, Any]) -> Iterator[Event]:
        yield from (
            [Ended(number, error=StoreError("The bucket is away."))] if number == 2 else trained(number, parameters)
        )

    spec = experiment(max_trial_count=4)
    with pytest.raises(StoreError, match="away"), opened_study(store.objects, "k1", spec, 3, STEPS) as study:
        Controller(study, Scripted(script)).run()
    trials, state = read_study(store.objects, "k1")
    assert state == "interrupted" and [trial.ended for trial in trials] == [True, True, False]
    with opened_study(store.objects, "k1", spec, 3, STEPS) as study:
        assert Controller(study, runner := Scripted()).run().trials == run(spec).trials
    assert runner.started == [2, 3]


@pytest.mark.parametrize("name", ["SuccessiveHalvingPruner", "PatientPruner"])
def test_a_trial_that_was_to_be_stopped_is_stopped_by_the_next_controller(store: ArtifactStore, name: str) -> None:
    def script(number: int, parameters: dict[str, Any]) -> Iterator[Event]:
        for step in range(1, STEPS + 1):
            yield Reported(number, step, STEPS, {"log_loss": 1.0 + number + step})
        yield _won(number)

    spec = experiment(
        max_trial_count=2,
        early_stopping={"name": name} | ({"patience": 1} if "Patient" in name else {"min_resource": 1}),
    )
    with opened_study(store.objects, "k1", spec, 3, STEPS) as study:
        study.ask()
        for step in range(1, STEPS + 1):
            study.report(0, step, 0.1 / step)
        study.end(replace(study.trials[0], state="succeeded", values={"log_loss": 0.01}))
        study.ask()
        at = next(step for step in range(1, STEPS) if study.report(1, step, 2.0 + step))
        study.flush()
    with opened_study(store.objects, "k1", spec, 3, STEPS) as study:
        assert study.trials[1].reason == f"pruned at step {at} of 4"
        done = Controller(study, Scripted(script)).run()
    assert (done.trials[1].state, done.trials[1].reason) == ("early_stopped", f"pruned at step {at} of 4")


@pytest.mark.parametrize(
    ("settings", "ended"),
    [
        ({"budget": {"steps": 11}}, "steps"),
        ({"budget": {"minutes": 0.5}}, "minutes"),
        ({"budget": {"cost": 0.5}}, "cost"),
        ({"objective": {"metric": "log_loss", "goal": 9.0}}, "goal"),
        ({}, "stopped"),
    ],
)
@pytest.mark.parametrize("parallel", [1, 3], ids=["one at a time", "all at once"])
def test_an_ending_comes_also_while_the_last_trials_run(settings: dict[str, Any], ended: str, parallel: int) -> None:
    """The last trial comes to its end only once it is told to."""
    runner, readings = _LastRunsOn(), itertools.count(1)
    study = ExperimentStudy(experiment(max_trial_count=3, parallel_trial_count=parallel, **settings), 3, STEPS, NAME)

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
        return _Ends(lambda: notify(Ended(number, error=TrainingStoppedError())))


class _Ends:
    def __init__(self, stop: Callable[[], None]) -> None:
        self.stop = stop


def test_a_stop_before_any_trial_succeeded_is_not_tried_again() -> None:
    with pytest.raises(ExperimentStoppedError, match="None of 0 trials succeeded") as raised:
        run(experiment(), stopped=lambda: True)
    assert raised.value.permanent


def rerun(
    store: ArtifactStore, spec: ExperimentSpec, script: Script = trained, **settings: Any
) -> tuple[Any, list[int]]:
    """One run of the same experiment: its result, and the trials that it began."""
    runner = Scripted(script)
    with opened_study(store.objects, "k1", spec, 3, STEPS) as study:
        return Controller(study, runner, **settings).run(), runner.started


def numbers(done: Experiment) -> list[int]:
    return [trial.number for trial in done.provisional]


@pytest.mark.parametrize("algorithm", ["GridSampler", "TPESampler", "NSGAIISampler"])
def test_the_next_run_tries_them_again_and_no_other(store: ArtifactStore, algorithm: str) -> None:
    settings: dict[str, Any] = {"name": algorithm}
    settings |= {"n_startup_trials": 4} if algorithm == "TPESampler" else {}
    settings |= {"population_size": 4} if algorithm == "NSGAIISampler" else {}
    spec = experiment(algorithm=settings, parameters=SPACES[algorithm], max_trial_count=12)
    first, _ = rerun(store, spec, failing(2, 7, error=LATE))
    assert (first.ended, numbers(first)) == ("max_trial_count", [2, 7])
    assert [trial.reason for trial in first.trials if trial.state == "failed"] == ["TrainingTimeoutError"] * 2
    second, began = rerun(store, spec, failing(7, error=LATE))
    assert (numbers(second), began) == ([7], [2, 7])
    third, began = rerun(store, spec)
    assert (numbers(third), began) == ([], [7])
    assert all(trial.state == "succeeded" and not trial.provisional for trial in third.trials)
    assert [trial.parameters for trial in third.trials] == [trial.parameters for trial in first.trials]
    assert rerun(store, spec)[1] == []
    assert replay(spec, 3, STEPS, "k1", third.trials) is None


def test_a_trial_goes_on_with_what_it_has_reported(store: ArtifactStore) -> None:
    def late(number: int, parameters: dict[str, Any]) -> Any:
        if number == 1:
            yield from (Reported(number, epoch, STEPS, {"log_loss": loss(parameters, epoch)}) for epoch in (1, 2))
        yield from failing(1, error=LATE)(number, parameters)

    spec = experiment(max_trial_count=3)
    clock = iter(range(1000))
    first, _ = rerun(store, spec, late, clock=lambda: float(next(clock)))
    assert [step for step, _ in first.trials[1].intermediate] == [1, 2]
    second, _ = rerun(store, spec, clock=lambda: float(next(clock)))
    assert [step for step, _ in second.trials[1].intermediate] == [1, 2, 3, 4]
    assert second.trials[1].seconds > first.trials[1].seconds, "the time of the first attempt is forgotten"


def test_too_many_of_them_end_this_run_and_the_next_begins_to_count_anew(store: ArtifactStore) -> None:
    spec = experiment(max_trial_count=6, max_failed_trial_count=1, parallel_trial_count=2)
    with pytest.raises(ExperimentFailedError, match=r"(?s)2 of .* at most 1.*The next run tries 2 of them again"):
        rerun(store, spec, failing(0, 1, error=LATE))
    trials, state = read_study(store.objects, "k1")
    assert state == "interrupted" and {trial.state for trial in trials} == {"running"}
    done, began = rerun(store, spec)
    assert [trial.state for trial in done.trials] == ["succeeded"] * 6 and began == list(range(6))


def test_a_trial_that_the_end_of_the_search_stops_is_not_tried_again(store: ArtifactStore) -> None:
    spec = experiment(objective={"metric": "log_loss", "goal": 9.0}, parallel_trial_count=2)
    first, began = rerun(store, spec)
    assert ([trial.state for trial in first.trials], began) == (["succeeded", "killed"], [0, 1])
    assert rerun(store, spec)[1] == []


def test_reports_are_written_again_and_again() -> None:
    """A long trial that is killed with its controller loses the reports of seconds, not of hours."""

    def long(number: int, parameters: dict[str, Any]) -> Iterator[Event]:
        yield from (Reported(number, step, 100, {"log_loss": 1.0}) for step in range(1, 100))
        yield Ended(number, {"log_loss": 1.0})

    written: list[float] = []
    clock = itertools.count()
    study = ExperimentStudy(experiment(max_trial_count=1), 3, 100, NAME, flush=lambda: written.append(next(clock)))
    Controller(study, Scripted(long), clock=lambda: float(next(clock))).run()
    assert max(later - earlier for earlier, later in itertools.pairwise(written)) < 30


def test_a_population_begins_anew_as_its_generations_follow_from_each_other(store: ArtifactStore) -> None:
    rate = {"name": "optimizer.learning_rate", "type": "double", "min": 1e-4, "max": 1e-1, "log": True}
    algorithm = {"name": "population", "population_size": 4, "quantile": 0.5}
    spec = ExperimentSpec.model_validate(
        {"objective": "log_loss", "parameters": [rate], "algorithm": algorithm, "max_trial_count": 16}
    )
    undisturbed, _ = rerun(ArtifactStore.open(f"{store.address}-other"), spec)
    first, _ = rerun(store, spec, failing(0, error=LATE))
    assert (first.ended, numbers(first)) == ("generations", [0])
    assert [trial.parameters for trial in first.trials] != [trial.parameters for trial in undisturbed.trials]
    second, began = rerun(store, spec)
    assert second.trials == undisturbed.trials and began == list(range(16))
    assert rerun(store, spec)[1] == []


def _trials(*values: tuple[float, float, bool]) -> list[Trial]:
    return [
        Trial(number, "succeeded", {}, {"log_loss": loss, "roc_auc": area}, feasible=feasible)
        for number, (loss, area, feasible) in enumerate(values)
    ]


def test_the_knee_is_nearest_to_the_ideal_of_the_front() -> None:
    """Scaled: (0, 1), (0.25, 0.25), (1, 0); the trials that are dominated or not feasible are not on the front."""
    two = experiment(objective=["log_loss", "roc_auc"], algorithm="RandomSampler", max_trial_count=5)
    values = [(0.0, 0.0), (1.0, 3.0), (4.0, 4.0), (9.0, 0.0), (0.0, 4.0)]

    def script(number: int, _: dict[str, Any]) -> Iterator[Event]:
        yield Ended(number, dict(zip(("log_loss", "roc_auc"), values[number], strict=True)), {"size_bytes": number})

    feasible = two.model_copy(update={"constraints": (Constraint(measure="size_bytes", at_most=3),)})
    done = run(feasible, script)
    assert done.front == (0, 1, 2) and done.best.number == 1
    assert run(two, script).front == (4,)


def test_with_one_objective_the_first_of_the_best_feasible_trials_is_best() -> None:
    trials = _trials((0.2, 0, True), (0.1, 0, False), (0.1, 1, True), (0.1, 2, True))
    best = best_trial(trials, experiment())
    assert best is trials[2] and best_trial(trials[1:2], experiment()) is None
