"""Records what a run ran on: commit, versions, hardware class, threads. Provenance only: it never changes a result."""

import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import gatehouse
from gatehouse.store.run import MACHINE

COMMIT, IMAGE = "GATEHOUSE_COMMIT", "GATEHOUSE_IMAGE"
_DISTRIBUTIONS = (
    *("gatehouse", "kfp", "torch", "numpy", "pyarrow", "duckdb"),
    *("feast", "optuna", "safetensors", "mlflow-skinny", "pydantic"),
)
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Environment:
    """The machine and code of a run.

    Attributes:
        commit: Commit of the code; empty if unknown.
        dirty: Whether the code differs from the commit.
        python: Version of Python.
        distributions: Installed version by name of distribution.
        hardware: Class of machine, e.g. `x86_64, Xeon Gold 6148, 2 cores, 24 GiB`; measurements of one class compare.
        threads: Thread settings that change the order of floating-point sums.
        image: The image by its digest, as the pipeline names it; empty outside a container.
        machine: Type of machine, as in the price table; empty if not set.
    """

    commit: str
    dirty: bool
    python: str
    distributions: dict[str, str]
    hardware: str
    threads: dict[str, str]
    image: str = ""
    machine: str = ""

    def tags(self) -> dict[str, str]:
        """The environment as MLflow tags."""
        versions = {f"gatehouse.version.{name}": version for name, version in self.distributions.items()}
        threads = {f"gatehouse.threads.{name}": value for name, value in self.threads.items()}
        tags = {
            "gatehouse.commit": f"{self.commit or 'unknown'}{'+dirty' if self.dirty else ''}",
            "gatehouse.dirty": str(self.dirty).lower() if self.commit else "unknown",
            "gatehouse.python": self.python,
            "gatehouse.hardware": self.hardware,
            # MLflow's pages show this tag as a link.
            "mlflow.source.git.commit": self.commit,
            "gatehouse.image": self.image,
            "gatehouse.machine": self.machine,
        }
        return versions | threads | {name: value for name, value in tags.items() if value}


def capture_environment(distributions: Iterable[str] = _DISTRIBUTIONS) -> Environment:
    """Inspect the process and the machine; does not import the distributions."""
    commit, dirty = code_commit()
    return Environment(
        commit=commit,
        dirty=dirty,
        python=platform.python_version(),
        distributions={name: version for name in distributions if (version := _version(name))},
        hardware=hardware_class(),
        threads={"cpus": str(len(os.sched_getaffinity(0)))}
        | {name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ},
        image=os.environ.get(IMAGE, ""),
        machine=os.environ.get(MACHINE, ""),
    )


@cache
def code_commit() -> tuple[str, bool]:
    """Commit of the running code, and whether the code was changed since.

    In images it is in the variable `GATEHOUSE_COMMIT` (`<commit>` or `<commit>+dirty`); otherwise git is asked.
    """
    given = os.environ.get(COMMIT, "")
    if given:
        return given.removesuffix("+dirty"), given.endswith("+dirty")
    folder = Path(gatehouse.__file__).resolve().parent
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return "", False
    return _git(folder, "rev-parse", "HEAD") or "", bool(_git(folder, "status", "--porcelain"))


def revision(folder: Path) -> str:
    """The release or the commit of a folder in git, as `v1.2-3-g1a2b3c4` or `1a2b3c4-dirty`; empty if in none."""
    return _git(folder, "describe", "--tags", "--always", "--dirty") or ""


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def hardware_class() -> str:
    """Architecture, processor, cores that this process may use, memory to the GiB, and GPUs."""
    processor = _field("/proc/cpuinfo", "model name") or platform.processor() or "unknown processor"
    memory = _field("/proc/meminfo", "MemTotal").removesuffix(" kB")
    parts = [platform.machine(), " ".join(processor.split()), f"{len(os.sched_getaffinity(0))} cores"]
    if memory.isdigit():
        parts.append(f"{round(int(memory) / 2**20)} GiB")
    return ", ".join([*parts, *_gpus()])


def _gpus() -> list[str]:
    found = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return [" ".join(_field(str(path), "Model").split()) for path in found]


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
