"""Measures the memory of a process. The result varies, so it is stored beside the model and not in it."""

from pathlib import Path


def peak_memory_mb() -> float:
    """Peak memory of this process in megabytes; unlike `ru_maxrss`, without that of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kibibytes = next(line for line in lines if line.startswith("VmHWM:")).split()[1]
    return round(int(kibibytes) * 1024 / 1e6, 1)
