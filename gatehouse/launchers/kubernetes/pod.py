"""The program of a pod: it fetches the job's files, trains, and sends the result.

Every node fetches and trains. The node that has the result sends it. The others wait until then, because some
operators end all pods of a job when one of them has ended.
"""

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from gatehouse.errors import GatehouseError, StoreError, WrongImageError
from gatehouse.launchers.kubernetes.pod_metrics import node_count, rendezvous_options, sending_metrics
from gatehouse.launchers.kubernetes.transfer import (
    fetch_inputs,
    program_code,
    report_failure,
    report_success,
    reported_end,
)
from gatehouse.launchers.launcher import (
    CHECKPOINT_NAME,
    CHECKPOINT_STORE,
    FAILURE,
    METRICS,
    PREEMPTED_CODE,
    RESULT,
    RETRY_CODE,
)
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

_WRAPPER = "gatehouse.launchers.wrapper"
_UPLOAD_SECONDS = 20.0  # the part of the grace period in which the last checkpoint is sent to the store
_RESULT_SECONDS, _RESULT_POLL_SECONDS = 900.0, 1.0


def main() -> None:
    """Train according to the job's record, and end with the exit code of the wrapper."""
    parser = argparse.ArgumentParser(description="Train one model in a pod of a cluster.")
    parser.add_argument("store", help="Address of the artifact store, as pods see it.")
    parser.add_argument("folder", help="The job's folder in the store.")
    parser.add_argument("record", help="SHA-256 of the job's record.")
    parser.add_argument("processes", type=int, help="Workers of this pod.")
    parser.add_argument("grace", type=float, help="Seconds from this pod's SIGTERM to its SIGKILL.")
    parser.add_argument("hang", type=float, help="Seconds that a rank may make no progress.")
    arguments = parser.parse_args()
    # Linux delivers a signal to the first process of a container only if the process has a handler for it.
    signal.signal(signal.SIGTERM, _end)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    store = ArtifactStore.open(arguments.store)
    with tempfile.TemporaryDirectory(prefix="job-") as directory:
        try:
            code = _run(store, arguments, Path(directory))
        except StoreError as error:
            logger.error("StoreError: %s", error)
            sys.exit(RETRY_CODE)
        except GatehouseError as error:
            report_failure(store, arguments.folder, f"{type(error).__name__}: {error}")
            sys.exit(f"{type(error).__name__}: {error}")
    sys.exit(code)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(PREEMPTED_CODE)


def _run(store: ArtifactStore, arguments: argparse.Namespace, directory: Path) -> int:
    """Fetch, train and report; returns the exit code of the wrapper."""
    record = fetch_inputs(store, arguments.folder, arguments.record, directory)
    if record.code != (code := program_code(record.program, record.own)):
        raise WrongImageError(
            "The pod's image holds another version of Gatehouse, or of your own code, than the launcher: "
            f"expected {record.code[:12]}, found {code[:12]}. Give the job the image of the task that launches it."
        )
    os.environ |= {CHECKPOINT_STORE: arguments.store, CHECKPOINT_NAME: record.digest}
    launch = arguments.folder.rpartition("/")[2]
    grace = max(arguments.grace - _UPLOAD_SECONDS, arguments.grace / 2)
    options = [f"--grace-seconds={grace}", f"--hang-seconds={arguments.hang}", f"--max-restarts={record.restarts}"]
    options += rendezvous_options(launch)
    with sending_metrics(store, arguments.folder, directory / METRICS):
        command = [record.program, str(arguments.processes), str(directory), *options]
        wrapper = subprocess.Popen([sys.executable, "-m", _WRAPPER, *command])
        signal.signal(signal.SIGTERM, lambda number, frame: wrapper.send_signal(number))
        ended = wrapper.wait()
        ended = 128 - ended if ended < 0 else ended
    # Nothing is sent if the operator may start the job again.
    failed = node_count() != "1" and reported_end(store, arguments.folder).get("repeats")  # On another node.
    if (directory / FAILURE).exists():
        message = json.loads((directory / FAILURE).read_text())["message"]
        report_failure(store, arguments.folder, message, repeats=True)
    elif ended == 0 and (directory / RESULT).exists() and not failed:
        report_success(store, arguments.folder, directory)
    elif ended == 0 and node_count() != "1":  # Wait until the node with the result has sent it.
        signal.signal(signal.SIGTERM, _end)
        until = time.monotonic() + _RESULT_SECONDS
        while not reported_end(store, arguments.folder) and time.monotonic() < until:
            time.sleep(_RESULT_POLL_SECONDS)
    return ended


if __name__ == "__main__":
    main()
