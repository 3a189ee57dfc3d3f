"""One experiment from its study to its artifact, whatever its trials run."""

import functools
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gatehouse.runtime.plural import counted
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.run import RUN_ID, Attempt
from gatehouse.store.stage import Stage
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.access.journal import is_asked_to_stop, remember
from gatehouse.tuning.controller import Controller, Experiment
from gatehouse.tuning.study import best_configurations, opened_study
from gatehouse.tuning.trial import words
from gatehouse.tuning.trial_threads import TrialThreads


@dataclass(frozen=True)
class Conducted:
    """A finished experiment: its reference, its result, and the result in one line."""

    experiment: str
    result: Experiment
    summary: str


def run_experiment(
    store: ArtifactStore,
    stage: Stage[Any, Any],
    request: Any,
    key: str,
    trials: TrialThreads,
    *,
    name: str,
    steps: int,
    origin: Mapping[str, str],
    configuration: Mapping[str, Any],
    price: float | None = None,
) -> Conducted:
    """Run the experiment that a request of `stage` asks for, or go on with it, and publish it.

    Args:
        request: It has `spec`, an ExperimentSpec, and `seed`.
        key: Identifies the study; an experiment with this key goes on.
        steps: Steps of a whole trial.
        origin: References from which the experiment is derived, by role.
        configuration: What the artifact tells of the request besides the experiment.
        price: Of an hour of trials, if the budget limits the cost.

    Raises what `Controller.run` raises.
    """
    began, spec = time.time(), request.spec
    attempt = Attempt(store, f"{stage.name}:trials")
    body = request.model_dump(mode="json")
    about = {"stage": stage.name, "name": name, "request": body, "steps": steps, "seed": request.seed}
    stopped = functools.partial(is_asked_to_stop, store.objects, key)

    def notify(number: int, line: str) -> None:
        attempt.note(f"trial-{number}", message=line)

    with opened_study(store.objects, key, spec, request.seed, steps, best_configurations(store, spec)) as study:
        remember(store.objects, key, about, os.environ.get(RUN_ID, ""))
        with trials:
            result = Controller(study, trials, stopped=stopped, notify=notify, price=price).run()
    best = result.best
    outcome = {
        "best_trial": best.number,
        "front": list(result.front),
        "ended": result.ended,
        "provisional": [trial.number for trial in result.provisional],
        "counts": dict(Counter(trial.state for trial in result.trials)),
        "steps": result.steps,
    }
    warm = {f"warm_start.{index}": reference for index, reference in enumerate(spec.warm_start)}
    published = store.publish(
        "experiments",
        name,
        {
            "trials.json": canonical_json([trial.to_json() for trial in result.trials]),
            "experiment.json": canonical_json(spec.described(steps) | outcome),
        },
        derived_from=dict(origin) | warm,
        configuration={**configuration, "experiment": identity_of(spec)},
        details={
            "best_trial": best.number,
            "value": best.values[spec.objective[0].metric],
            "trials": len(result.trials),
            "ended": result.ended,
        },
    )
    experiment = str(published)
    measured: dict[str, object] = {
        "stage": "tune",
        "began": began,
        "seconds": time.time() - began,
        "study": key,
        "jobs": {str(trial.number): trial.job for trial in result.trials if trial.job},
        "failed": {str(trial.number): trial.message for trial in result.trials if trial.message},
        "trial_seconds": {str(number): round(seconds, 3) for number, seconds in result.seconds.items()},
    }
    store.append(f"measurements/{experiment}", measured)
    names = dict.fromkeys(parameter.name for parameter in spec.parameters)  # A journal does not keep their order.
    values = [(name, best.parameters[name]) for name in names if name in best.parameters]
    chosen = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in values
    )
    summary = f"trial {best.number}: {words(best.values)} ({chosen})"
    if result.provisional:
        reasons = ", ".join(dict.fromkeys(trial.reason for trial in result.provisional))
        why = (
            f"provisional: {counted(len(result.provisional), 'trial')} failed for a reason outside of the search "
            f"({reasons}), and the next run tries again"
        )
        Attempt(store, f"{stage.name}:provisional").warn(f"The experiment is {why}.")
        summary = f"{summary}; {why}"
    return Conducted(experiment, result, summary)
