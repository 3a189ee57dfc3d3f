"""The controller of an experiment: it asks for suggestions, runs trials, stops some, and chooses the best."""

import logging
import math
import queue
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from gatehouse.errors import ConfigurationError, GatehouseError, RepeatedError
from gatehouse.launchers.launcher import TrainingStoppedError
from gatehouse.tuning.journal import SecondControllerError
from gatehouse.tuning.runner import FATAL, TEMPORARY, Ended, Event, Handle, Reported, Runner, is_outside
from gatehouse.tuning.samplers import grid_of
from gatehouse.tuning.spec import MEASURES, ExperimentSpec
from gatehouse.tuning.study import ExperimentStudy
from gatehouse.tuning.trial import State, Trial, words

logger = logging.getLogger(__name__)

# fmt: off
Ending = Literal[
    "stopped", "max_failed_trial_count", "goal", "minutes", "cost", "steps", "exhausted", "generations",
    "max_trial_count",
]
# fmt: on
LAST_TRIALS_END = ("exhausted", "generations", "max_trial_count")
"""Endings after which running trials may finish; after others they are stopped."""
LOOK_SECONDS = 1.0
"""Interval of the checks of stop requests and the budget."""
_WRITE_SECONDS = 10.0
"""Interval at which reports are written. If the controller is killed in between, the runner reports them again."""
RETRIES = 2
"""How often a run restarts a trial after a failure that may be temporary, such as an eviction."""


class ExperimentFailedError(GatehouseError):
    """Too many trials of an experiment failed, or none gave a usable model."""


class ExperimentStoppedError(ExperimentFailedError):
    """A person stopped an experiment before a trial succeeded; the task must not be retried."""

    permanent = True


@dataclass(frozen=True)
class Experiment:
    """The result of an experiment.

    `best` is the best trial, or the knee of the front, and `settings` are its settings of `training`, by dotted name.
    `front` has the numbers of the trials that no other dominates, and `provisional` the trials that the next run tries
    again.
    """

    trials: tuple[Trial, ...]
    best: Trial
    settings: dict[str, Any]
    front: tuple[int, ...]
    ended: Ending
    steps: int
    provisional: tuple[Trial, ...] = ()


@dataclass
class _Running:
    handle: Handle
    began: float
    retries: int = 0
    ending: Trial | None = None
    """How the trial ends once its job has stopped."""


class Controller:
    """Runs an experiment to its end, from the present state of its study."""

    def __init__(
        self,
        study: ExperimentStudy,
        runner: Runner,
        *,
        stopped: Callable[[], bool] = lambda: False,
        notify: Callable[[int, str], None] = lambda number, line: None,
        price: float | None = None,
        inbox: queue.SimpleQueue[Event] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a controller.

        The study holds the trials, including those that an earlier controller left running. `stopped` says whether a
        person asked the experiment to end, and `notify` is called with the number of a trial that ended and a line
        about it. `price` is that of an hour of trials, and `clock` a monotonic clock in seconds. Raises
        ConfigurationError if the budget limits the cost and there is no price.
        """
        self._study, self._runner, self._stopped, self._price, self._clock = study, runner, stopped, price, clock
        self._notify, self._inbox = notify, inbox or queue.SimpleQueue()
        self._running: dict[int, _Running] = {}
        self._unfinished = [trial for trial in study.trials if not trial.ended]
        self._began, self._looked, self._written = clock() - study.elapsed, -math.inf, clock()
        self._is_stopped = False
        if study.spec.budget.cost is not None and price is None:
            raise ConfigurationError("tuning.budget.cost: expected a price in prices.per_hour, found none")

    def run(self) -> Experiment:
        """Run the experiment.

        Raises:
            ExperimentFailedError: if too many trials failed, or none is feasible.
            StoreError: if the store cannot be read or written.
            SecondControllerError: if another controller took the experiment over.
        """
        ending: Ending | None = None
        try:
            while True:
                if ending is None or ending in LAST_TRIALS_END:
                    ending = self._fill()  # Another reason may occur while the last trials run.
                if ending and ending not in LAST_TRIALS_END:
                    while self._unfinished:  # Their jobs may still run.
                        self._start(self._unfinished.pop(0))
                    provisional = ending == "max_failed_trial_count"  # Those that failed may succeed in the next run.
                    for number in self._running:
                        self._stop(number, "killed", f"the experiment ended: {ending}", provisional=provisional)
                if ending and not self._running:
                    return self._experiment(ending)
                with suppress(queue.Empty):
                    self._handle(self._inbox.get(timeout=LOOK_SECONDS))
        except SecondControllerError:
            self._running.clear()  # The other controller continues them.
            raise
        finally:
            for running in self._running.values():
                running.handle.stop()

    def _fill(self) -> Ending | None:
        """Start trials up to the allowed number at once, first those that an earlier controller left unfinished.

        Returns why the experiment ends; None if it continues.
        """
        study = self._study
        while True:
            if self._clock() - self._looked >= LOOK_SECONDS:
                self._looked, self._is_stopped = self._clock(), self._is_stopped or self._stopped()
            ending = self._ending()
            again = bool(self._unfinished) and (ending is None or ending in LAST_TRIALS_END)
            can_start = again or (ending is None and study.can_ask)
            if len(self._running) >= study.spec.parallel_trial_count or not can_start:
                return ending
            self._start(self._unfinished.pop(0) if again else study.ask())

    def _ending(self) -> Ending | None:
        """Why the experiment ends now; None if it continues."""
        study, spec, budget, now = self._study, self._study.spec, self._study.spec.budget, self._clock()
        trials, population = study.trials, study.population
        failed = sum(trial.state == "failed" for trial in trials)
        aims = [aim for aim in spec.objective if aim.goal is not None]
        reached = (trial.feasible and all(aim.is_reached(trial.values[aim.metric]) for aim in aims) for trial in trials)
        seconds = sum(trial.seconds for trial in trials) + sum(now - entry.began for entry in self._running.values())
        cost = (self._price or 0.0) * seconds / 3600
        reasons: list[tuple[bool, Ending]] = [
            (self._is_stopped, "stopped"),
            (failed > spec.max_failed_trial_count, "max_failed_trial_count"),
            (bool(aims) and any(reached), "goal"),
            (budget.minutes is not None and now - self._began >= budget.minutes * 60, "minutes"),
            (budget.cost is not None and cost >= budget.cost, "cost"),
            (budget.steps is not None and self._steps() >= budget.steps, "steps"),
            (spec.is_grid and len(trials) >= math.prod(map(len, grid_of(spec).values())), "exhausted"),
            (population is not None and len(trials) >= population.trials, "generations"),
            (len(trials) >= spec.max_trial_count, "max_trial_count"),
        ]
        return next((reason for holds, reason in reasons if holds), None)

    def _steps(self) -> int:
        return sum(self._study.steps_of(trial) for trial in self._study.trials)

    def _start(self, trial: Trial, retries: int = 0) -> None:
        logger.info("trial %d started: %s", trial.number, words(trial.parameters))
        settings = self._study.training(trial) | self._study.length(trial)
        handle = self._runner.start(trial.number, settings, self._inbox.put)
        self._running[trial.number] = _Running(handle, self._clock(), retries)
        if trial.reason:  # An earlier controller decided to stop it.
            self._stop(trial.number, "early_stopped", trial.reason)

    def _handle(self, event: Event) -> None:
        running = self._running.get(event.number)
        if isinstance(event, Ended) and isinstance(event.error, FATAL):
            raise event.error  # The next controller continues this trial and all running ones.
        if running is None:
            return
        if isinstance(event, Reported):
            self._reported(event, running)
            return
        trial, error = replace(self._study.trials[event.number], job=event.job), event.error
        if running.ending is not None:
            # Also for a trial that finished after it was told to stop.
            self._end(replace(running.ending, job=event.job))
        elif error is None:
            trial = replace(trial, model=event.model, metrics=event.values, measures=event.measures)
            metrics = [objective.metric for objective in self._study.spec.objective]
            values = {name: float((event.measures if name in MEASURES else event.values)[name]) for name in metrics}
            if not_finite := [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]:
                self._end(replace(trial, state="failed", reason="NonFiniteValue", message=", ".join(not_finite)))
            else:
                self._end(replace(trial, state="succeeded", values=values))
        elif isinstance(error, TrainingStoppedError):
            self._end(replace(trial, state="killed", reason="stopped from outside"))
        elif isinstance(error, TEMPORARY) and running.retries < RETRIES and not self._is_stopped:
            logger.warning("trial %d is begun again: %s: %s", event.number, type(error).__name__, error)
            self._start(trial, running.retries + 1)
            self._running[event.number].began = running.began
        else:
            name = error.name if isinstance(error, RepeatedError) else type(error).__name__
            message = str(error).splitlines()[0] if str(error) else name
            provisional = is_outside(error)
            logger.warning("trial %d: %s: %s", event.number, name, error)
            self._end(replace(trial, state="failed", reason=name, message=message, provisional=provisional))

    def _reported(self, event: Reported, running: _Running) -> None:
        """Pass a value to the pruner. Values reported after a trial was told to stop are ignored."""
        objective, whole = self._study.spec.objective[0].metric, self._study.steps
        step = self._study.step_of(event.done, event.total)
        if running.ending is not None or not step or objective in MEASURES or objective not in event.values:
            return
        value = event.values[objective]
        if not math.isfinite(value):
            self._stop(event.number, "failed", "NonFiniteValue", f"{objective} is {value} at step {step} of {whole}")
        elif self._study.report(event.number, step, value):
            self._stop(event.number, "early_stopped", self._study.trials[event.number].reason)
        if self._clock() - self._written >= _WRITE_SECONDS:
            self._study.flush()
            self._written = self._clock()

    def _stop(self, number: int, state: State, reason: str, message: str = "", *, provisional: bool = False) -> None:
        running = self._running[number]
        if running.ending is None:
            ending = replace(self._study.trials[number], state=state, reason=reason, message=message)
            running.ending = replace(ending, provisional=provisional)
            running.handle.stop()

    def _end(self, trial: Trial) -> None:
        now, running = self._clock(), self._running.pop(trial.number)
        ended = self._study.end(trial, now - running.began, now - self._began)
        if ended.state == "succeeded":
            line = f"trial {ended.number}: {words(ended.values)}" + ", breaks a constraint" * (not ended.feasible)
        else:
            message = f": {ended.message}" if ended.message else ""
            line = f"trial {ended.number} {ended.state.replace('_', ' ')}: {ended.reason}{message}"
            line += "; it is tried again when the experiment goes on" * ended.provisional
        if len(self._study.spec.objective) == 1 and (best := best_trial(self._study.trials, self._study.spec)):
            others = f"; best so far is trial {best.number} with {words(best.values)}"
            line += ", best so far" if best is ended else others
        logger.log(logging.WARNING if ended.state == "failed" else logging.INFO, "%s", line)
        self._notify(ended.number, line)

    def _experiment(self, ending: Ending) -> Experiment:
        study, trials, front = self._study, tuple(self._study.trials), self._study.front
        best = best_trial(front, study.spec)
        if ending == "max_failed_trial_count" or best is None:
            failed = ExperimentStoppedError if ending == "stopped" else ExperimentFailedError
            raise failed(failure(trials, study.spec, ending))
        open_ended = ending in LAST_TRIALS_END or ending == "stopped"  # Otherwise the next run would stop them at once.
        provisional = tuple(trial for trial in trials if trial.provisional and open_ended)
        numbers = tuple(trial.number for trial in front)
        return Experiment(trials, best, study.training(best), numbers, ending, self._steps(), provisional)


def best_trial(front: Sequence[Trial], spec: ExperimentSpec) -> Trial | None:
    """The knee of a Pareto front; with one objective, the best of any trials. None if no trial is feasible.

    The knee is the trial nearest to the ideal point, with each objective scaled to its range on the front:

        argmin over i of  sum over k of ((f_k(i) - min f_k) / (max f_k - min f_k))^2

    where f_k is minimised (a value that is maximised counts negative), min and max are taken over the front, and an
    objective without a range counts 0. Among equal trials the first is taken.
    """
    signs = {aim.metric: 1 if aim.minimize else -1 for aim in spec.objective}
    losses = [([sign * trial.values[name] for name, sign in signs.items()], trial) for trial in front if trial.feasible]
    ranges = [(min(column), max(column)) for column in zip(*(values for values, _ in losses), strict=True)]

    def distance(values: Sequence[float]) -> float:
        scaled = ((value - low) / (high - low) for value, (low, high) in zip(values, ranges, strict=True) if high > low)
        return math.fsum(share**2 for share in scaled)

    return min(losses, key=lambda pair: pair[0] if len(signs) == 1 else [distance(pair[0])], default=(None, None))[1]


def failure(trials: Sequence[Trial], spec: ExperimentSpec, ending: Ending) -> str:
    """The message for an experiment that ended without a best trial."""
    states = Counter(trial.state for trial in trials)
    failed = [trial for trial in trials if trial.state == "failed"]
    if ending == "max_failed_trial_count":
        message = f"{len(failed)} of {len(trials)} trials failed, expected at most {spec.max_failed_trial_count}."
    elif states["succeeded"]:
        measured = [trial.metrics | trial.measures for trial in trials if trial.state == "succeeded"]
        limits = []
        for constraint in spec.constraints:
            name, nearest = constraint.measure, max if constraint.at_least is not None else min
            values = [values[name] for values in measured if name in values]
            closest = f"the nearest was {nearest(values):g}" if values else "measured in no trial"
            limits.append(f"{name}: {constraint.words}, {closest}")
        listed = "; ".join(limits)
        message = f"None of the {states['succeeded']} trials that succeeded keeps to all constraints: {listed}."
    else:
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        message = f"None of {len(trials)} trials succeeded ({counts or 'none was begun'})."
        if ending == "stopped":
            message += " The next run of its pipeline goes on with it."
        elif ending in ("minutes", "cost", "steps"):
            message += f" tuning.budget.{ending} ({getattr(spec.budget, ending):g}) was used up."
    message += "".join(f"\n  - trial {trial.number}: {trial.message or trial.reason}" for trial in failed)
    if again := sum(trial.provisional for trial in failed):
        message += f"\nThe next run tries {again} of them again: they failed for a reason outside of the search."
    return message
