"""The environment of an image, made of its locks without downloads: what they pin is linked from where tests run.

Nothing else of that place can be imported: each file that a pinned distribution installed is a link of its own.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.markers import Marker

import gatehouse
from gatehouse.runtime.images import LOCKS
from tests.source_tree import ROOT

_PIN = re.compile(r"^([a-z0-9][\w.-]*)==([^\s;\\]+)(?:\s*;\s*([^\\\n]+))?", re.MULTILINE)
_REMOVED = ("pipelines/projects/", "feature_repo/")
"""What images/install.sh removes of the wheel."""


def make_environment(image: str, folder: Path) -> Path:
    """Make the environment of an image in a folder, and return its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    made: set[Path] = set()
    for name, source in (*_locked(image), *_own_modules()):
        target = packages / name
        if target.parent not in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.add(target.parent)
        target.symlink_to(source)
    return folder / "bin"


def _locked(image: str) -> Iterator[tuple[str, Path]]:
    """The files of all that the locks of an image pin, by their paths below site-packages, with their bytecode."""
    # Where tests run, XGBoost is the build for CPUs, whichever torch is installed.
    for lock in {**dict.fromkeys(LOCKS[image]), **({"xgboost": None} if "torch-gpu" in LOCKS[image] else {})}:
        for name, version, marker in _PIN.findall((ROOT / "locks" / f"{lock}.lock").read_text()):
            if name in ("xgboost", "nvidia-nccl-cu12") or (marker and not Marker(marker.strip()).evaluate()):
                continue
            installed = distribution(name)
            assert installed.version.split("+")[0] == version, f"{name}: {installed.version} is here, {version} locked"
            for file in installed.files or ():
                if ".." not in file.parts and file.suffix != ".pyc":
                    path = Path(str(installed.locate_file(file)))
                    yield str(file), path
                    yield from _bytecode(str(file), path)


def _own_modules() -> Iterator[tuple[str, Path]]:
    """The files of Gatehouse as its wheel has them in an image."""
    package = Path(gatehouse.__file__).parent
    for folder, _, files in os.walk(package, followlinks=True):
        for file in files:
            path = Path(folder, file)
            name = path.relative_to(package).as_posix()
            if path.suffix != ".pyc" and not name.startswith(_REMOVED):
                yield f"gatehouse/{name}", path
                yield from _bytecode(f"gatehouse/{name}", path)


def _bytecode(name: str, path: Path) -> Iterator[tuple[str, Path]]:
    """What Python compiled of a file, so that no environment has to do it again."""
    compiled = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
    if path.suffix == ".py" and compiled.exists():
        yield str(Path(name).parent / "__pycache__" / compiled.name), compiled
