"""Trials as training runs: each on its own thread, with the launcher of the environment."""

import contextvars
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import TracebackType
from typing import Any

from pydantic import ValidationError

from gatehouse.errors import (
    ConfigurationError,
    CorruptArtifactError,
    DeprecatedArtifactError,
    ErasedArtifactError,
    LauncherError,
    MissingArtifactError,
    OutOfMemoryError,
    RepeatedError,
    StoppedError,
    StoreError,
)
from gatehouse.launchers.launcher import (
    STOP,
    ClusterError,
    EvictedError,
    Stop,
    TrainingFailedError,
    TrainingStoppedError,
    stopped,
)
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.following import FOLLOWER, RUN_TITLE
from gatehouse.tracking.spool import Point
from gatehouse.training.spec import TrainSpec, length_of, measured_metrics
from gatehouse.training.stage import TrainRequest, TrainResult, job_key, train
from gatehouse.tuning import waits
from gatehouse.tuning.access.journal import SecondControllerError
from gatehouse.tuning.configuration import configured
from gatehouse.tuning.data import TrialData
from gatehouse.tuning.measures import measured
from gatehouse.tuning.runner import Broken, Event, Failed, Reported, Stopped, Succeeded
from gatehouse.tuning.spec import ExperimentSpec

logger = logging.getLogger(__name__)

_OF_ALL = (StoreError, SecondControllerError)
"""Errors that end the experiment. Every other error counts as a failed trial."""
_MAY_PASS = (EvictedError, ClusterError)
"""Errors of a trial after which it is begun again at once."""
_OUTSIDE = (
    *(LauncherError, OutOfMemoryError, RuntimeError, OSError, MemoryError, StoppedError),
    *(MissingArtifactError, CorruptArtifactError, ErasedArtifactError, DeprecatedArtifactError),
)
"""Errors that may come from limits, machines, clusters or people: they are outside of the experiment and its key."""


class TrainingTrials:
    """Runs trials as training runs, and stops the remaining ones when its context ends.

    Each trial is a memoised training run that resumes at its last checkpoint. Of several trials with one configuration
    one trains, and the others wait for its result: its model, or, if it was stopped, its checkpoint.
    """

    def __init__(
        self,
        store: ArtifactStore,
        data: TrialData,
        model_name: str,
        base: TrainSpec,
        spec: ExperimentSpec,
        seed: int,
    ) -> None:
        """Prepare to train.

        Args:
            store: The artifact store; trials' models are published under `<model_name>-trial`.
            data: The data of every trial.
            model_name: Name of the model.
            base: Every setting that is not searched.
            spec: The experiment, with settings that replace those of `base` in a trial.
            seed: Seed of every trial.
        """
        self.store, self.data, self.spec = store, data, spec
        self._base, self._name, self._seed = base, f"{model_name}-trial", seed
        self._running: list[_Trial] = []
        self._jobs: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def __enter__(self) -> "TrainingTrials":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for trial in self._running:
            trial.stop()
        for trial in self._running:
            trial.thread.join()

    def start(self, number: int, parameters: dict[str, Any], told: Callable[[Event], None]) -> "_Trial":
        """Start a trial; see `Runner`."""
        self._running = [each for each in self._running if each.thread.is_alive()]
        trial = _Trial(self, number, parameters, told)
        self._running.append(trial)
        trial.thread.start()
        return trial

    def request(self, parameters: dict[str, Any]) -> TrainRequest:
        """The training run of a trial.

        Raises:
            ConfigurationError: if no model can be trained with this combination of parameters.
        """
        try:
            spec = configured(self._base, parameters | {"seed": self._seed}, self.spec.trial_settings)
        except ValidationError as error:
            said = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            raise ConfigurationError(f"The model cannot be trained with these values together: {said}") from None
        algorithm = self.spec.algorithm
        segment = algorithm.interval if algorithm.name == "population" else 0
        return TrainRequest(**asdict(self.data), spec=spec, model_name=self._name, segment=segment)

    @contextmanager
    def alone(self, job: str, stop: Stop) -> Iterator[None]:
        """In this context no other trial trains the same job.

        Raises:
            TrainingStoppedError: if the trial is stopped while it waits.
        """
        while not self._jobs[job].acquire(timeout=waits.TURN_SECONDS):
            if stop.asked():
                raise stopped()
        try:
            yield
        finally:
            self._jobs[job].release()


class _Trial:
    """One running trial; the controller's handle."""

    def __init__(
        self, trials: TrainingTrials, number: int, parameters: dict[str, Any], told: Callable[[Event], None]
    ) -> None:
        self._trials, self._number, self._parameters, self._told = trials, number, parameters, told
        self._stop, self._done = Stop(), 0
        self._names: tuple[str, ...] = ()
        self._length, self._job = 0, ""
        context = contextvars.copy_context()
        self.thread = threading.Thread(target=context.run, args=(self._run,), name=f"trial-{number}", daemon=True)

    def stop(self) -> None:
        """End the job at once, without waiting: on a cluster this needs several requests."""
        threading.Thread(target=self._stop.ask, name=f"stop-{self._number}", daemon=True).start()

    def _run(self) -> None:
        try:
            ended = self._ended()
        except _OF_ALL as error:
            ended = Broken(self._number, error)
        except BaseException as error:  # The controller waits for an end, whatever the error is.
            name = error.name if isinstance(error, RepeatedError) else type(error).__name__
            logger.warning("Trial %d: %s: %s", self._number, name, error)
            told = str(error).splitlines()[0] if str(error) else name
            retry = isinstance(error, _MAY_PASS)
            ended = Failed(self._number, name, told, retry, self._job, provisional=_is_provisional(error))
        self._told(ended)

    def _ended(self) -> Event:
        request = self._trials.request(self._parameters)
        self._names, self._length = measured_metrics(request.spec), length_of(request.spec)
        self._job = job_key(request)
        STOP.set(self._stop)
        FOLLOWER.set(self._hear)
        RUN_TITLE.set(f"trial {self._number}")
        try:
            with self._trials.alone(self._job, self._stop):
                result = train(request, self._trials.store)
        except TrainingStoppedError:
            return Stopped(self._number, self._job)
        for row in self._trials.store.read_json(result.model, "history.json"):
            self._report(row["epoch"], row)  # A model from the memo has reported no epochs.
        return self._succeeded(result)

    def _succeeded(self, result: TrainResult) -> Succeeded:
        found = measured(self._trials.store, self._trials.data, result.model, self._trials.spec)
        return Succeeded(self._number, result.metrics, found, result.model, self._job)

    def _hear(self, points: Sequence[Point]) -> None:
        epochs: defaultdict[int, dict[str, float]] = defaultdict(dict)
        for point in points:
            epochs[point.step][point.name] = point.value
        for epoch, values in sorted(epochs.items()):
            if self._names[0] in values:  # Steps of the training loop are numbered too.
                self._report(epoch, values)

    def _report(self, epoch: int, values: dict[str, float]) -> None:
        """Report each epoch once, in order."""
        if epoch == self._done:
            self._done += 1
            known = {name: values[name] for name in self._names if name in values}
            self._told(Reported(self._number, self._done, self._length, known))


def _is_provisional(error: BaseException) -> bool:
    """Whether another attempt with the same settings may succeed: with more time or memory, or on another machine."""
    if isinstance(error, TrainingFailedError):
        return not error.repeats
    return isinstance(error, _OUTSIDE)
