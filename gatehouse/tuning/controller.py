"""The controller of an experiment: it asks for suggestions, runs trials, stops some, and chooses the best."""

import logging
import math
import operator
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.tuning.journal import SecondControllerError
from gatehouse.tuning.runner import Broken, Event, Failed, Handle, Reported, Runner, Succeeded
from gatehouse.tuning.spec import MEASURES, ExperimentSpec
from gatehouse.tuning.study import ExperimentStudy
from gatehouse.tuning.suggestion import grid_of
from gatehouse.tuning.trial import State, Trial, words


def pareto_front(trials: Sequence[Trial], spec: ExperimentSpec) -> list[Trial]:
    """The feasible trials that no feasible trial dominates, in the order of their numbers.

    A trial is dominated if another is nowhere worse and somewhere better. With one objective, the result is the trials
    with the best value.
    """
    if len(spec.objective) > 1:
        return [trial for trial in trials if is_undominated(trial, trials, spec)]
    losses = [(_losses(trial, spec), trial) for trial in trials if trial.feasible]
    least = min((loss for loss, _ in losses), default=())
    return [trial for loss, trial in losses if loss == least]


def is_undominated(trial: Trial, trials: Sequence[Trial], spec: ExperimentSpec) -> bool:
    """Whether a trial is feasible and no feasible trial dominates it."""
    if not trial.feasible:
        return False
    own = _losses(trial, spec)
    losses = (_losses(other, spec) for other in trials if other.feasible)
    return not any(loss != own and all(map(operator.le, loss, own)) for loss in losses)


def best_trial(trials: Sequence[Trial], spec: ExperimentSpec) -> Trial | None:
    """The knee of the Pareto front; with one objective it is the best trial. None if no trial is feasible.

    The knee is the trial nearest to the ideal point, with each objective scaled to its range on the front:

        argmin over i of  sum over k of ((f_k(i) - min f_k) / (max f_k - min f_k))^2

    where f_k is minimised (a value that is maximised counts negative), min and max are taken over the front, and an
    objective without a range counts 0. Among equal trials the first is taken.
    """
    front = pareto_front(trials, spec)
    losses = [_losses(trial, spec) for trial in front]
    ranges = [(min(column), max(column)) for column in zip(*losses, strict=True)]

    def distance(values: tuple[float, ...]) -> float:
        scaled = ((value - low) / (high - low) for value, (low, high) in zip(values, ranges, strict=True) if high > low)
        return math.fsum(share**2 for share in scaled)

    return min(zip(front, losses, strict=True), key=lambda pair: distance(pair[1]))[0] if front else None


def _losses(trial: Trial, spec: ExperimentSpec) -> tuple[float, ...]:
    return tuple(trial.values[aim.metric] * (1 if aim.minimize else -1) for aim in spec.objective)


Ending = Literal[
    "stopped",
    "max_failed_trial_count",
    "goal",
    "minutes",
    "cost",
    "steps",
    "exhausted",
    "generations",
    "max_trial_count",
]

LAST_TRIALS_END = ("exhausted", "generations", "max_trial_count")
"""Endings after which running trials may finish; after others they are stopped."""


def ending_of(study: ExperimentStudy, seconds: float, cost: float, stopped: bool) -> Ending | None:
    """Why the experiment ends now; None if it continues.

    `seconds` are those of its controllers, `cost` is that of its trials, and `stopped` says whether a person asked it
    to end.
    """
    spec, trials, population, budget = study.spec, study.trials, study.population, study.spec.budget
    failed = sum(trial.state == "failed" and trial.number not in study.waiting for trial in trials)
    aimed = [objective for objective in spec.objective if objective.goal is not None]

    def reached(trial: Trial) -> bool:
        return trial.feasible and all(objective.is_reached(trial.values[objective.metric]) for objective in aimed)

    reasons: list[tuple[bool, Ending]] = [
        (stopped, "stopped"),
        (failed > spec.max_failed_trial_count, "max_failed_trial_count"),
        (bool(aimed) and any(map(reached, trials)), "goal"),
        (budget.minutes is not None and seconds >= budget.minutes * 60, "minutes"),
        (budget.cost is not None and cost >= budget.cost, "cost"),
        (budget.steps is not None and steps_taken(study) >= budget.steps, "steps"),
        (spec.algorithm.name == "grid" and len(trials) >= math.prod(map(len, grid_of(spec).values())), "exhausted"),
        (population is not None and len(trials) >= population.trials, "generations"),
        (len(trials) >= spec.max_trial_count, "max_trial_count"),
    ]
    return next((reason for holds, reason in reasons if holds), None)


def steps_taken(study: ExperimentStudy) -> int:
    """Total steps of all trials."""
    return sum(study.steps_of(trial) for trial in study.trials)


def failure(trials: Sequence[Trial], spec: ExperimentSpec, ending: Ending, key: str) -> str:
    """The message for an experiment, with the key of its study, that ended without a best trial."""
    states = [trial.state for trial in trials]
    failed = [trial for trial in trials if trial.state == "failed"]
    if ending == "max_failed_trial_count":
        message = f"{len(failed)} of {len(trials)} trials failed, expected at most {spec.max_failed_trial_count}."
    elif "succeeded" in states:
        measured = [trial.metrics | trial.measures for trial in trials if trial.state == "succeeded"]
        nearest = []
        for constraint in spec.constraints:
            name, most, least = constraint.measure, constraint.at_most, constraint.at_least
            values = [values[name] for values in measured if name in values]
            limit = f"{name}: at most {most:g}" if most is not None else f"{name}: at least {least:g}"
            extreme = (min if most is not None else max)(values, default=math.nan)
            nearest.append(f"{limit}, the nearest was {extreme:g}" if values else f"{limit}, measured in no trial")
        limits = "; ".join(nearest)
        message = f"None of the {states.count('succeeded')} trials that succeeded keeps to all constraints: {limits}."
    else:
        counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        message = f"None of {len(trials)} trials succeeded ({counts or 'none was begun'})."
        if ending == "stopped":
            more = spec.max_trial_count + 1
            message += f" Go on with: gatehouse tuning resume {key} --max-trial-count {more} or more."
        elif ending in ("minutes", "cost", "steps"):
            message += f" tuning.budget.{ending} ({getattr(spec.budget, ending):g}) was used up."
    message += "".join(f"\n  - trial {trial.number}: {trial.message or trial.reason}" for trial in failed)
    again = sum(trial.provisional for trial in failed)
    if again and ending in (*LAST_TRIALS_END, "max_failed_trial_count", "stopped"):
        message += f"\nThe next run tries {again} of them again: they failed for a reason outside of the search."
    return message


logger = logging.getLogger(__name__)

_HOUR = 3600.0
LOOK_SECONDS = 1.0
"""Interval of the checks of stop requests and the budget."""
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
    `front` has the numbers of the trials that no other dominates, `seconds` the duration of each trial, by number, and
    `provisional` the trials that the next run tries again.
    """

    trials: tuple[Trial, ...]
    best: Trial
    settings: dict[str, Any]
    front: tuple[int, ...]
    ended: Ending
    steps: int
    seconds: dict[int, float]
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
        self._notify, self._best = notify, best_trial(study.trials, study.spec)
        self._inbox = inbox or queue.SimpleQueue()
        self._running: dict[int, _Running] = {}
        self._began, self._looked, self._flushed = clock() - study.elapsed, -math.inf, clock()
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
            for trial in self._study.running:
                self._start(trial)
                if step := self._study.pruned_at(trial.number):
                    self._stop_early(trial.number, step)
            while True:
                if ending is None or ending in LAST_TRIALS_END:
                    ending = self._fill()  # Another reason may occur while the last trials run.
                if ending and ending not in LAST_TRIALS_END:
                    provisional = ending == "max_failed_trial_count"  # Those that failed may succeed in the next run.
                    for number in self._running:
                        self._stop(number, "killed", f"the experiment ended: {ending}", provisional=provisional)
                if ending and not self._running:
                    return self._experiment(ending)
                self._handle_one()
        except SecondControllerError:
            self._running.clear()  # The other controller continues them.
            raise
        finally:
            for running in self._running.values():
                running.handle.stop()

    def _fill(self) -> Ending | None:
        """Start trials up to the allowed number at once, first those that an earlier run set aside.

        Returns why the experiment ends; None if it continues.
        """
        study = self._study
        while True:
            if self._clock() - self._looked >= LOOK_SECONDS:
                self._looked, self._is_stopped = self._clock(), self._is_stopped or self._stopped()
            now = self._clock()
            seconds = sum(study.seconds.values()) + sum(now - running.began for running in self._running.values())
            cost = (self._price or 0.0) * seconds / _HOUR
            ending = ending_of(study, now - self._began, cost, self._is_stopped)
            # In a population the generation before must have ended.
            trials, size = study.trials, study.population.algorithm.population_size if study.population else 1
            can_ask = study.population is None or all(trial.ended for trial in trials[: len(trials) // size * size])
            again = bool(study.waiting) and (ending is None or ending in LAST_TRIALS_END)
            if len(self._running) >= study.spec.parallel_trial_count or not (again or (not ending and can_ask)):
                return ending
            self._start(study.again() if again else study.ask())

    def _start(self, trial: Trial, retries: int = 0) -> None:
        logger.info("trial %d started: %s", trial.number, words(trial.parameters))
        settings = self._study.training(trial) | self._study.length(trial)
        handle = self._runner.start(trial.number, settings, self._inbox.put)
        self._running[trial.number] = _Running(handle, self._clock(), retries)

    def _handle_one(self) -> None:
        try:
            event = self._inbox.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            return
        running = self._running.get(event.number)
        if isinstance(event, Broken):
            raise event.error  # The next controller continues this trial and all running ones.
        if running is None:
            return
        if isinstance(event, Reported):
            self._reported(event, running)
        elif running.ending is not None:
            # Also for a trial that finished after it was told to stop.
            self._end(replace(running.ending, job=event.job))
        elif isinstance(event, Succeeded):
            self._succeeded(event)
        elif isinstance(event, Failed):
            self._failed(event, running)
        else:
            self._end(
                replace(self._study.trials[event.number], state="killed", reason="stopped from outside", job=event.job)
            )

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
            self._stop_early(event.number, step)
        if self._clock() - self._flushed >= LOOK_SECONDS:
            # If the controller is killed before this, the runner reports the value again.
            self._study.flush()
            self._flushed = self._clock()

    def _stop_early(self, number: int, step: int) -> None:
        self._stop(number, "early_stopped", f"pruned at step {step} of {self._study.steps}")

    def _stop(self, number: int, state: State, reason: str, message: str = "", *, provisional: bool = False) -> None:
        running = self._running[number]
        if running.ending is None:
            ending = replace(self._study.trials[number], state=state, reason=reason, message=message)
            running.ending = replace(ending, provisional=provisional)
            running.handle.stop()

    def _succeeded(self, event: Succeeded) -> None:
        trial = replace(
            self._study.trials[event.number],
            model=event.model,
            metrics=event.values,
            measures=event.measures,
            job=event.job,
        )
        metrics = [objective.metric for objective in self._study.spec.objective]
        values = {name: float((event.measures if name in MEASURES else event.values)[name]) for name in metrics}
        if not_finite := [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]:
            self._end(replace(trial, state="failed", reason="NonFiniteValue", message=", ".join(not_finite)))
        else:
            self._end(replace(trial, state="succeeded", values=values))

    def _failed(self, event: Failed, running: _Running) -> None:
        if event.retry and running.retries < RETRIES and not self._is_stopped:
            logger.warning("trial %d is begun again: %s: %s", event.number, event.error, event.message)
            began = running.began
            self._start(self._study.trials[event.number], running.retries + 1)
            self._running[event.number].began = began
        else:
            trial = replace(self._study.trials[event.number], state="failed", reason=event.error, job=event.job)
            self._end(replace(trial, message=event.message, provisional=event.provisional))

    def _end(self, trial: Trial) -> None:
        now, running = self._clock(), self._running.pop(trial.number)
        ended = self._study.end(trial, now - running.began, now - self._began)
        line = self._line(ended)
        logger.log(logging.WARNING if ended.state == "failed" else logging.INFO, "%s", line)
        self._notify(ended.number, line)

    def _line(self, ended: Trial) -> str:
        """How a trial ended, and which trial is the best so far, if there is one objective and it is another trial."""
        trials, spec = self._study.trials, self._study.spec
        single = len(spec.objective) == 1
        if ended.state == "succeeded":
            # With one objective, the first of equal trials is the best.
            best = best_trial(trials, spec) is ended if single else is_undominated(ended, trials, spec)
            self._best = ended if best else self._best
            line = f"trial {ended.number}: {words(ended.values)}" + ", breaks a constraint" * (not ended.feasible)
            if best:
                return f"{line}, {'best' if single else 'on the Pareto front'} so far"
        else:
            message = f": {ended.message}" if ended.message else ""
            line = f"trial {ended.number} {ended.state.replace('_', ' ')}: {ended.reason}{message}"
            line += "; it is tried again when the experiment goes on" * ended.provisional
        if self._best is None or not single:
            return line
        return f"{line}; best so far is trial {self._best.number} with {words(self._best.values)}"

    def _experiment(self, ending: Ending) -> Experiment:
        study, trials = self._study, tuple(self._study.trials)
        best = best_trial(trials, study.spec)
        if ending == "max_failed_trial_count" or best is None:
            failed = ExperimentStoppedError if ending == "stopped" else ExperimentFailedError
            raise failed(failure(trials, study.spec, ending, study.name))
        front = tuple(trial.number for trial in pareto_front(trials, study.spec))
        open_ended = ending in LAST_TRIALS_END or ending == "stopped"  # Otherwise the next run would stop them at once.
        provisional = tuple(trial for trial in trials if trial.provisional and open_ended)
        steps, seconds = steps_taken(study), dict(study.seconds)
        return Experiment(trials, best, study.training(best), front, ending, steps, seconds, provisional)
