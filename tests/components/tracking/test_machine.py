"""Samples of the machine: what /proc says, GPUs where there are any, and nothing that fails where there are none."""

import os
import sys
from types import SimpleNamespace

import psutil
import pytest

from gatehouse.components.tracking.machine import Machine


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
