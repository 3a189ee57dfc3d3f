"""Runs pieces as tasks of Ray Core; only calls and answers, kilobytes of JSON, pass through Ray's object store."""

import json
import os
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from gatehouse.errors import ConfigurationError, PieceError
from gatehouse.pieces.elsewhere import RAY_ADDRESS
from gatehouse.pieces.engine import Engine
from gatehouse.pieces.local import ATTEMPTS, killed
from gatehouse.pieces.worker import answer_to

_PATIENCE = 10.0


def run_on_ray(engine: Engine, lines: Sequence[str], patience: float = 0.0) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number and the answer of every call, as they come.

    Ray starts a piece again whose worker or node was lost. For a node that a worker fits on, this waits `patience`
    seconds. Raises ConfigurationError without the package ray, and
    PieceError if the cluster cannot be reached, refuses this driver, has no node for such a worker, or is lost.
    """
    ray = _connected(engine)
    cpus, memory = engine.cpus, engine.memory_bytes
    until = time.monotonic() + patience
    while True:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        fitting = [node for node in nodes if node.get("CPU", 0) >= cpus and node.get("memory", 0) >= memory]
        if fitting or time.monotonic() > until:
            break
        time.sleep(1.0)
    if not fitting:
        largest = max(
            (f"{node.get('CPU', 0):g} CPUs, {node.get('memory', 0) / 1e9:.1f} GB" for node in nodes), default=""
        )
        raise PieceError(
            f"engine: expected a node of Ray with {cpus} CPUs and {memory / 1e9:.1f} GB for a worker, found none; the "
            f"largest of {len(nodes)} nodes has {largest or 'nothing'}. Start larger nodes, or ask for less."
        )
    task = ray.remote(answer_to).options(num_cpus=cpus, memory=memory or None, max_retries=ATTEMPTS - 1)
    most = engine.workers or int(sum(node["CPU"] // cpus for node in fitting))
    waiting, running = deque(range(len(lines))), dict[Any, int]()
    try:
        while waiting or running:
            while waiting and len(running) < most:
                number = waiting.popleft()
                running[task.remote(lines[number], memory)] = number
            (done, *_), _ = ray.wait([*running])
            number = running.pop(done)
            try:
                yield number, json.loads(ray.get(done))
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
                yield number, killed(type(error).__name__, memory)
    except ray.exceptions.RayError as error:
        raise PieceError(
            f"Ray at {_address(engine)} lost the pieces: {' '.join(str(error).split())[:500]}. Run again: pieces that "
            "were finished are kept."
        ) from error
    finally:
        for left in running:
            with suppress(ray.exceptions.RayError):  # The cluster may be lost.
                ray.cancel(left, force=True)


def _connected(engine: Engine) -> Any:
    """The module ray, connected to the cluster; the connection stays until this process ends."""
    # Ray itself starts a worker again without end that its memory monitor killed.
    os.environ.setdefault("RAY_task_oom_retries", str(ATTEMPTS - 1))
    try:
        ray: Any = import_module("ray")
    except ModuleNotFoundError:
        raise ConfigurationError(
            "engine: kind ray needs the package ray, which is not installed here. Install gatehouse[ray], with the "
            "version of Ray that the cluster has."
        ) from None
    if not ray.is_initialized():
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        host, _, port = (engine.address or os.environ.get(RAY_ADDRESS, "")).removeprefix("ray://").rpartition(":")
        try:
            if host and port.isdigit():  # Ray itself asks for minutes.
                socket.create_connection((host, int(port)), _PATIENCE).close()
            ray.init(
                address=engine.address or os.environ.get(RAY_ADDRESS) or "auto", log_to_driver=False, logging_level=40
            )
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise PieceError(
                f"engine: expected a Ray cluster of version {ray.__version__} at {_address(engine)} that accepts this "
                f"task, found: {' '.join(str(error).split())[:500]}. Correct engine.address or {RAY_ADDRESS}, give "
                "task and cluster one image, and where the cluster authenticates, the task its token "
                "(RAY_AUTH_MODE=token, RAY_AUTH_TOKEN)."
            ) from error
    return ray


def _address(engine: Engine) -> str:
    return engine.address or os.environ.get(RAY_ADDRESS) or "its default address"
