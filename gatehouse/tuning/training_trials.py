"""Trials as training runs, with the launcher of the environment."""

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from gatehouse.data.splitting.parts import divided_set, read_part
from gatehouse.errors import ConfigurationError
from gatehouse.launchers.launcher import Stop, stopped
from gatehouse.metrics.performance import measure_latency
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.metrics_file import Point
from gatehouse.tracking.sending import FOLLOWER, RUN_TITLE
from gatehouse.training.predictor import Predictor
from gatehouse.training.spec import TrainSpec, length_of, measured_metrics
from gatehouse.training.stage import TrainRequest, job_key, train
from gatehouse.tuning.configuration import configured
from gatehouse.tuning.runner import Ended, RunningTrial, TrialThreads
from gatehouse.tuning.spec import ExperimentSpec

_LOCK_SECONDS = 0.05
"""Interval at which a trial that waits for its turn at a job checks whether it is stopped."""
_ROWS = 1024
_one_at_a_time = threading.Lock()


class TrainingTrials(TrialThreads):
    """Runs trials as training runs.

    Each trial is a memoised training run that resumes at its last checkpoint. One of several
    trials with the same configuration trains, and the others wait for its model, or, if it was stopped, its checkpoint.
    """

    def __init__(
        self,
        store: ArtifactStore,
        data: dict[str, str],
        model_name: str,
        base: TrainSpec,
        spec: ExperimentSpec,
        seed: int,
    ) -> None:
        """Prepare to train models named `<model_name>-trial`; `base` has the settings that are not searched."""
        super().__init__()
        self.store, self.data, self.spec = store, data, spec
        self._base, self._name, self._seed = base, f"{model_name}-trial", seed
        self._jobs: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def ended(self, trial: RunningTrial) -> Ended:
        """Train the model of a trial."""
        request = self.request(trial.parameters)
        names, length = measured_metrics(request.spec), length_of(request.spec)
        trial.job = job_key(request)

        def report(epoch: int, values: dict[str, float]) -> None:
            """Report each epoch once, in order."""
            if epoch == trial.done:
                trial.report(epoch + 1, length, {name: values[name] for name in names if name in values})

        def on_points(points: Sequence[Point]) -> None:
            epochs: defaultdict[int, dict[str, float]] = defaultdict(dict)
            for point in points:
                epochs[point.step][point.name] = point.value
            for epoch, values in sorted(epochs.items()):
                if names[0] in values:  # Steps of the training loop are numbered too.
                    report(epoch, values)

        FOLLOWER.set(on_points)
        RUN_TITLE.set(f"trial {trial.number}")
        with self.alone(trial.job, trial.stopping):
            result = train(request, self.store)
        for row in self.store.read_json(result.model, "history.json"):
            report(row["epoch"], row)  # A model from the memo has reported no epochs.
        measures = measured(self.store, self.data["split"], result.model, self.spec)
        return Ended(trial.number, result.metrics, measures, result.model, trial.job)

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
        return TrainRequest(**self.data, spec=spec, model_name=self._name, segment=segment)

    @contextmanager
    def alone(self, job: str, stop: Stop) -> Iterator[None]:
        """In this context no other trial trains the same job.

        Raises TrainingStoppedError if the trial is stopped while it waits.
        """
        while not self._jobs[job].acquire(timeout=_LOCK_SECONDS):
            if stop.requested():
                raise stopped()
        try:
            yield
        finally:
            self._jobs[job].release()


def measured(store: ArtifactStore, split: str, model: str, spec: ExperimentSpec) -> dict[str, float]:
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
        part = read_part(store, divided_set(store, split), split, "validation", predictor.task).thinned(_ROWS)
        with _one_at_a_time:  # A parallel measurement of this process would add to the time of a row.
            single = measure_latency(predictor.predict, part.table)["single_row_ms"]
        measures |= {"latency_ms": single["p50"], "latency_p99_ms": single["p99"]}
    return measures
