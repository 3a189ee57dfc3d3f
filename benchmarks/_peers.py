"""Virtual environments of the peers that benchmarks compare with, made on demand from benchmarks/peers/<name>.txt.

Each peer has an environment of its own, as their requirements contradict ours and each other's. It is kept under
build/peers, by the digest of its requirements; the first use installs from the package index and takes minutes.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "peers"
KEPT = Path(__file__).parents[1] / "build" / "peers"


def run_peer(name: str, *arguments: str, timeout: float | None = None) -> Any:
    """Run benchmarks/peers/<name>.py in its environment; returns the JSON on the last line that it prints.

    Raises:
        subprocess.TimeoutExpired: after `timeout` seconds.
    """
    command = [str(environment_of(name)), str(FOLDER / f"{name}.py"), *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=timeout)
    return json.loads(done.stdout.splitlines()[-1])


def environment_of(name: str) -> Path:
    """The Python of a peer's environment, which is made if it is not there."""
    requirements = FOLDER / f"{name}.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    environment = KEPT / f"{name}-{digest}"
    python, ready = environment / "bin" / "python", environment / "ready"
    if not ready.exists():
        print(f"Installing {name} into build/peers", file=sys.stderr)
        uv = [sys.executable, "-m", "uv", "--quiet"]
        subprocess.run([*uv, "venv", "--clear", "--python", sys.executable, str(environment)], check=True)
        subprocess.run([*uv, "pip", "install", "--python", str(python), "--requirement", str(requirements)], check=True)
        ready.touch()
    return python
