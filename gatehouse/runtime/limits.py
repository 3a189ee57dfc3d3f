"""The memory and processors that this process may use: the lowest of its limits.

They are in no key, because they affect only how much is done at once, never the result.
"""

import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path

_share: tuple[int, int] | None = None
_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def memory() -> int:
    """Bytes of memory that this process may use: the limit of its cgroup, of `ulimit -d` or `-v`, or of the machine."""
    files = (*_values("memory", "memory.max"), *_values("memory", "memory.limit_in_bytes"))
    limits = [int(text) for text in files if text.isdigit()]
    limits += [resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_DATA, resource.RLIMIT_AS)]
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits += [_share[1]] if _share else []
    return min([machine, *(limit for limit in limits if limit != resource.RLIM_INFINITY)])


def processors() -> int:
    """Number of processors that this process may use, at least 1: its CPU affinity, and its cgroup's quota."""
    pairs = zip(_values("cpu", "cpu.cfs_quota_us"), _values("cpu", "cpu.cfs_period_us"), strict=True)
    quotas = [text.split() for text in (*_values("cpu", "cpu.max"), *map(" ".join, pairs))]
    shares = [math.ceil(int(quota) / int(period)) for quota, period in quotas if quota.isdigit()]
    shares += [_share[0]] if _share else []
    return max(1, min([len(os.sched_getaffinity(0)), *shares]))


def peak_memory() -> int:
    """Peak memory of this process in bytes; unlike `ru_maxrss`, without that of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])


def confine(processors: int, memory: int) -> None:
    """From now on this process is one of several workers, and may use so many processors and bytes of memory."""
    global _share
    _share = processors, memory


def confine_arrow() -> None:
    """Give Arrow as many threads as this process has processors; by default it uses those of the machine."""
    import pyarrow as pa

    pa.set_cpu_count(processors())


def _values(controller: str, file: str) -> Iterator[str]:
    """The content of a file of the cgroup and of its parents, whose limits also apply.

    A container may see its own cgroup as the root, while its membership is given from the host's view.
    """
    for line in _MEMBERSHIP.read_text().splitlines() if _MEMBERSHIP.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = _ROOT / controller if controllers else _ROOT
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            if folder.is_relative_to(root) and (folder / file).is_file():
                yield (folder / file).read_text().strip()
