"""Where a run took place: code version, Python, platform, processors."""

import os
import platform
import subprocess
from pathlib import Path

import gatehouse


def environment_tags() -> dict[str, str]:
    """Facts for people about where something ran; never part of an identity."""
    commit, dirty = code_version()
    return {
        "gatehouse.version": gatehouse.__version__,
        "gatehouse.commit": commit,
        "gatehouse.dirty": str(dirty).lower(),
        "gatehouse.python": platform.python_version(),
        "gatehouse.machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
    }


def code_version() -> tuple[str, bool]:
    """Commit of the checkout that this code runs from and whether it was changed since; empty outside a checkout."""
    folder = Path(gatehouse.__file__).resolve().parent
    commit = _git(folder, "rev-parse", "HEAD")
    return commit, bool(commit and _git(folder, "status", "--porcelain", "--untracked-files=no"))


def _git(folder: Path, *arguments: str) -> str:
    try:
        ended = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return ended.stdout.strip() if ended.returncode == 0 else ""
