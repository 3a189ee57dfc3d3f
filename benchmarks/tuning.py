"""Experiments: what early stopping saves, regret and overhead beside Optuna, kills, large studies, workers, busy cores.

`tuning.py` runs all parts; `tuning.py steps kills` runs these. Objectives are learners of scikit-learn behind the
interface of trials, or a formula whose optimum is known; clocks are simulated where pods would be waited for.
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
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import optuna
from _curves import Course, draw, print_courses, reached
from _simulated import Simulation
from _small_tables import FLIGHTS, TABLES, published_flights
from _small_tables import table as small_table
from _spaces import BOWL, DROPOUT, RATE, STEPS, TWO_MODELS, bowl, two_models, valley
from _storages import storages
from optuna.storages import JournalStorage

from gatehouse.store.store import ArtifactStore
from gatehouse.training.spec import train_spec
from gatehouse.training.transformation_stage import FitRequest, fit_transformation
from gatehouse.tuning.controller import Controller
from gatehouse.tuning.journal import StoreJournal
from gatehouse.tuning.runner import Event, Reported, Succeeded
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.stage import TuneRequest, tune
from gatehouse.tuning.study import ExperimentStudy, opened_study, read_study
from gatehouse.tuning.suggestion import sampler_of, suggested
from gatehouse.tuning.trial import Trial

WIDTH = {"name": "model.embedding_size", "type": "int", "min": 2, "max": 64, "log": True}
PENALTY = {"name": "optimizer.clip_norm", "type": "double", "min": 1e-6, "max": 1.0, "log": True}
_RANDOM = 20
SEPARATELY = {"name": "tpe", "multivariate": False}


def experiment(**fields: Any) -> ExperimentSpec:
    own = {"parameters": BOWL, "steps_per_trial": STEPS, "objective": "log_loss"}
    return ExperimentSpec.model_validate(own | fields)


def curve(
    of: Callable[[dict[str, Any], int], float], seconds: float = 0.0, begin: float = 0.0, keeps_best: bool = False
) -> Any:
    """A script of trials that report `of` parameters and step; the first step comes `begin` seconds later.

    With `keeps_best` the value of a trial is that of its best step, as training keeps the weights of its best epoch.
    """

    def script(number: int, parameters: dict[str, Any]) -> Iterator[tuple[float, Event]]:
        for step in range(1, STEPS + 1):
            yield seconds + begin * (step == 1), Reported(number, step, STEPS, {"log_loss": of(parameters, step)})
        value = min(of(parameters, step) for step in range(1 if keeps_best else STEPS, STEPS + 1))
        yield 0.0, Succeeded(number, {"log_loss": value})

    return script


def simulated(spec: ExperimentSpec, seed: int, script: Any) -> tuple[list[Trial], Simulation]:
    simulation = Simulation(script)
    study = ExperimentStudy(spec, seed, STEPS, f"seed {seed}")
    done = Controller(study, simulation, inbox=simulation, clock=simulation.clock).run()
    return list(done.trials), simulation


def steps(tables: Sequence[str] = TABLES, picture: Path | None = None) -> bool:
    """Steps until the score that random search ends with, of the steps of random search: medians of 10 seeds."""
    whole = _RANDOM * STEPS
    print(f"share of the {whole} steps of {_RANDOM} random trials in which their final score is reached (10 seeds)")
    print("  table          method                   median   quartiles     reached   median log loss after all steps")
    print(f"  flights: {FLIGHTS:,} flights of the example's source, evenly over the year")
    courses = {}
    for table in tables:
        races = [raced(table, seed, whole) for seed in range(10)]
        courses[table] = {method: [race[method] for race in races] for method in races[0]}
        print_courses(table, courses[table])
    if picture is not None:
        draw(picture, courses, "log loss")
    return all(min(reached(courses[table], by) for by in STOPPED[:2]) < 0.5 for table in tables)


STOPPED = ("random with median", "random with hyperband", "tpe with hyperband")


def raced(table: str, seed: int, whole: int) -> dict[str, Course]:
    """How each method fares by the steps that it takes."""
    courses = {}
    for method in ("random", *STOPPED):
        algorithm, _, stopping = method.partition(" with ")
        spec = experiment(
            parameters=[RATE, PENALTY, WIDTH],
            algorithm=algorithm,
            early_stopping=stopping or None,
            max_trial_count=10_000,
            budget={"steps": whole},
        )
        spent, best = 0, math.inf
        courses[method] = course = []
        for trial in simulated(spec, seed, curve(_learner(table), keeps_best=True))[0]:
            spent += STEPS if trial.state == "succeeded" else trial.intermediate[-1][0] if trial.intermediate else 0
            best = min(best, _value(trial))
            if trial.state == "succeeded":
                course.append((spent / whole, best))
    return courses


def _learner(table: str) -> Callable[[dict[str, Any], int], float]:
    """The validation log loss of a network of scikit-learn after so many epochs; each epoch is trained once."""
    under_way: dict[str, tuple[Any, list[float]]] = _UNDER_WAY.setdefault(table, {})
    train, train_labels, validation, labels = small_table(table)

    def loss(parameters: dict[str, Any], step: int) -> float:
        from sklearn.metrics import log_loss
        from sklearn.neural_network import MLPClassifier

        key = repr(sorted(parameters.items()))
        if key not in under_way:
            learner = MLPClassifier(
                (parameters["model.embedding_size"],),
                alpha=parameters["optimizer.clip_norm"],
                learning_rate_init=parameters["optimizer.learning_rate"],
                batch_size=64,
                random_state=0,
            )
            under_way[key] = learner, []
        learner, losses = under_way[key]
        while len(losses) < step:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                learner.partial_fit(train, train_labels, classes=np.unique(labels))
                losses.append(float(log_loss(labels, learner.predict_proba(validation), labels=np.unique(labels))))
        return losses[step - 1]

    return loss


_UNDER_WAY: dict[str, dict[str, tuple[Any, list[float]]]] = {}


def regret() -> bool:
    """The best value so far beside Optuna's own loop, whose sampler is made once: medians of 20 seeds."""
    from scipy.stats import mannwhitneyu

    print(
        "\nmedian regret after so many trials, the controller's and study.optimize's (20 seeds), and p of a difference"
    )
    kept = True
    for algorithm in ("random", "tpe", SEPARATELY, "nsga2", "cmaes"):
        name = algorithm if isinstance(algorithm, str) else "tpe, each by itself"
        gatehouse, peer = [], []
        try:
            for seed in range(20):
                spec = experiment(algorithm=algorithm, max_trial_count=60)
                gatehouse.append(_best([trial.values["log_loss"] for trial in simulated(spec, seed, curve(bowl))[0]]))
                own = optuna.create_study(sampler=_peer(spec, seed + 1000))
                own.optimize(lambda trial, spec=spec: bowl(suggested(spec, trial)), n_trials=60)  # type: ignore[misc]
                peer.append(_best([trial.value or 0.0 for trial in own.trials]))
        except ImportError as error:
            print(f"  {name:20} not measured: {error}")
            continue
        middle = [
            (statistics.median(x[n] for x in gatehouse), statistics.median(x[n] for x in peer)) for n in (19, 39, 59)
        ]
        p = float(mannwhitneyu([x[59] for x in gatehouse], [x[59] for x in peer]).pvalue)
        columns = "   ".join(f"{n}: {a:.4f} {b:.4f}" for n, (a, b) in zip((20, 40, 60), middle, strict=True))
        print(f"  {name:20} {columns}   p {p:.2f}", flush=True)
        kept &= p > 0.01
    return kept


def together() -> bool:
    """TPE that takes parameters together, as by default, beside each by itself: medians of 20 seeds."""
    from scipy.stats import mannwhitneyu

    print("\nmedian regret of TPE after so many trials, parameters together and each by itself (20 seeds)")
    kept = True
    spaces = {"bowl": (BOWL, bowl), "valley": (BOWL, valley), "two models": (TWO_MODELS, two_models)}
    for name, (parameters, of) in spaces.items():
        scores: list[list[list[float]]] = []
        for algorithm in ("tpe", SEPARATELY):
            spec = experiment(algorithm=algorithm, max_trial_count=60, parameters=parameters)
            runs = (simulated(spec, seed, curve(of))[0] for seed in range(20))
            scores.append([_best([_value(trial) for trial in trials]) for trials in runs])
        parallel, apart = ([run[-1] for run in method] for method in scores)
        rows = [[statistics.median(run[n - 1] for run in method) for method in scores] for n in (20, 40, 60)]
        p = float(mannwhitneyu(parallel, apart).pvalue)
        columns = "   ".join(f"{n}: {a:.4f} {b:.4f}" for n, (a, b) in zip((20, 40, 60), rows, strict=True))
        print(f"  {name:10} {columns}   p {p:.3f}", flush=True)
        kept &= statistics.median(parallel) < statistics.median(apart) or p > 0.01
    return kept


def _peer(spec: ExperimentSpec, seed: int) -> optuna.samplers.BaseSampler:
    """The same sampler as one keeps it for a whole study; ours of TPE and CMA-ES are made for one trial."""
    if spec.algorithm.name == "tpe":
        return optuna.samplers.TPESampler(multivariate=spec.algorithm.multivariate, seed=seed)
    return optuna.samplers.CmaEsSampler(seed=seed) if spec.algorithm.name == "cmaes" else sampler_of(spec, seed, 0)


def _best(values: list[float]) -> list[float]:
    return list(np.minimum.accumulate(values))


def overhead() -> bool:
    """Wall time of the controller with trials that take none, and the journal on this disk, beside Optuna alone."""
    print("\nmilliseconds a trial of 200 with 27 reports, trials that take no time")
    slowest = 0.0
    for algorithm in ("random", "tpe", "nsga2"):
        with tempfile.TemporaryDirectory() as folder:
            spec = experiment(algorithm=algorithm, max_trial_count=200, early_stopping="median")
            objects = ArtifactStore.open(Path(folder) / "store").objects
            began = time.perf_counter()
            with opened_study(objects, "k1", spec, 1, STEPS) as study:
                simulation = Simulation(curve(bowl))
                Controller(study, simulation, inbox=simulation).run()
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
        print(f"  {algorithm:8} {own_seconds * 1000:6.1f}   Optuna in memory {optuna_seconds * 1000:6.1f}")
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
        lines = log.read_text().splitlines()
        trials, _ = read_study(ArtifactStore.open(Path(folder) / "store").objects, "k1")
    whole = simulated(_forty(), 1, curve(bowl))[0]
    done = Counter(line for line in lines if line.startswith("done"))
    recorded = {trial.number: trial for trial in trials}
    lost = [trial.number for trial in whole if trial.number not in recorded or not recorded[trial.number].ended]
    again = sum(done.values()) - len(done)
    same = min(trials, key=_value).parameters == min(whole, key=_value).parameters
    print(f"\n{killed} kills in {len(trials)} trials: {len(lost)} lost, {len(trials) - len(recorded)} recorded twice,")
    print(f"  {again} ended within a kill and told again; all as without kills: {trials == whole}; same best: {same}")
    return killed == 20 and not lost and same and trials == whole


def _value(trial: Trial) -> float:
    return trial.values.get("log_loss", math.inf)


def _forty() -> ExperimentSpec:
    return experiment(max_trial_count=40, early_stopping="median")


def _controlled(folder: Path) -> None:
    """The controller that is killed; its trials take a few milliseconds a step, and note each in a file."""

    def script(number: int, parameters: dict[str, Any]) -> Iterator[tuple[float, Event]]:
        for seconds, event in curve(bowl)(number, parameters):
            time.sleep(0.002)
            with (folder / "log").open("a") as log:
                log.write(f"{'done' if isinstance(event, Succeeded) else 'step'} {number}\n")
            yield seconds, event

    with opened_study(ArtifactStore.open(folder / "store").objects, "k1", _forty(), 1, STEPS) as study:
        simulation = Simulation(script)
        Controller(study, simulation, inbox=simulation).run()


def stored() -> bool:
    """Processor time of a suggestion where 10,000 trials are stored, by algorithm, and that of opening the study."""
    count, slowest = 10_000, 0.0
    with tempfile.TemporaryDirectory() as folder:
        objects = ArtifactStore.open(Path(folder) / "store").objects
        spec = experiment(algorithm="random", max_trial_count=count)
        # The disk is not waited for while the study is filled, which is not what is measured.
        with mock.patch("os.fsync"), opened_study(objects, "k1", spec, 1, STEPS) as study:
            for _ in range(count):
                trial = study.ask()
                value = {"log_loss": bowl(trial.parameters)}
                study.end(Trial(trial.number, "succeeded", trial.parameters, value, metrics=value))
        began = time.perf_counter()
        journal = StoreJournal(objects, "k1")
        storage = JournalStorage(journal)
        ExperimentStudy(spec, 1, STEPS, "k1", storage)
        print(
            f"\n{count:,} trials are stored: opened in {time.perf_counter() - began:.1f} s; processor ms a suggestion"
        )
        for algorithm in ("random", "tpe", SEPARATELY, "sobol", "nsga2"):
            study = ExperimentStudy(experiment(algorithm=algorithm), 1, STEPS, "k1", storage)
            taken = []
            for _ in range(5):
                began = time.process_time()
                trial = study.ask()
                taken.append(time.process_time() - began)
                study.end(Trial(trial.number, "failed", trial.parameters))
            name = algorithm if isinstance(algorithm, str) else "tpe, each by itself"
            print(f"  {name:20} {statistics.median(taken) * 1000:6.1f}")
            slowest = max(slowest, statistics.median(taken))
    return slowest < 0.300


def workers() -> bool:
    """100 workers on a simulated clock, pods that take a minute to begin, beside one worker after another."""
    print("\n500 trials of 27 steps of 20 s, pods that begin after 40 s (median; lognormal), simulated (2 seeds)")
    print("  workers  hours   trials an hour   busy   regret   regret of one worker")
    busy = 1.0
    for seed in range(2):
        rows = {}
        for parallel in (1, 100):
            spec = experiment(algorithm="tpe", max_trial_count=500, parallel_trial_count=parallel)
            trials, simulation = simulated(spec, seed, _in_pods(seed))
            hours = max(simulation.ended.values()) / 3600
            last = max(simulation.began.values())  # From then on workers have nothing left to do.
            worked = sum(min(ended, last) - simulation.began[number] for number, ended in simulation.ended.items())
            rows[parallel] = hours, worked / last / parallel, trials, simulation
        hours, share, trials, _ = rows[100]
        alone, simulation = rows[1][2], rows[1][3]
        within = [trial for trial in alone if simulation.ended[trial.number] <= hours * 3600]
        so_far = min((_value(trial) for trial in within), default=math.nan)
        print(
            f"  {100:7} {hours:6.1f} {500 / hours:12.0f} {share:10.1%} {min(map(_value, trials)):8.4f}"
            f"   {min(map(_value, alone)):.4f} in {rows[1][0]:.0f} hours, {so_far:.4f} after {len(within)} in as many"
        )
        busy = min(busy, share)
    return busy > 0.9


def _in_pods(seed: int) -> Any:
    """A script whose pods begin after a lognormal time, and are of different speed."""

    def script(number: int, parameters: dict[str, Any]) -> Iterator[tuple[float, Event]]:
        drawn = random.Random(f"{seed} {number}")
        begin, speed = 40 * math.exp(drawn.gauss(0, 0.6)), math.exp(drawn.gauss(0, 0.3))
        yield from curve(bowl, 20 * speed, begin)(number, parameters)

    return script


def busy() -> bool:
    """How busy four trials at once, which are training runs, keep the cores: processor seconds of all their processes.

    From before the first trial until the experiment is published; two cores are taken, whatever the machine has.
    """
    cores, trials = 2, 12
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    with tempfile.TemporaryDirectory() as folder:
        store = ArtifactStore.open(Path(folder) / "store")
        _, split = published_flights(store, Path(folder), 60_000)
        epochs = {"stopping.epochs": 4, "stopping.patience": 4, "parallelism.processes": 1}
        spec = ExperimentSpec.model_validate(
            {"parameters": [RATE, DROPOUT], "algorithm": "random", "max_trial_count": trials, "parallel_trial_count": 4}
            | {"trial_settings": epochs}
        )
        data = {"split": split, "model_name": "flights"}
        data["transformation"] = fit_transformation(FitRequest(**data), store).transformation
        request = TuneRequest(**data, base=train_spec({}), spec=spec, seed=1)
        before, began = os.times(), time.perf_counter()
        result = tune.function(request, store)
        wall, after = time.perf_counter() - began, os.times()
        states = Counter(trial["state"] for trial in store.read_json(result.experiment, "trials.json"))
    used = sum(after[:4]) - sum(before[:4])
    own = sum(after[:2]) - sum(before[:2])
    print(f"\n{trials} trials on {cores} cores, four at once: {dict(states)}")
    print(
        f"  {used:.0f} processor s, {own:.0f} of them the controller's, in {wall:.0f} s: busy {used / wall / cores:.1%}"
    )
    return used / wall / cores > 0.9


_PARTS = (steps, regret, together, overhead, kills, stored, storages, workers, busy)
PARTS = {part.__name__: part for part in _PARTS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which; all where none is named")
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=TABLES, help="of `steps`; default: all")
    parser.add_argument("--picture", type=Path, help="where `steps` draws its curves; default: nowhere")
    parser.add_argument("--controller", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.controller:
        _controlled(options.controller)
        return
    arguments: dict[str, Any] = {"steps": {"tables": options.tables, "picture": options.picture}}
    missed = [name for name in options.parts or PARTS if not PARTS[name](**arguments.get(name, {}))]
    print(f"\nmissed: {', '.join(missed) or 'none'}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
