"""The trials of one experiment in an Optuna study: asked, reported and told, and each also as data."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import optuna
from optuna.trial import TrialState

from gatehouse.tuning.population import Population
from gatehouse.tuning.pruning import pruner_of, step_of
from gatehouse.tuning.spec import MEASURES, ExperimentSpec
from gatehouse.tuning.suggestion import internal, sampler_of, suggested
from gatehouse.tuning.trial import Trial

_ASKED, _ENDED, _TOOK, _BEGUN, _PRUNED = (f"gatehouse:{each}" for each in ("asked", "ended", "took", "begun", "pruned"))
_STATES = {"succeeded": TrialState.COMPLETE, "early_stopped": TrialState.PRUNED}


@dataclass
class ExperimentStudy:
    """The study of an experiment, which is continued if its storage holds part of it.

    Every change is stored when `flush` returns. A trial that the storage has begun without a suggestion, because its
    controller was killed or an answer of the storage was lost, does not count until `ask` takes it.

    Attributes:
        spec: The experiment.
        seed: Seed of its suggestions.
        steps: Steps of a whole trial.
        name: Name of the study; hyperband divides trials into brackets by it.
        storage: Optuna's storage.
        flush: Writes the buffered changes of the storage.
        warm: Configurations to try first.
        trials: All trials, by number.
        seconds: Duration of each trial, by number.
        elapsed: Seconds of the experiment when the last trial ended, by the clocks of its controllers.
        waiting: Numbers of the provisional trials of earlier controllers, which `again` has not taken yet.
    """

    spec: ExperimentSpec
    seed: int
    steps: int
    name: str
    storage: optuna.storages.BaseStorage = field(default_factory=optuna.storages.InMemoryStorage)
    flush: Callable[[], None] = lambda: None
    warm: tuple[dict[str, Any], ...] = ()
    trials: list[Trial] = field(default_factory=list)
    seconds: dict[int, float] = field(default_factory=dict)
    elapsed: float = 0.0
    waiting: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optuna = self._opened()
        self._single = len(self.spec.objective) == 1
        algorithm = self.spec.algorithm
        self.population = (
            Population(algorithm, self.spec, self.seed, self.steps, self.warm)
            if algorithm.name == "population"
            else None
        )
        if self.population and any(map(_is_provisional, self.optuna.get_trials(deepcopy=False))):
            # Later generations follow from how such a member ended. What they trained comes from the memo of training.
            optuna.delete_study(study_name=self.name, storage=self.storage)
            self.optuna = self._opened()
        self._ids: dict[int, int] = {}
        self._begun = -1
        """The last trial that the storage has begun."""
        self._enqueue()
        for frozen in self.optuna.get_trials(deepcopy=False):
            if frozen.state != TrialState.WAITING:
                self._begun = frozen.number
                if trial := _read(frozen):  # Only after the last such trial there are others.
                    self._ids[frozen.number] = frozen._trial_id
                    self.trials.append(trial)
                    self.seconds[frozen.number], elapsed = frozen.user_attrs.get(_TOOK, (0.0, 0.0))
                    self.elapsed = max(self.elapsed, elapsed)
                    if trial.provisional:
                        self.waiting.append(trial.number)
        self.flush()

    def _opened(self) -> optuna.Study:
        return optuna.create_study(
            storage=self.storage,
            study_name=self.name,
            directions=["minimize" if each.minimize else "maximize" for each in self.spec.objective],
            pruner=pruner_of(self.spec, self.steps),
            load_if_exists=True,
        )

    def _enqueue(self) -> None:
        """Put the configurations to try first into the queue, once."""
        if _BEGUN in self.optuna.user_attrs:
            return
        queued = [each for each in (internal(self.spec, chosen) for chosen in self.warm) if each]
        for chosen in queued[len(self.optuna.get_trials(deepcopy=False)) :]:
            self.optuna.enqueue_trial(chosen)
        self.optuna.set_user_attr(_BEGUN, True)

    @property
    def running(self) -> list[Trial]:
        """The trials that have not ended."""
        return [each for each in self.trials if not each.ended]

    @property
    def can_ask(self) -> bool:
        """Whether the next trial can be suggested now."""
        return self.population is None or self.population.is_ready(self.trials)

    def training(self, trial: Trial) -> dict[str, Any]:
        """The settings of training that a trial replaces, by dotted name."""
        return trial.parameters if self.population is None else self.population.training(trial, self.trials)

    def length(self, trial: Trial) -> dict[str, int]:
        """The setting that ends a trial before the end of a whole training, by dotted name."""
        return {} if self.population is None else {"stopping.epochs": self.population.end(trial.number)}

    def step_of(self, done: int, total: int) -> int:
        """The step that a trial has reached: in a population the epoch, else as `pruning.step_of`."""
        return step_of(done, total, self.steps) if self.population is None else done

    def taken(self, trial: Trial) -> int:
        """The number of steps of a trial itself; a successful trial took all of them."""
        reported = trial.intermediate[-1][0] if trial.intermediate else 0
        if self.population is not None:
            return max(0, reported - self.population.begin(trial))
        return self.steps if trial.state == "succeeded" else reported

    def ask(self) -> Trial:
        """Create the next trial with the sampler's parameters, which depend on the ended and running trials."""
        beside = tuple(each.number for each in self.trials if not each.ended or each.provisional)
        number = len(self.trials)
        self._sample_for(number)
        asked = self._next(number)
        self._ids[number] = asked._trial_id
        self.trials.append(self._suggest(asked, number, beside))
        self.flush()
        return self.trials[-1]

    def again(self) -> Trial:
        """Take the first provisional trial of an earlier controller, which runs again from where it was."""
        number = self.waiting.pop(0)
        self.storage.set_trial_user_attr(self._ids[number], _ENDED, None)
        self.trials[number] = replace(
            self.trials[number], state="running", reason="", told="", job="", provisional=False
        )
        self.flush()
        return self.trials[number]

    def _next(self, number: int) -> optuna.Trial:
        """Begin the trial of this number, unless the storage has begun it, with no suggestion or part of one."""
        if self._begun < number:
            asked = self.optuna.ask()
            self._begun = asked.number
            if asked.number == number:
                return asked
        identity = self.storage.get_trial_id_from_study_id_trial_number(self.optuna._study_id, number)
        return optuna.Trial(self.optuna, identity)

    def _sample_for(self, number: int) -> None:
        """Give the study the sampler of one trial, which reuses the search space that the one before has read."""
        self.optuna.sampler = sampler_of(self.spec, self.seed, number, self.optuna.sampler)

    def _suggest(self, asked: optuna.Trial, number: int, beside: tuple[int, ...]) -> Trial:
        parent, chosen = self.population.suggested(number, self.trials) if self.population else (None, None)
        chosen = suggested(self.spec, asked) if chosen is None else chosen
        asked.set_user_attr(_ASKED, {"parameters": chosen, "beside": list(beside), "parent": parent})
        return Trial(number, "running", chosen, beside=beside, parent=parent)

    def report(self, number: int, step: int, value: float) -> bool:
        """Record the objective of a trial at a step, each step once.

        Returns:
            Whether the trial is to be stopped early.
        """
        trial = self.trials[number]
        if trial.intermediate and step <= trial.intermediate[-1][0]:
            return False
        self.trials[number] = replace(trial, intermediate=(*trial.intermediate, (step, value)))
        if not self._single:
            return False
        self.storage.set_trial_intermediate_value(self._ids[number], step, value)
        identity = self._ids[number]
        if step == self.steps or not self.optuna.pruner.prune(self.optuna, self.storage.get_trial(identity)):
            return False
        self.storage.set_trial_user_attr(identity, _PRUNED, step)  # Pruners judge a step once.
        return True

    def pruned_at(self, number: int) -> int | None:
        """The step at which a pruner decided to stop a running trial; None if it continues."""
        return self.storage.get_trial(self._ids[number]).user_attrs.get(_PRUNED)

    def end(self, trial: Trial, seconds: float = 0.0, elapsed: float = 0.0) -> Trial:
        """Record how a trial ended, with its duration and that of the experiment in seconds.

        For the sampler a provisional trial is still running, so that the next controller can go on with it.

        Returns:
            The trial, with whether it is feasible.
        """
        violations = self._violations(trial) if trial.state == "succeeded" else {}
        ended = replace(trial, feasible=trial.state == "succeeded" and all(each <= 0 for each in violations.values()))
        identity = self._ids[trial.number]
        for name, violation in violations.items():
            self.storage.set_trial_system_attr(identity, f"constraints:{name}", violation)
        self.storage.set_trial_user_attr(identity, _ENDED, asdict(ended))
        took = self.seconds.get(trial.number, 0.0) + seconds
        self.storage.set_trial_user_attr(identity, _TOOK, [took, elapsed])
        self.seconds[trial.number], self.elapsed = took, max(self.elapsed, elapsed)
        if not ended.provisional:
            self._sample_for(trial.number)
            values = [ended.values[each.metric] for each in self.spec.objective] if ended.state == "succeeded" else None
            self.optuna.tell(trial.number, values, state=_STATES.get(ended.state, TrialState.FAIL))
        self.trials[trial.number] = ended
        self.flush()
        return ended

    def _violations(self, trial: Trial) -> dict[str, float]:
        known = trial.metrics | trial.measures
        found = {}
        for index, constraint in enumerate(self.spec.constraints):
            value = known.get(constraint.measure, math.inf if constraint.at_most is not None else -math.inf)
            found[f"{index}:{constraint.measure}"] = constraint.violation(value)
        return found


def _read(frozen: optuna.trial.FrozenTrial) -> Trial | None:
    """A trial of a study; None if its suggestion is incomplete."""
    if frozen.state.is_finished() or _is_provisional(frozen):
        return Trial.from_json(frozen.user_attrs[_ENDED])
    if (asked := frozen.user_attrs.get(_ASKED)) is None:
        return None
    steps, beside = tuple(sorted(frozen.intermediate_values.items())), tuple(asked["beside"])
    return Trial(
        frozen.number, "running", asked["parameters"], intermediate=steps, beside=beside, parent=asked["parent"]
    )


def _is_provisional(frozen: optuna.trial.FrozenTrial) -> bool:
    return bool((frozen.user_attrs.get(_ENDED) or {}).get("provisional"))


def trials_of(storage: optuna.storages.BaseStorage, name: str) -> list[Trial]:
    """The present trials of a study, for reading; empty if there is no such study."""
    try:
        study = optuna.load_study(study_name=name, storage=storage)
    except KeyError:
        return []
    return [trial for frozen in study.get_trials(deepcopy=False) if (trial := _read(frozen)) is not None]


def objective_values(spec: ExperimentSpec, metrics: dict[str, float], measures: dict[str, float]) -> dict[str, float]:
    """The values of the objectives, by metric, from all measurements.

    Raises:
        KeyError: naming an objective without a measurement.
    """
    return {
        each.metric: float(measures[each.metric] if each.metric in MEASURES else metrics[each.metric])
        for each in spec.objective
    }
