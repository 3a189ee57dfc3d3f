"""What a process may use: the lowest of its cgroup, its own limits and the machine."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gatehouse.runtime import limits

MACHINE = limits.memory()


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of /sys/fs/cgroup; `membership` beside it says in which cgroup this process is."""
    monkeypatch.setattr(limits, "_ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(limits, "_MEMBERSHIP", tmp_path / "membership")
    (tmp_path / "cgroup").mkdir()
    return tmp_path / "cgroup"


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def test_without_a_cgroup_it_is_the_machine(cgroup: Path) -> None:
    assert limits.memory() == MACHINE
    assert limits.processors() >= 1


def test_version_2_gives_memory_and_a_share_of_the_processors(cgroup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    written(cgroup.parent / "membership", "0::/pods/mine")
    written(cgroup / "pods/mine/memory.max", "300000000")
    written(cgroup / "pods/mine/cpu.max", "150000 100000")
    assert (limits.memory(), limits.processors()) == (300_000_000, 2)


def test_what_is_above_binds_too_and_max_is_no_limit(cgroup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    written(cgroup.parent / "membership", "0::/pods/mine")
    written(cgroup / "pods/memory.max", "200000000")
    written(cgroup / "pods/mine/memory.max", "max")
    written(cgroup / "pods/mine/cpu.max", "max 100000")
    assert (limits.memory(), limits.processors()) == (200_000_000, 64)


def test_version_1_also_where_the_container_sees_its_own_cgroup_as_the_root(
    cgroup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    written(cgroup.parent / "membership", "5:memory:/kubepods/a\n3:cpu,cpuacct:/kubepods/a\n0::/")
    written(cgroup / "memory/memory.limit_in_bytes", "400000000")
    written(cgroup / "cpu/cpu.cfs_quota_us", "300000")
    written(cgroup / "cpu/cpu.cfs_period_us", "100000")
    assert (limits.memory(), limits.processors()) == (400_000_000, 3)


def test_the_limit_of_the_process_binds() -> None:
    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (10**9, 10**9))

    program = "from gatehouse.runtime import limits; print(limits.memory())"
    message = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, preexec_fn=confine)
    assert int(message.stdout) == 10**9
