"""How much memory a process took. A measurement: it varies, so it is kept beside the model, never in it."""

from pathlib import Path


def peak_memory_mb() -> float:
    """Megabytes that this process held at most; unlike `ru_maxrss`, without those of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kibibytes = next(line for line in lines if line.startswith("VmHWM:")).split()[1]
    return round(int(kibibytes) * 1024 / 1e6, 1)
