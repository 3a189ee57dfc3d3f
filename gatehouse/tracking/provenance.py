"""Provenance: what an artifact was made from, on which code and machine, at what cost. It changes no result."""

import os
import platform
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated

from pydantic import Field

import gatehouse
from gatehouse.store.identity import Spec, operational
from gatehouse.store.reference import Reference
from gatehouse.store.run import MACHINE
from gatehouse.store.store import ArtifactStore

COMMIT, IMAGE, PRICES = "GATEHOUSE_COMMIT", "GATEHOUSE_IMAGE", "GATEHOUSE_PRICES"
_DISTRIBUTIONS = (
    *("gatehouse", "kfp", "torch", "numpy", "pyarrow", "duckdb"),
    *("feast", "optuna", "safetensors", "mlflow-skinny", "pydantic"),
)
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def lineage_of(store: ArtifactStore, reference: Reference | str) -> tuple[str, ...]:
    """Identities of all artifacts that `reference` was derived from, directly or not, sorted; without `reference`."""
    _, *ancestors = (manifest.reference for manifest in store.lineage(reference))
    return tuple(map(str, sorted(ancestors)))


def lineage_tags(lineage: tuple[str, ...]) -> dict[str, str]:
    """MLflow tags: `gatehouse.lineage.<kind>.<name>`, each with the identities of that kind and name, in one line."""
    tags: dict[str, list[str]] = {}
    for identity in lineage:
        reference = Reference.parse(identity)
        tags.setdefault(f"gatehouse.lineage.{reference.kind}.{reference.name}", []).append(identity)
    return {name: " ".join(identities) for name, identities in tags.items()}


class Prices(Spec):
    """Prices per hour by type of machine, for the cost of runs, and for an experiment with `tuning.budget.cost`.

    They are in no key, with one exception: the price of the machine is in the key of `tune` where `budget.cost` is set,
    because it decides when the search ends.
    """

    currency: str = operational("USD", pattern="^[A-Z]{3}$", description="ISO 4217 code.")
    per_hour: dict[str, Annotated[float, Field(ge=0.0, allow_inf_nan=False)]] = operational(
        {},
        description="Price per hour by type of machine, as GATEHOUSE_MACHINE names it; `default` for every other type.",
    )

    def cost(self, seconds: float, machine: str = "", machines: int = 1) -> float | None:
        """The cost of `machines` machines of a type for `seconds`; None if no price is known."""
        price = self.per_hour.get(machine, self.per_hour.get("default"))
        return None if price is None else price * machines * seconds / 3600


def prices_here() -> Prices:
    """The price table in `GATEHOUSE_PRICES` (JSON), empty by default. Raises ValueError if it is invalid."""
    text = os.environ.get(PRICES, "")
    return Prices.model_validate_json(text) if text else Prices()


def cost_here(seconds: float, machine: str = "", machines: int = 1) -> dict[str, float]:
    """The metric `cost` of a run of this duration, by default on this machine; empty if no price is known."""
    cost = prices_here().cost(seconds, machine or os.environ.get(MACHINE, ""), machines)
    return {} if cost is None else {"cost": cost}


@dataclass(frozen=True)
class Environment:
    """The machine and code of a run; empty texts are unknown.

    `hardware` is the class of machine, e.g. `x86_64, Xeon Gold 6148, 2 cores, 24 GiB`; its measurements compare.
    `threads` are the settings that change the order of floating-point sums. `machine` is the type in the price table.
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
        tags = {
            "gatehouse.commit": f"{self.commit or 'unknown'}{'+dirty' if self.dirty else ''}",
            "gatehouse.dirty": str(self.dirty).lower() if self.commit else "unknown",
            "gatehouse.python": self.python,
            "gatehouse.hardware": self.hardware,
            # MLflow's pages show this tag as a link.
            "mlflow.source.git.commit": self.commit,
            "gatehouse.image": self.image,
            "gatehouse.machine": self.machine,
            **{f"gatehouse.version.{name}": version for name, version in self.distributions.items()},
            **{f"gatehouse.threads.{name}": value for name, value in self.threads.items()},
        }
        return {name: value for name, value in tags.items() if value}


def capture_environment() -> Environment:
    """Inspect the process and the machine; does not import the distributions."""
    commit, dirty = code_commit()
    versions: dict[str, str] = {}
    for name in _DISTRIBUTIONS:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    threads = {name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ}
    return Environment(
        commit=commit,
        dirty=dirty,
        python=platform.python_version(),
        distributions=versions,
        hardware=hardware_class(),
        threads={"cpus": str(len(os.sched_getaffinity(0)))} | threads,
        image=os.environ.get(IMAGE, ""),
        machine=os.environ.get(MACHINE, ""),
    )


@cache
def code_commit() -> tuple[str, bool]:
    """Commit of the running code, and whether the code was changed since.

    In images it is in the variable `GATEHOUSE_COMMIT` (`<commit>` or `<commit>+dirty`); otherwise git is asked.
    """
    if commit := os.environ.get(COMMIT, ""):
        return commit.removesuffix("+dirty"), commit.endswith("+dirty")
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

    def field(path: Path | str, name: str) -> str:
        try:
            lines = Path(path).read_text().splitlines()
        except OSError:
            return ""
        return next((" ".join(line.partition(":")[2].split()) for line in lines if line.startswith(name)), "")

    processor = field("/proc/cpuinfo", "model name") or platform.processor() or "unknown processor"
    memory = field("/proc/meminfo", "MemTotal").removesuffix(" kB")
    gpus = [field(path, "Model") for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))]
    size = [f"{round(int(memory) / 2**20)} GiB"] if memory.isdigit() else []
    return ", ".join([platform.machine(), processor, f"{len(os.sched_getaffinity(0))} cores", *size, *gpus])
