"""Searches: a controller that is killed, regret and overhead beside Optuna's own loop, and a study of many trials.

`tuning.py` runs all parts; `tuning.py kills regret` runs these. The objective of a trial is a formula.
"""

import argparse
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import optuna

from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.controller import Controller
from gatehouse.tuning.runner import Ended, Event, Reported
from gatehouse.tuning.samplers import sampler_of, suggested
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.study import ExperimentStudy, opened_study, read_study
from gatehouse.tuning.trial import Trial

STEPS, NOISE = 27, 0.02
RATE = {"name": "optimizer.learning_rate", "type": "double", "min": 1e-4, "max": 1.0, "log": True}
DECAY = {"name": "optimizer.weight_decay", "type": "double", "min": 0.0, "max": 1.0}
DROPOUT = {"name": "model.dropout", "type": "double", "min": 0.0, "max": 0.9}


def experiment(**fields: Any) -> ExperimentSpec:
    own = {"parameters": [RATE, DECAY, DROPOUT], "steps_per_trial": STEPS, "objective": "log_loss"}
    return ExperimentSpec.model_validate(own | fields)


def bowl(parameters: dict[str, Any], step: int = STEPS) -> float:
    """A learning curve towards a bowl over the parameters, whose least value is 0, with noise of the configuration."""
    rate = math.log10(parameters["optimizer.learning_rate"]) + 2
    far = rate**2 + 4 * (parameters["optimizer.weight_decay"] - 0.3) ** 2 + (parameters["model.dropout"] - 0.2) ** 2
    noise = NOISE * random.Random(repr(sorted(parameters.items()))).random()
    return float(far + noise + 0.5 * (1 - step / STEPS))


class Formula:
    """A runner whose trials report all steps at once, each after `pause` was called."""

    def __init__(self, pause: Callable[[int, int], None] = lambda number, step: None) -> None:
        self._pause = pause

    def start(self, number: int, parameters: dict[str, Any], notify: Callable[[Event], None]) -> "Formula":
        """Run a trial to its end."""
        for event in self._events(number, parameters):
            notify(event)
        return self

    def _events(self, number: int, parameters: dict[str, Any]) -> Iterator[Event]:
        for step in range(1, STEPS + 1):
            self._pause(number, step)
            yield Reported(number, step, STEPS, {"log_loss": bowl(parameters, step)})
        yield Ended(number, {"log_loss": bowl(parameters)})

    def stop(self) -> None:
        """Nothing runs."""


def searched(spec: ExperimentSpec, seed: int) -> list[Trial]:
    return list(Controller(ExperimentStudy(spec, seed, STEPS, f"seed {seed}"), Formula()).run().trials)


def _value(trial: Trial) -> float:
    return trial.values.get("log_loss", math.inf)


def regret() -> bool:
    """The best value so far beside Optuna's own loop, whose sampler is made once: medians of 20 seeds."""
    from scipy.stats import mannwhitneyu

    print("\nmedian regret after 20, 40 and 60 trials, the controller's and study.optimize's (20 seeds), and p")
    kept = True
    for algorithm in ("RandomSampler", "TPESampler", "NSGAIISampler", "CmaEsSampler"):
        spec = experiment(algorithm=algorithm, max_trial_count=60)
        gatehouse, peer = [], []
        for seed in range(20):
            gatehouse.append(np.minimum.accumulate([_value(trial) for trial in searched(spec, seed)]))
            own = optuna.create_study(sampler=_peer(spec, seed + 1000))
            own.optimize(lambda trial, spec=spec: bowl(suggested(spec, trial)), n_trials=60)  # type: ignore[misc]  # A default argument.
            peer.append(np.minimum.accumulate([trial.value or 0.0 for trial in own.trials]))
        middle = [(np.median(gatehouse, axis=0)[n], np.median(peer, axis=0)[n]) for n in (19, 39, 59)]
        p = float(mannwhitneyu([best[-1] for best in gatehouse], [best[-1] for best in peer]).pvalue)
        columns = "   ".join(f"{a:.4f} {b:.4f}" for a, b in middle)
        print(f"  {algorithm:15} {columns}   p {p:.2f}", flush=True)
        kept &= p > 0.01
    return kept


def _peer(spec: ExperimentSpec, seed: int) -> optuna.samplers.BaseSampler:
    """The same sampler as it is kept for a whole study; ours of TPE and CMA-ES are made for one trial."""
    if spec.algorithm.name == "TPESampler":
        return optuna.samplers.TPESampler(seed=seed)
    own = optuna.samplers.CmaEsSampler(seed=seed)
    return own if spec.algorithm.name == "CmaEsSampler" else sampler_of(spec, seed, 0)


def overhead() -> bool:
    """Wall time of the controller with trials that take none, and the journal on this disk, beside Optuna alone."""
    print("\nmilliseconds a trial of 200 with 27 reports, trials that take no time")
    slowest = 0.0
    for algorithm in ("RandomSampler", "TPESampler", "NSGAIISampler"):
        with tempfile.TemporaryDirectory() as folder:
            spec = experiment(algorithm=algorithm, max_trial_count=200, early_stopping="MedianPruner")
            objects = ArtifactStore.open(Path(folder) / "store").objects
            began = time.perf_counter()
            with opened_study(objects, "k1", spec, 1, STEPS) as study:
                Controller(study, Formula()).run()
            own_seconds = (time.perf_counter() - began) / 200
        own = optuna.create_study(sampler=_peer(spec, 1), pruner=optuna.pruners.MedianPruner())

        def objective(trial: optuna.Trial, spec: ExperimentSpec = spec) -> float:
            parameters = suggested(spec, trial)
            for step in range(1, STEPS):
                trial.report(bowl(parameters, step), step)
                if trial.should_prune():
                    raise optuna.TrialPruned
            return bowl(parameters)

        began = time.perf_counter()
        own.optimize(objective, n_trials=200)
        optuna_seconds = (time.perf_counter() - began) / 200
        print(f"  {algorithm:15} {own_seconds * 1000:6.1f}   Optuna in memory {optuna_seconds * 1000:6.1f}")
        slowest = max(slowest, own_seconds)
    return slowest < 0.050


def kills() -> bool:
    """A controller that is killed 20 times at random in 40 trials, beside one that is not."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        moments, killed, command = random.Random(5), 0, [sys.executable, __file__, "--controller", folder]
        while True:
            child = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
            aim = log.read_text().count("\n") + moments.randint(1, 14)
            while killed < 20 and child.poll() is None and log.read_text().count("\n") < aim:
                time.sleep(moments.random() / 100)
            if killed < 20 and child.poll() is None:
                child.send_signal(signal.SIGKILL)
                killed += 1
            if child.wait() == 0:
                break
        done = Counter(line for line in log.read_text().splitlines() if line.endswith(f" {STEPS}"))
        trials, _ = read_study(ArtifactStore.open(Path(folder) / "store").objects, "seed 1")
    whole = searched(_forty(), 1)
    print(f"\n{killed} kills in {len(trials)} trials, {sum(done.values()) - len(done)} ended within a kill and again;")
    print(f"  all ended: {all(trial.ended for trial in trials)}; all as without kills: {trials == whole}")
    return killed == 20 and trials == whole


def _forty() -> ExperimentSpec:
    return experiment(max_trial_count=40, early_stopping="MedianPruner")


def _controlled(folder: Path) -> None:
    """The controller that is killed; its trials take a few milliseconds a step, and note each in a file."""

    def pause(number: int, step: int) -> None:
        time.sleep(0.002)
        with (folder / "log").open("a") as log:
            log.write(f"{number} {step}\n")

    with opened_study(ArtifactStore.open(folder / "store").objects, "seed 1", _forty(), 1, STEPS) as study:
        Controller(study, Formula(pause)).run()


def stored() -> bool:
    """Time to open a study of 10,000 trials, and processor time of its next suggestion, by algorithm."""
    count, slowest = 10_000, 0.0
    with tempfile.TemporaryDirectory() as folder:
        objects = ArtifactStore.open(Path(folder) / "store").objects
        spec = experiment(algorithm="RandomSampler", max_trial_count=count)
        # The disk is not waited for while the study is filled, which is not what is measured.
        with mock.patch("os.fsync"), opened_study(objects, "k1", spec, 1, STEPS) as study:
            for _ in range(count):
                trial = study.ask()
                value = {"log_loss": bowl(trial.parameters)}
                study.end(Trial(trial.number, "succeeded", trial.parameters, value, metrics=value))
        began = time.perf_counter()
        read_study(objects, "k1")
        print(f"\n{count:,} trials are read in {time.perf_counter() - began:.1f} s; processor ms a suggestion")
        for algorithm in ("RandomSampler", "TPESampler", "NSGAIISampler"):
            with opened_study(objects, "k1", experiment(algorithm=algorithm), 1, STEPS) as study:
                seconds = []
                for _ in range(5):
                    began = time.process_time()
                    trial = study.ask()
                    seconds.append(time.process_time() - began)
                    study.end(Trial(trial.number, "failed", trial.parameters))
            print(f"  {algorithm:15} {statistics.median(seconds) * 1000:6.1f}")
            slowest = max(slowest, statistics.median(seconds))
    return slowest < 0.300


PARTS = {part.__name__: part for part in (regret, overhead, kills, stored)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which; all where none is named")
    parser.add_argument("--controller", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.controller:
        _controlled(options.controller)
        return
    missed = [name for name in options.parts or PARTS if not PARTS[name]()]
    print(f"\nmissed: {', '.join(missed) or 'none'}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
