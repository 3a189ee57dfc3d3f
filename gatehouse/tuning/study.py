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

from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.journal import ControllerLease, StoreJournal, is_controlled
from gatehouse.tuning.population import Population
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.storage import STORAGE, database
from gatehouse.tuning.suggestion import internal, outside, pruner_of, sampler_of, step_of, suggested
from gatehouse.tuning.trial import Trial

logger = logging.getLogger(__name__)

_TRIAL, _ENDED, _TOOK, _BEGUN, _PRUNED = (f"gatehouse:{key}" for key in ("trial", "ended", "took", "begun", "pruned"))
_STATES = {"succeeded": TrialState.COMPLETE, "early_stopped": TrialState.PRUNED}


@dataclass
class ExperimentStudy:
    """The study of an experiment, which is continued if its storage holds part of it.

    Every change is stored when `flush` returns. A trial that the storage has begun without a suggestion, because its
    controller was killed, does not count until `ask` takes it.

    Attributes:
        name: Name of the study; hyperband divides trials into brackets by it.
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
            # Later generations follow from how such a member ended. Their models come from the memo of training.
            optuna.delete_study(study_name=self.name, storage=self.storage)
            self.optuna = self._opened()
        self._ids: dict[int, int] = {}
        self._begun = -1
        """Number of the last trial that the storage has begun."""
        if _BEGUN not in self.optuna.user_attrs:  # The configurations to try first are put into the queue once.
            queued = list(filter(None, (internal(self.spec, chosen) for chosen in self.warm)))
            for chosen in queued[len(self.optuna.get_trials(deepcopy=False)) :]:
                self.optuna.enqueue_trial(chosen)
            self.optuna.set_user_attr(_BEGUN, True)
        for frozen in self.optuna.get_trials(deepcopy=False):
            if frozen.state != TrialState.WAITING:
                self._begun = frozen.number
                if trial := _read(frozen):  # Trials without a suggestion come only after these.
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
            directions=["minimize" if objective.minimize else "maximize" for objective in self.spec.objective],
            pruner=pruner_of(self.spec, self.steps),
            load_if_exists=True,
        )

    def _id_of(self, number: int) -> int:
        """The id of a trial in the storage."""
        if number not in self._ids:
            study = self.storage.get_study_id_from_name(self.name)
            self._ids[number] = self.storage.get_trial_id_from_study_id_trial_number(study, number)
        return self._ids[number]

    @property
    def running(self) -> list[Trial]:
        """The trials that have not ended."""
        return [trial for trial in self.trials if not trial.ended]

    def training(self, trial: Trial) -> dict[str, Any]:
        """The settings of training that a trial replaces, by dotted name."""
        return trial.parameters if self.population is None else self.population.training(trial, self.trials)

    def length(self, trial: Trial) -> dict[str, int]:
        """The setting that ends a trial before the end of a whole training, by dotted name."""
        return {} if self.population is None else {"stopping.epochs": self.population.end(trial.number)}

    def step_of(self, done: int, total: int) -> int:
        """The step that a trial has reached: in a population the epoch, else as `pruning.step_of`."""
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
        optuna_trial: optuna.Trial | None = None
        if self._begun < number:
            optuna_trial = self.optuna.ask()
            self._begun = optuna_trial.number
        if optuna_trial is None or optuna_trial.number != number:
            # The storage has begun it, with no suggestion or part of one.
            optuna_trial = optuna.Trial(self.optuna, self._id_of(number))
        parent, chosen = self.population.suggested(number, self.trials) if self.population else (None, None)
        chosen = suggested(self.spec, optuna_trial) if chosen is None else chosen
        optuna_trial.set_user_attr(_TRIAL, {"parameters": chosen, "beside": list(beside), "parent": parent})
        self.trials.append(Trial(number, "running", chosen, beside=beside, parent=parent))
        self.flush()
        return self.trials[-1]

    def again(self) -> Trial:
        """Take the first provisional trial of an earlier controller, which runs again from where it was."""
        number = self.waiting.pop(0)
        self.storage.set_trial_user_attr(self._id_of(number), _ENDED, None)
        self.trials[number] = replace(
            self.trials[number], state="running", reason="", message="", job="", provisional=False
        )
        self.flush()
        return self.trials[number]

    def report(self, number: int, step: int, value: float) -> bool:
        """Record the objective of a trial at a step, each step once; returns whether the trial stops early."""
        trial = self.trials[number]
        if trial.intermediate and step <= trial.intermediate[-1][0]:
            return False
        self.trials[number] = replace(trial, intermediate=(*trial.intermediate, (step, value)))
        if not self._single:
            return False
        self.storage.set_trial_intermediate_value(self._id_of(number), step, value)
        identity = self._id_of(number)
        if step == self.steps or not self.optuna.pruner.prune(self.optuna, self.storage.get_trial(identity)):
            return False
        self.storage.set_trial_user_attr(identity, _PRUNED, step)  # Pruners judge a step once.
        return True

    def pruned_at(self, number: int) -> int | None:
        """The step at which a pruner decided to stop a running trial; None if it continues."""
        return self.storage.get_trial(self._id_of(number)).user_attrs.get(_PRUNED)

    def end(self, trial: Trial, seconds: float = 0.0, elapsed: float = 0.0) -> Trial:
        """Record how a trial ended, with its duration and that of the experiment in seconds.

        For the sampler a provisional trial is still running, so that the next controller can go on with it.
        """
        succeeded, identity = trial.state == "succeeded", self._id_of(trial.number)
        measured, violations = trial.metrics | trial.measures, []
        for index, constraint in enumerate(self.spec.constraints if succeeded else ()):
            value = measured.get(constraint.measure, math.inf if constraint.at_most is not None else -math.inf)
            violations.append(constraint.violation(value))
            optuna.Trial(self.optuna, identity).set_constraint(f"{index}:{constraint.measure}", violations[-1])
        ended = replace(trial, feasible=succeeded and all(violation <= 0 for violation in violations))
        self.storage.set_trial_user_attr(identity, _ENDED, asdict(ended))
        took = self.seconds.get(trial.number, 0.0) + seconds
        self.storage.set_trial_user_attr(identity, _TOOK, [took, elapsed])
        self.seconds[trial.number], self.elapsed = took, max(self.elapsed, elapsed)
        if not ended.provisional:
            self.optuna.sampler = sampler_of(self.spec, self.seed, trial.number)
            values = [ended.values[objective.metric] for objective in self.spec.objective] if succeeded else None
            self.optuna.tell(trial.number, values, state=_STATES.get(ended.state, TrialState.FAIL))
        self.trials[trial.number] = ended
        self.flush()
        return ended


def _read(frozen: optuna.trial.FrozenTrial) -> Trial | None:
    """A trial of a study; None if its suggestion is incomplete."""
    if frozen.state.is_finished() or _is_provisional(frozen):
        return Trial.from_json(frozen.user_attrs[_ENDED])
    if (stored := frozen.user_attrs.get(_TRIAL)) is None:
        return None
    steps, beside = tuple(sorted(frozen.intermediate_values.items())), tuple(stored["beside"])
    return Trial(
        frozen.number, "running", stored["parameters"], intermediate=steps, beside=beside, parent=stored["parent"]
    )


def _is_provisional(frozen: optuna.trial.FrozenTrial) -> bool:
    return bool((frozen.user_attrs.get(_ENDED) or {}).get("provisional"))


@contextmanager
def opened_study(
    objects: ObjectStore, key: str, spec: ExperimentSpec, seed: int, steps: int, warm: tuple[dict[str, Any], ...] = ()
) -> Iterator[ExperimentStudy]:
    """Open the study of an experiment for its controller, and continue what an earlier controller left.

    With `resume_policy: never` nothing is kept. `warm` are configurations to try first.

    Raises:
        SecondControllerError: if the experiment has a controller.
        StoreError: if the database, or its proxy, does not answer.
    """
    with ControllerLease(objects, key) as lease:
        if spec.resume_policy == "never":
            yield ExperimentStudy(spec, seed, steps, key, flush=lease.require, warm=warm)
        elif (stored := database()) is not None:
            import grpc
            from optuna.exceptions import StorageInternalError

            try:
                yield ExperimentStudy(spec, seed, steps, key, stored, lease.require, warm)
            except (grpc.RpcError, StorageInternalError) as error:
                raise StoreError(f"{STORAGE}: the database of studies failed: {type(error).__name__}") from None
        else:
            with _uncollected():
                storage = JournalStorage(journal := StoreJournal(objects, key))

            def flush() -> None:
                lease.require()
                journal.flush()

            yield ExperimentStudy(spec, seed, steps, key, storage, flush, warm)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause Python's garbage collector, which otherwise takes 30 % of the time of reading a long journal."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_study(objects: ObjectStore, key: str) -> tuple[list[Trial], Literal["running", "interrupted", "ended"]]:
    """The present trials of an experiment, and its state; without a lease."""
    with _uncollected():
        storage: optuna.storages.BaseStorage = database() or JournalStorage(StoreJournal(objects, key))
        trials: list[Trial] = []
        with suppress(KeyError):  # There is no such study yet.
            frozen_trials = optuna.load_study(study_name=key, storage=storage).get_trials(deepcopy=False)
            trials = [trial for frozen in frozen_trials if (trial := _read(frozen)) is not None]
    if is_controlled(objects, key):
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
            if wrong := outside(spec, chosen):
                logger.warning("warm_start: trial %d of %s is left out: %s", number, reference, "; ".join(wrong))
            elif chosen not in configurations:
                configurations.append(chosen)
    return tuple(configurations)
