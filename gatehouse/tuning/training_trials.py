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

from gatehouse.data.splitting.parts import read_part
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
from gatehouse.tracking.performance import measure_latency
from gatehouse.tracking.shipping import FOLLOWER, RUN_TITLE
from gatehouse.tracking.spool import Point
from gatehouse.training.scoring.predictor import Predictor
from gatehouse.training.spec import TrainSpec, length_of, measured_metrics
from gatehouse.training.stage import TrainRequest, job_key, train
from gatehouse.tuning.access.journal import SecondControllerError
from gatehouse.tuning.configuration import configured
from gatehouse.tuning.runner import Broken, Event, Failed, Reported, Stopped, Succeeded
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.trial import TrialData

logger = logging.getLogger(__name__)

_TURN_SECONDS = 0.05
"""Interval at which a trial that waits for its turn at a job checks whether it is stopped."""
_ROWS = 1024
_one_at_a_time = threading.Lock()

_FATAL = (StoreError, SecondControllerError)
"""Errors that end the experiment. Every other error counts as a failed trial."""
_TEMPORARY = (EvictedError, ClusterError)
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
        """Prepare to train models named `<model_name>-trial`; `base` has the settings that are not searched."""
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

    def start(self, number: int, parameters: dict[str, Any], notify: Callable[[Event], None]) -> "_Trial":
        """Start a trial; see `Runner`."""
        self._running = [trial for trial in self._running if trial.thread.is_alive()]
        trial = _Trial(self, number, parameters, notify)
        self._running.append(trial)
        trial.thread.start()
        return trial

    def request(self, parameters: dict[str, Any]) -> TrainRequest:
        """The training run of a trial.

        Raises ConfigurationError if no model can be trained with this combination of parameters.
        """
        try:
            spec = configured(self._base, parameters | {"seed": self._seed}, self.spec.trial_settings)
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors())
            raise ConfigurationError(f"The model cannot be trained with these values together: {problems}") from None
        algorithm = self.spec.algorithm
        segment = algorithm.interval if algorithm.name == "population" else 0
        return TrainRequest(**asdict(self.data), spec=spec, model_name=self._name, segment=segment)

    @contextmanager
    def alone(self, job: str, stop: Stop) -> Iterator[None]:
        """In this context no other trial trains the same job.

        Raises TrainingStoppedError if the trial is stopped while it waits.
        """
        while not self._jobs[job].acquire(timeout=_TURN_SECONDS):
            if stop.requested():
                raise stopped()
        try:
            yield
        finally:
            self._jobs[job].release()


class _Trial:
    """One running trial; the controller's handle."""

    def __init__(
        self, trials: TrainingTrials, number: int, parameters: dict[str, Any], notify: Callable[[Event], None]
    ) -> None:
        self._trials, self._number, self._parameters, self._notify = trials, number, parameters, notify
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
        except _FATAL as error:
            ended = Broken(self._number, error)
        except BaseException as error:  # The controller waits for an end, whatever the error is.
            name = error.name if isinstance(error, RepeatedError) else type(error).__name__
            logger.warning("Trial %d: %s: %s", self._number, name, error)
            message = str(error).splitlines()[0] if str(error) else name
            # Another attempt with the same settings may succeed: with more time or memory, or on another machine.
            outside = not error.repeats if isinstance(error, TrainingFailedError) else isinstance(error, _OUTSIDE)
            retry = isinstance(error, _TEMPORARY)
            ended = Failed(self._number, name, message, retry, self._job, provisional=outside)
        self._notify(ended)

    def _ended(self) -> Event:
        request = self._trials.request(self._parameters)
        self._names, self._length = measured_metrics(request.spec), length_of(request.spec)
        self._job = job_key(request)

        def hear(points: Sequence[Point]) -> None:
            epochs: defaultdict[int, dict[str, float]] = defaultdict(dict)
            for point in points:
                epochs[point.step][point.name] = point.value
            for epoch, values in sorted(epochs.items()):
                if self._names[0] in values:  # Steps of the training loop are numbered too.
                    self._report(epoch, values)

        STOP.set(self._stop)
        FOLLOWER.set(hear)
        RUN_TITLE.set(f"trial {self._number}")
        try:
            with self._trials.alone(self._job, self._stop):
                result = train(request, self._trials.store)
        except TrainingStoppedError:
            return Stopped(self._number, self._job)
        for row in self._trials.store.read_json(result.model, "history.json"):
            self._report(row["epoch"], row)  # A model from the memo has reported no epochs.
        measures = measured(self._trials.store, self._trials.data, result.model, self._trials.spec)
        return Succeeded(self._number, result.metrics, measures, result.model, self._job)

    def _report(self, epoch: int, values: dict[str, float]) -> None:
        """Report each epoch once, in order."""
        if epoch == self._done:
            self._done += 1
            measured_values = {name: values[name] for name in self._names if name in values}
            self._notify(Reported(self._number, self._done, self._length, measured_values))


def measured(store: ArtifactStore, data: TrialData, model: str, spec: ExperimentSpec) -> dict[str, float]:
    """The measurements of a model that an experiment needs.

    These are `size_bytes` of the weights; and `latency_ms`, the median time for one row of the validation part in
    milliseconds, together with `latency_p99_ms`.
    """
    needed = {objective.metric for objective in spec.objective}
    needed |= {constraint.measure for constraint in spec.constraints}
    measures: dict[str, float] = {}
    if "size_bytes" in needed:
        files = store.manifest(model).files
        measures["size_bytes"] = sum(entry.bytes for entry in files if entry.path.startswith("weights."))
    if "latency_ms" in needed:
        predictor = Predictor.load(store, model)
        part = read_part(store, data.training_set, data.split, "validation", predictor.task).thinned(_ROWS)
        with _one_at_a_time:  # A parallel measurement of this process would add to the time of a row.
            single = measure_latency(predictor.predict, part.table)["single_row_ms"]
        measures |= {"latency_ms": single["p50"], "latency_p99_ms": single["p99"]}
    return measures
