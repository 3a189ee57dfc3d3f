"""Samples the machine while a job runs: CPU, memory and GPUs, under the names that MLflow's own page shows.

Samples are taken by the stage that trains, on a cluster by each pod, never by the training loop. GPU
utilisation is also written to the run record, for the operations table, even without MLflow.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

from gatehouse.runtime.process import descendants
from gatehouse.store.run import TASK

PREFIX = "system/"
GPU_PERCENT = "gpu_percent"
"""Key in a task's events: the mean utilisation of the GPUs of its trainings."""
SAMPLING = 5.0
_UTILISATION = re.compile(rf"{PREFIX}(.+/)?gpu_\d+_utilization_percentage")
_MEGABYTE = 1e6


class Machine:
    """Samples this machine; `owner` is the process of the job, counted with all its descendants."""

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._ticks = _cpu_ticks()
        self._gpus: list[tuple[Any, Any]] = []
        with suppress(ImportError):
            import pynvml

            with suppress(pynvml.NVMLError):
                pynvml.nvmlInit()
                for index in range(pynvml.nvmlDeviceGetCount()):
                    self._gpus.append((pynvml, pynvml.nvmlDeviceGetHandleByIndex(index)))

    @property
    def has_gpus(self) -> bool:
        """Whether there is a GPU whose driver can be queried."""
        return bool(self._gpus)

    def sample(self) -> dict[str, float]:
        """All values that can be read now; CPU is the mean since the last call."""
        values: dict[str, float] = {}
        before, self._ticks = self._ticks, _cpu_ticks()
        busy, total = (now - earlier for earlier, now in zip(before, self._ticks, strict=True))
        if total > 0:
            values["cpu_utilization_percentage"] = 100.0 * busy / total
        with suppress(OSError, KeyError, ValueError, IndexError):
            lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
            kilobytes = {words[0].rstrip(":"): float(words[1]) for words in lines}
            used = kilobytes["MemTotal"] - kilobytes["MemAvailable"]
            values["system_memory_usage_megabytes"] = used * 1024 / _MEGABYTE
            values["system_memory_usage_percentage"] = 100.0 * used / kilobytes["MemTotal"]
        job = sum(map(_resident, [self._owner, *descendants(self._owner)]))
        values["job_memory_usage_megabytes"] = job / _MEGABYTE
        return {f"{PREFIX}{name}": value for name, value in values.items()} | self.gpus()

    def gpus(self) -> dict[str, float]:
        """The values of each GPU's driver; empty without GPUs."""
        values: dict[str, float] = {}
        for index, (nvml, handle) in enumerate(self._gpus):
            gpu = f"{PREFIX}gpu_{index}"
            # A driver may report some values and not others.
            with suppress(nvml.NVMLError):
                rates = nvml.nvmlDeviceGetUtilizationRates(handle)
                values[f"{gpu}_utilization_percentage"] = float(rates.gpu)
            with suppress(nvml.NVMLError):
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
                values[f"{gpu}_memory_usage_megabytes"] = memory.used / _MEGABYTE
                values[f"{gpu}_memory_usage_percentage"] = 100.0 * memory.used / memory.total
            with suppress(nvml.NVMLError):
                values[f"{gpu}_power_usage_watts"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0
        return values


def note_gpus(sample: Mapping[str, float]) -> None:
    """Add the GPU utilisation in a sample of any machine to the mean of this context's task."""
    percentages = [value for name, value in sample.items() if _UTILISATION.fullmatch(name)]
    if percentages and (task := TASK.get()):
        task.measure(GPU_PERCENT, percentages)


@contextmanager
def in_background(work: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """In this context a thread works until its event is set, with the caller's context variables."""
    ended = threading.Event()
    thread = threading.Thread(target=copy_context().run, args=(work, ended), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _cpu_ticks() -> tuple[float, float]:
    """Busy and total ticks of all CPUs since boot."""
    try:
        fields = [float(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return 0.0, 0.0
    idle = sum(fields[3:5])
    return sum(fields) - idle, sum(fields)


def _resident(pid: int) -> float:
    """Bytes of memory of a process; shared pages count for each process."""
    try:
        return float(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0.0
