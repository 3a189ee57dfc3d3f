"""The trials of one experiment in an Optuna study, each also as data; and how a study is opened."""

import gc
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import optuna
from optuna.storages import JournalStorage
from optuna.trial import TrialState

from gatehouse.errors import ConfigurationError
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.journal import StoreJournal, controller_turn, silent_seconds
from gatehouse.tuning.population import Population
from gatehouse.tuning.samplers import internal, pruner_of, sampler_of, step_of, suggested
from gatehouse.tuning.spec import ExperimentSpec, PopulationAlgorithm
from gatehouse.tuning.trial import Trial

logger = logging.getLogger(__name__)

_TRIAL = "gatehouse:trial"
_STATES = {"succeeded": TrialState.COMPLETE, "early_stopped": TrialState.PRUNED}


@dataclass
class ExperimentStudy:
    """The study of an experiment, which is continued if its storage holds part of it.

    Every change is stored when `flush` returns: a suggestion, or an end, as a whole or not at all.

    Attributes:
        name: Name of the study; hyperband divides trials into brackets by it.
        elapsed: Seconds of the experiment when the last trial ended, by the clocks of its controllers.
    """

    spec: ExperimentSpec
    seed: int
    steps: int
    name: str
    storage: optuna.storages.BaseStorage = field(default_factory=optuna.storages.InMemoryStorage)
    flush: Callable[[], None] = lambda: None
    warm: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        algorithm = self.spec.algorithm
        self.population = Population(algorithm, self.steps) if isinstance(algorithm, PopulationAlgorithm) else None
        self.optuna = self._opened()
        self.trials = _read(self.optuna)
        if self.population and not all(
            trial.ended for trial in self.trials[: self.population.first(len(self.trials) - 1)]
        ):
            # A later generation follows from how such a member ended. Their models come from the memo of training.
            optuna.delete_study(study_name=self.name, storage=self.storage)
            self.optuna, self.trials = self._opened(), []
        if not self.optuna.get_trials(deepcopy=False):
            for chosen in filter(None, (internal(self.spec, chosen) for chosen in self.warm)):
                self.optuna.enqueue_trial(chosen)
        self.elapsed = max((trial.elapsed for trial in self.trials), default=0.0)
        self.flush()

    def _opened(self) -> optuna.Study:
        return optuna.create_study(
            storage=self.storage,
            study_name=self.name,
            directions=["minimize" if objective.minimize else "maximize" for objective in self.spec.objective],
            pruner=pruner_of(self.spec, self.steps),
            load_if_exists=True,
        )

    def _id(self, number: int) -> int:
        study = self.storage.get_study_id_from_name(self.name)
        return self.storage.get_trial_id_from_study_id_trial_number(study, number)

    def _optuna_trial(self, number: int) -> optuna.Trial:
        return optuna.Trial(self.optuna, self._id(number))

    @property
    def front(self) -> list[Trial]:
        """The feasible trials that no feasible trial dominates; with one objective, those with the best value."""
        return [self.trials[frozen.number] for frozen in self.optuna.best_trials]

    @property
    def can_ask(self) -> bool:
        """Whether the next trial can be suggested: in a population, the generation before must have ended."""
        if self.population is None:
            return True
        return all(trial.ended for trial in self.trials[: self.population.first(len(self.trials))])

    def training(self, trial: Trial) -> dict[str, Any]:
        """The settings of training that a trial replaces, by dotted name."""
        return trial.parameters if self.population is None else self.population.training(trial, self.trials)

    def length(self, trial: Trial) -> dict[str, int]:
        """The setting that ends a trial before the end of a whole training, by dotted name."""
        return {} if self.population is None else {"stopping.epochs": self.population.end(trial.number)}

    def step_of(self, done: int, total: int) -> int:
        """The step that a trial has reached: in a population the epoch, else as `samplers.step_of`."""
        return step_of(done, total, self.steps) if self.population is None else done

    def steps_of(self, trial: Trial) -> int:
        """The number of steps of a trial itself; a successful trial took all of them."""
        reported = trial.intermediate[-1][0] if trial.intermediate else 0
        if self.population is not None:
            return max(0, reported - self.population.begin(trial))
        return self.steps if trial.state == "succeeded" else reported

    def ask(self) -> Trial:
        """Create the next trial with the sampler's parameters, which depend on the ended and running trials."""
        beside = tuple(trial.number for trial in self.trials if not trial.ended or trial.provisional)
        number = len(self.trials)
        self.optuna.sampler = sampler_of(self.spec, self.seed, number)
        optuna_trial = self.optuna.ask()
        chosen = suggested(self.spec, optuna_trial)
        parent = getattr(self.optuna.sampler, "parent", None)
        self.trials.append(Trial(number, "running", chosen, beside=beside, parent=parent))
        self._record(self.trials[-1], optuna_trial)
        self.flush()
        return self.trials[-1]

    def _record(self, trial: Trial, optuna_trial: optuna.Trial) -> None:
        self.trials[trial.number] = trial
        optuna_trial.set_user_attr(_TRIAL, asdict(trial) | {"intermediate": []})

    def report(self, number: int, step: int, value: float) -> bool:
        """Record the objective of a trial at a step, each step once; returns whether the trial stops early.

        The decision to stop a trial is recorded as its reason, because pruners judge a step once.
        """
        trial = self.trials[number]
        if trial.intermediate and step <= trial.intermediate[-1][0]:
            return False
        self.trials[number] = replace(trial, intermediate=(*trial.intermediate, (step, value)))
        self.storage.set_trial_intermediate_value(self._id(number), step, value)
        optuna_trial = self._optuna_trial(number)
        if len(self.spec.objective) > 1 or step == self.steps or not optuna_trial.should_prune():
            return False
        self._record(replace(self.trials[number], reason=f"pruned at step {step} of {self.steps}"), optuna_trial)
        return True

    def end(self, trial: Trial, seconds: float = 0.0, elapsed: float = 0.0) -> Trial:
        """Record how a trial ended, with its duration and that of the experiment in seconds.

        A provisional trial is recorded as one that still runs, so the next controller continues it, as it continues the
        trials of a controller that died.
        """
        succeeded, optuna_trial = trial.state == "succeeded", self._optuna_trial(trial.number)
        measured, violations = trial.metrics | trial.measures, []
        for index, constraint in enumerate(self.spec.constraints if succeeded else ()):
            value = measured.get(constraint.measure, math.inf if constraint.at_most is not None else -math.inf)
            violations.append(constraint.violation(value))
            optuna_trial.set_constraint(f"{index}:{constraint.measure}", violations[-1])
        feasible = succeeded and all(violation <= 0 for violation in violations)
        trial = replace(trial, feasible=feasible, seconds=trial.seconds + seconds, elapsed=elapsed)
        self.elapsed = max(self.elapsed, elapsed)
        if trial.provisional:
            unfinished = replace(trial, state="running", reason="", message="", job="", provisional=False)
            self._record(unfinished, optuna_trial)
            self.trials[trial.number] = trial
        else:
            self._record(trial, optuna_trial)
            self.optuna.sampler = sampler_of(self.spec, self.seed, trial.number)
            values = [trial.values[objective.metric] for objective in self.spec.objective] if succeeded else None
            self.optuna.tell(trial.number, values, state=_STATES.get(trial.state, TrialState.FAIL))
        self.flush()
        return trial


def _read(study: optuna.Study) -> list[Trial]:
    """The trials of a study that have a suggestion; those that only wait for one come last."""
    return [
        Trial.from_json(frozen.user_attrs[_TRIAL] | {"intermediate": sorted(frozen.intermediate_values.items())})
        for frozen in study.get_trials(deepcopy=False)
        if _TRIAL in frozen.user_attrs
    ]


@contextmanager
def opened_study(
    objects: ObjectStore, key: str, spec: ExperimentSpec, seed: int, steps: int, warm: tuple[dict[str, Any], ...] = ()
) -> Iterator[ExperimentStudy]:
    """Open the study of an experiment for its controller, and continue what an earlier controller left.

    `warm` are configurations to try first. Raises SecondControllerError if the experiment has a controller.
    """
    with controller_turn(objects, key):
        journal = StoreJournal(objects, key)
        yield ExperimentStudy(spec, seed, steps, key, _storage(journal), journal.flush, warm)


def _storage(journal: StoreJournal) -> JournalStorage:
    enabled = gc.isenabled()
    gc.disable()  # It takes 30 % of the time of reading a long journal.
    try:
        return JournalStorage(journal)
    finally:
        if enabled:
            gc.enable()


def read_study(objects: ObjectStore, key: str) -> tuple[list[Trial], Literal["running", "interrupted", "ended"]]:
    """The present trials of an experiment, and its state; for anybody."""
    trials: list[Trial] = []
    with suppress(KeyError):  # There is no such study yet.
        trials = _read(optuna.load_study(study_name=key, storage=_storage(StoreJournal(objects, key))))
    if silent_seconds(objects, key) is not None:
        return trials, "running"
    return trials, "ended" if all(trial.ended for trial in trials) else "interrupted"


def best_configurations(store: ArtifactStore, spec: ExperimentSpec) -> tuple[dict[str, Any], ...]:
    """The best configurations of the experiments of `warm_start`: for each its best trial, then the rest of its front.

    A configuration with a value outside the present space is left out, with a warning. Raises ConfigurationError if the
    store does not hold one of the experiments.
    """
    configurations: list[dict[str, Any]] = []
    if missing := [reference for reference in spec.warm_start if not store.exists(reference)]:
        raise ConfigurationError(f"tuning.warm_start: {store.address} does not hold {', '.join(missing)}")
    for reference in spec.warm_start:
        about, trials = store.read_json(reference, "experiment.json"), store.read_json(reference, "trials.json")
        by_number = {trial["number"]: trial["parameters"] for trial in trials}
        for number in dict.fromkeys([about["best_trial"], *about.get("front", [])]):
            chosen = by_number[number]
            wrong = [
                f"{parameter.name} is {chosen[parameter.name]}, expected {parameter.words}"
                for parameter in spec.parameters
                if parameter.name in chosen
                and parameter.is_open(chosen)
                and parameter.internal(chosen[parameter.name]) is None
            ]
            if wrong:
                logger.warning("warm_start: trial %d of %s is left out: %s", number, reference, "; ".join(wrong))
            elif chosen not in configurations:
                configurations.append(chosen)
    return tuple(configurations)
