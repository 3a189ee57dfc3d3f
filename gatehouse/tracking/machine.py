"""Samples the machine while a job runs: CPU, memory and GPUs, under the names that MLflow's own page shows.

Samples are taken by the process that ships metrics, on a cluster by each pod, never by the training loop. GPU
utilisation is also written to the run record, for the operations table, even without MLflow.
"""

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gatehouse.runtime.process import descendants
from gatehouse.store.run import TASK
from gatehouse.tracking.background import in_background

PREFIX = "system/"
GPU_PERCENT = "gpu_percent"
"""Key in a task's events: the mean utilisation of the GPUs of its trainings."""
SAMPLING = 5.0
_IS_BUSY = re.compile(rf"{PREFIX}(.+/)?gpu_\d+_utilization_percentage")
_MEGABYTE = 1e6


class Machine:
    """Samples this machine; `owner` is the process of the job, counted with all its descendants."""

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._before = _cpu_ticks()
        self._gpus = list(_gpus())

    @property
    def has_gpus(self) -> bool:
        """Whether there is a GPU whose driver can be queried."""
        return bool(self._gpus)

    def sample(self) -> dict[str, float]:
        """All values that can be read now; CPU is the mean since the last call."""
        return self._cpu() | self._memory() | self.gpus()

    def _cpu(self) -> dict[str, float]:
        now = _cpu_ticks()
        busy, total = (after - before for before, after in zip(self._before, now, strict=True))
        self._before = now
        return {f"{PREFIX}cpu_utilization_percentage": 100.0 * busy / total} if total > 0 else {}

    def _memory(self) -> dict[str, float]:
        found = {}
        with suppress(OSError, KeyError, ValueError, IndexError):
            lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
            kilobytes = {words[0].rstrip(":"): float(words[1]) for words in lines}
            used = kilobytes["MemTotal"] - kilobytes["MemAvailable"]
            found[f"{PREFIX}system_memory_usage_megabytes"] = used * 1024 / _MEGABYTE
            found[f"{PREFIX}system_memory_usage_percentage"] = 100.0 * used / kilobytes["MemTotal"]
        job = sum(map(_resident, [self._owner, *descendants(self._owner)]))
        return found | {f"{PREFIX}job_memory_usage_megabytes": job / _MEGABYTE}

    def gpus(self) -> dict[str, float]:
        """The values of each GPU's driver; empty without GPUs."""
        found: dict[str, float] = {}
        for index, (nvml, handle) in enumerate(self._gpus):
            # A driver may report some values and not others.
            with suppress(nvml.NVMLError):
                rates = nvml.nvmlDeviceGetUtilizationRates(handle)
                found[f"{PREFIX}gpu_{index}_utilization_percentage"] = float(rates.gpu)
            with suppress(nvml.NVMLError):
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
                found[f"{PREFIX}gpu_{index}_memory_usage_megabytes"] = memory.used / _MEGABYTE
                found[f"{PREFIX}gpu_{index}_memory_usage_percentage"] = 100.0 * memory.used / memory.total
            with suppress(nvml.NVMLError):
                found[f"{PREFIX}gpu_{index}_power_usage_watts"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0
        return found


def note_gpus(sample: Mapping[str, float]) -> None:
    """Add the GPU utilisation in a sample of any machine to the mean of this context's task."""
    busy = [value for name, value in sample.items() if _IS_BUSY.fullmatch(name)]
    if busy and (task := TASK.get()):
        task.measure(GPU_PERCENT, busy)


@contextmanager
def gpus_noted() -> Iterator[None]:
    """In this context a thread samples this machine's GPUs for the task; without GPUs it ends at once."""

    def note(ended: threading.Event) -> None:
        machine = Machine(os.getpid())
        while machine.has_gpus and not ended.wait(SAMPLING):
            note_gpus(machine.gpus())

    with in_background(note, "note-gpus"):
        yield


def _gpus() -> Iterator[tuple[Any, Any]]:
    """NVML and a handle of each GPU; nothing without a GPU, driver or binding."""
    try:
        import pynvml
    except ImportError:
        return
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            yield pynvml, pynvml.nvmlDeviceGetHandleByIndex(index)


def _cpu_ticks() -> tuple[float, float]:
    """Busy and total ticks of all CPUs since boot."""
    try:
        fields = [float(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
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
