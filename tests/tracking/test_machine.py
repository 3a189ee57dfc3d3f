"""Samples of the machine agree with psutil and NVML, and nothing fails without GPUs."""

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from gatehouse.operations.metrics import Row, rows_of
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.stage import Declaration, Stage, StageModel
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking import sending
from gatehouse.tracking.machine import Machine
from gatehouse.tracking.provenance import Prices
from gatehouse.tracking.sending import tracked_job


def test_host_metrics_agree_with_psutil_and_count_all_processes_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    machine = Machine(os.getpid())
    sum(range(10**6))
    sample = machine.sample()
    assert 0 <= sample["system/cpu_utilization_percentage"] <= 100
    assert sample["system/system_memory_usage_percentage"] == pytest.approx(psutil.virtual_memory().percent, abs=10)
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    resident = sum(process.memory_info().rss for process in processes) / 1e6
    assert sample["system/job_memory_usage_megabytes"] == pytest.approx(resident, rel=0.2)
    assert not any("gpu" in name for name in sample)


class Refused(Exception):
    pass


def nvml(**replaced: object) -> SimpleNamespace:
    def refuse(*_: object) -> float:
        raise Refused

    functions: dict[str, object] = {
        "NVMLError": Refused,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=90 + handle),
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=5_000_000, total=10_000_000),
        "nvmlDeviceGetPowerUsage": refuse,
        "refuse": refuse,
    }
    return SimpleNamespace(**functions | replaced)


def test_each_gpu_has_the_values_that_its_driver_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    assert Machine(os.getpid()).gpus() == {
        f"system/gpu_{gpu}_{name}": value
        for gpu in (0, 1)
        for name, value in (
            ("utilization_percentage", 90.0 + gpu),
            ("memory_usage_megabytes", 5.0),
            ("memory_usage_percentage", 50.0),
        )
    }
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=nvml().refuse))
    assert not Machine(os.getpid()).has_gpus, "a driver that does not answer is no GPU"


class SearchRequest(StageModel):
    trainings: int


def test_the_gpu_utilisation_of_all_trainings_of_a_task_is_in_the_table(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def rates(handle: int) -> SimpleNamespace:
        seen.append(float(len(seen) * 7 % 101))
        return SimpleNamespace(gpu=seen[-1])

    def search(request: SearchRequest, store: ArtifactStore) -> SearchRequest:
        for number in range(request.trainings):
            train(SearchRequest(trainings=number), store)
        return request

    def learn(request: SearchRequest, store: ArtifactStore) -> SearchRequest:
        enough, until = len(seen) + 4, time.monotonic() + 20
        with tracked_job(store, f"job-{request.trainings}", "flights", tmp_path / "metrics", sampled=True):
            while len(seen) < enough and time.monotonic() < until:
                time.sleep(0.01)
        return request

    def row() -> Row:
        end = {"state": "succeeded", "seconds": 1.0}
        return rows_of("run", end, [event for _, event in events(store, "run")], Prices())[-1]

    tune, train = Stage(Declaration("tune", "A"), search), Stage(Declaration("train", "B"), learn)
    monkeypatch.setenv(RUN_ID, "run")
    monkeypatch.setattr(sending, "SAMPLING", 0.02)
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlDeviceGetUtilizationRates=rates))
    tune(SearchRequest(trainings=2), store)
    assert len(seen) >= 8 and row().stage == "tune"
    assert row().gpu_percent == pytest.approx(sum(seen) / len(seen), abs=0.001)

    tune(SearchRequest(trainings=2), store)
    assert (row().state, row().gpu_percent) == ("hit", None)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    tune(SearchRequest(trainings=0), store, force="now")
    assert (row().state, row().gpu_percent) == ("finished", None)
