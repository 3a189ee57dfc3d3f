"""Samples of the machine: what /proc says, GPUs where there are any, and nothing that fails where there are none."""

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from gatehouse.operations.metrics.rows import Row, rows_of
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.stage import Declaration, Stage, StageModel
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking import machine
from gatehouse.tracking.cost import Prices
from gatehouse.tracking.machine import Machine
from gatehouse.tracking.shipping import open_spool, shipped_live


def test_host_metrics_agree_with_psutil() -> None:
    machine = Machine(os.getpid())
    sum(range(10**6))
    sample = machine.sample()
    memory = psutil.virtual_memory()
    assert 0 <= sample["system/cpu_utilization_percentage"] <= 100
    assert sample["system/system_memory_usage_percentage"] == pytest.approx(memory.percent, abs=10)
    own = psutil.Process().memory_info().rss / 1e6
    assert sample["system/job_memory_usage_megabytes"] >= 0.9 * own


def test_the_memory_of_a_job_is_that_of_all_its_processes() -> None:
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    wanted = sum(each.memory_info().rss for each in processes) / 1e6
    assert Machine(os.getpid()).sample()["system/job_memory_usage_megabytes"] == pytest.approx(wanted, rel=0.2)


def test_without_nvml_there_are_no_gpu_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert not any("gpu" in name for name in Machine(os.getpid()).sample())


def _nvml(**replaced: object) -> SimpleNamespace:
    """NVML as it answers on a machine with two GPUs."""

    def refuse(_: int) -> float:
        raise _Refused

    known: dict[str, object] = {
        "NVMLError": _Refused,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=90 + handle),
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=5_000_000, total=10_000_000),
        "nvmlDeviceGetPowerUsage": refuse,
    }
    return SimpleNamespace(**known | replaced)


class _Refused(Exception):
    pass


def test_each_gpu_has_what_its_driver_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _nvml())
    sample = Machine(os.getpid()).sample()
    assert {name: value for name, value in sample.items() if "gpu" in name} == {
        "system/gpu_0_utilization_percentage": 90.0,
        "system/gpu_0_memory_usage_megabytes": 5.0,
        "system/gpu_0_memory_usage_percentage": 50.0,
        "system/gpu_1_utilization_percentage": 91.0,
        "system/gpu_1_memory_usage_megabytes": 5.0,
        "system/gpu_1_memory_usage_percentage": 50.0,
    }


def test_a_driver_that_does_not_answer_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise _Refused

    monkeypatch.setitem(sys.modules, "pynvml", _nvml(nvmlInit=broken))
    assert not any("gpu" in name for name in Machine(os.getpid()).sample())


class Asked(StageModel):
    """What the stages of the test take and give."""

    trainings: int


def test_how_busy_the_gpus_of_all_trainings_of_a_task_were_is_in_the_table(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def rates(handle: int) -> SimpleNamespace:
        seen.append(float(len(seen) * 7 % 101))
        return SimpleNamespace(gpu=seen[-1])

    def search(request: Asked, store: ArtifactStore) -> Asked:
        for number in range(request.trainings):
            train(Asked(trainings=number), store)
        return request

    def learn(request: Asked, store: ArtifactStore) -> Asked:
        spool = open_spool(store, f"job-{request.trainings}", "flights", tmp_path / "metrics")
        wanted, until = len(seen) + 4, time.monotonic() + 20
        with shipped_live(store, spool, live=False):
            while len(seen) < wanted and time.monotonic() < until:
                time.sleep(0.01)
        return request

    def row() -> Row:
        end = {"state": "succeeded", "seconds": 1.0}
        return rows_of("run", end, [event for _, event in events(store, "run")], Prices())[-1]

    tune, train = Stage(Declaration("tune", "A"), search), Stage(Declaration("train", "B"), learn)
    monkeypatch.setenv(RUN_ID, "run")
    monkeypatch.setattr(machine, "SAMPLING", 0.02)
    monkeypatch.setitem(sys.modules, "pynvml", _nvml(nvmlDeviceGetUtilizationRates=rates))
    tune(Asked(trainings=2), store)
    assert len(seen) >= 8 and row().stage == "tune"
    assert row().gpu_percent == pytest.approx(sum(seen) / len(seen), abs=0.001)

    tune(Asked(trainings=2), store)
    assert (row().state, row().gpu_percent) == ("hit", None)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    tune(Asked(trainings=0), store, force="now")
    assert (row().state, row().gpu_percent) == ("finished", None)
