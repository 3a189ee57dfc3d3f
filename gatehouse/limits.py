"""What this process may use of its machine: memory and processors, whichever of its limits is the lowest.

It is in no key: it says how much is done at once, and never what is done.
"""

import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def memory() -> int:
    """Bytes that this process may have: of its cgroup, of `ulimit -d` or `-v`, else of the machine."""
    files = (*_found("memory", "memory.max"), *_found("memory", "memory.limit_in_bytes"))
    told = [int(text) for text in files if text.isdigit()]
    told += [resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_DATA, resource.RLIMIT_AS)]
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *(each for each in told if each != resource.RLIM_INFINITY)])


def processors() -> int:
    """Processors that this process may use at once, at least 1: those it may run on, and its cgroup's share of them."""
    pairs = zip(_found("cpu", "cpu.cfs_quota_us"), _found("cpu", "cpu.cfs_period_us"), strict=True)
    quotas = [text.split() for text in (*_found("cpu", "cpu.max"), *map(" ".join, pairs))]
    shares = [math.ceil(int(quota) / int(period)) for quota, period in quotas if quota.isdigit()]
    return max(1, min([len(os.sched_getaffinity(0)), *shares]))


def confine_arrow() -> None:
    """Give Arrow as many threads as processors may be used: by itself it counts those of the machine."""
    import pyarrow as pa

    pa.set_cpu_count(processors())


def cpus_of(quantity: str) -> float:
    """Processors of a quantity as Kubernetes writes it: `500m` are half of one."""
    return float(quantity.removesuffix("m")) / (1000 if quantity.endswith("m") else 1)


def _found(controller: str, file: str) -> Iterator[str]:
    """What a file of the cgroup says, and of those above it, which bind too.

    A container may see its own cgroup as the root, while its membership is told as the host sees it.
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
