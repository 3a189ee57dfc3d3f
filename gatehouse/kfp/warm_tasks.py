"""Runs the tasks of a local run in processes that Python's fork server forks, with the common imports done once.

KFP's local runner starts a new interpreter for each task, which imports for longer than a task from the memo takes.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, get_context
from pathlib import Path
from typing import NoReturn

from gatehouse.runtime.importing import stage_modules

_IMPORTED = ("kfp.dsl.executor_main", "gatehouse.data.component_task")
_RUNTIME = "_KFP_RUNTIME"
"""With this variable KFP imports only what a task needs."""


_context = get_context("forkserver")


def start_importing() -> None:
    """Start the fork server, which imports what tasks need while this process prepares the run."""
    _context.set_forkserver_preload([*_IMPORTED, *stage_modules()])
    os.environ[_RUNTIME] = "true"
    forkserver.ensure_running()
    del os.environ[_RUNTIME]


def use_for_tasks() -> None:
    """Let KFP's local runner run each task of this process in a process of the fork server."""
    from kfp.local import subprocess_task_handler

    subprocess_task_handler.run_local_subprocess = _run


def _run(full_command: Sequence[str], env_vars: Mapping[str, str] | None = None) -> int:
    """Run the command of a lightweight component, `sh -ec SCRIPT PROGRAM ARGUMENTS`; returns its exit code."""
    environment = {**os.environ, **(env_vars or {}), _RUNTIME: "true"}
    sys.stdout.flush()
    process = _context.Process(target=run_task, args=(full_command[3:], environment, os.getcwd()))
    process.start()
    process.join()
    return process.exitcode or 0


def run_task(command: Sequence[str], environment: Mapping[str, str], folder: str) -> NoReturn:
    """Run the program of a component in this process, and end it."""
    from kfp.dsl.executor_main import executor_main

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None
    code = 1
    try:
        with tempfile.TemporaryDirectory() as place:
            program = Path(place) / "ephemeral_component.py"
            program.write_text(command[0], encoding="utf-8")
            sys.argv = ["executor_main", "--component_module_path", str(program), *command[1:]]
            executor_main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
