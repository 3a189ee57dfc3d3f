"""Runs pieces in processes of this machine, each with its share of the memory; a killed process is replaced."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from typing import Any

from gatehouse.pieces.engine import Engine
from gatehouse.runtime import limits
from gatehouse.runtime.process import owner_env

ATTEMPTS = 5
"""How often a piece is tried whose worker is killed; a worker that runs out of memory is killed each time."""
KILLED = "gatehouse.errors:PieceError"


class LocalWorkers:
    """Processes that answer calls. They start as there is work for them, and stay until `close`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._idle, self._processes = list[subprocess.Popen[str]](), set[subprocess.Popen[str]]()

    def answers(self, lines: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number and the answer of every call, as they come."""
        workers = min(self._engine.workers or max(1, limits.processors() // self._engine.cpus), len(lines))
        memory, closing = self._engine.memory_bytes or limits.memory() // workers, threading.Event()

        def answer_to(number: int) -> tuple[int, dict[str, Any]]:
            """The answer of a worker, which is started again where it was killed."""
            how = ""
            for _ in range(ATTEMPTS):
                if closing.is_set():
                    break
                try:
                    process = self._worker()
                except OSError as error:
                    how = f"not started: {error}"
                    break
                if closing.is_set():
                    process.kill()  # It was started while the others were killed.
                if answer := _asked(process, f"{memory} {lines[number]}\n"):
                    self._idle.append(process)
                    return number, json.loads(answer)
                how = f"with code {process.wait()}"
            return number, killed(how, memory)

        pool = ThreadPoolExecutor(workers, "pieces")
        futures = [pool.submit(answer_to, number) for number in range(len(lines))]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            closing.set()
            ended_early = not all(future.done() for future in futures)
            if ended_early:  # Nobody waits for the other answers.
                for process in list(self._processes):
                    process.kill()
            pool.shutdown(cancel_futures=True)
            if ended_early:  # Nor is a process idle that answered in its last moment.
                self._idle.clear()

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    def _worker(self) -> "subprocess.Popen[str]":
        """A process that is idle, or a new one, which ends with this process and finds the same modules."""
        with suppress(IndexError):
            while (idle := self._idle.pop()).poll() is not None:
                pass  # It was killed while nobody asked it, which is no try of a piece.
            return idle
        variables = os.environ | owner_env() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "gatehouse.pieces.worker"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables, text=True)
        self._processes.add(process)
        return process


def _asked(process: "subprocess.Popen[str]", line: str) -> str:
    """The worker's answer; empty if it has ended."""
    with suppress(OSError):
        process.stdin.write(line)  # type: ignore[union-attr]  # It is a pipe, as `_worker` asks.
        process.stdin.flush()  # type: ignore[union-attr]  # It is a pipe.
        answer = process.stdout.readline()  # type: ignore[union-attr]  # It is a pipe.
        return answer if answer.endswith("\n") else ""
    return ""


def killed(how: str, memory: int) -> dict[str, Any]:
    """The answer in place of workers that were killed."""
    words = f"{memory / 1e9:.1f} GB" if memory else "their share"
    return {
        "error": KILLED,
        "message": f"A worker was killed {ATTEMPTS} times at the same piece, the last {how}: expected a worker that "
        f"finishes it within its memory ({words}). Give workers more memory (engine.memory), or take fewer of them "
        "(engine.workers).",
    }
