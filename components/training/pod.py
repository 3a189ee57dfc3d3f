"""What a pod of a training job runs: fetches the job's files, trains, and sends back what came of it.

Every node fetches and trains. The node that holds the result sends it; the others wait until it has, because the
operator ends all pods when one that it goes by has ended.
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

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.launcher import FAILURE, RESULT
from gatehouse.components.training.launchers.travel import (
    fetch_inputs,
    outcome,
    program_code,
    report_failure,
    report_success,
)
from gatehouse.errors import GatehouseError, StaleSpecError, StoreError

logger = logging.getLogger(__name__)

_WRAPPER = "gatehouse.components.training.wrapper"
_TRY_AGAIN = 128  # The least exit code after which the operator starts the pod again.
_RESULT_SECONDS, _RESULT_POLL = 900.0, 1.0


def main() -> None:
    """Train as the job says; ends with the wrapper's exit code, 128 and above where another attempt makes sense."""
    parser = argparse.ArgumentParser(description="Train one model in a pod of a cluster.")
    parser.add_argument("store", help="Address of the artifact store, as pods see it.")
    parser.add_argument("folder", help="The job's folder in the store.")
    parser.add_argument("record", help="SHA-256 of the job's record.")
    parser.add_argument("processes", type=int, help="Workers of this pod.")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    store = ArtifactStore.open(arguments.store)
    with tempfile.TemporaryDirectory(prefix="job-") as directory:
        try:
            code = attempt(store, arguments.folder, arguments.record, arguments.processes, Path(directory))
        except StoreError as error:
            logger.error("StoreError: %s", error)
            sys.exit(_TRY_AGAIN)
        except GatehouseError as error:
            report_failure(store, arguments.folder, f"{type(error).__name__}: {error}")
            sys.exit(f"{type(error).__name__}: {error}")
    sys.exit(code)


def attempt(store: ArtifactStore, folder: str, record: str, processes: int, directory: Path) -> int:
    """Fetch, train and send; returns the exit code.

    Raises:
        MissingArtifactError, CorruptArtifactError: if the files are not what the launcher wrote.
        StaleSpecError: if this image holds another program than the launcher's.
    """
    expected = fetch_inputs(store, folder, record, directory)
    if expected != program_code():
        raise StaleSpecError(
            f"The image of the pod holds another training program than the launcher: expected {expected[:12]}, found "
            f"{program_code()[:12]}. Give launch.image the image of the train task."
        )
    code = _train(processes, directory)
    if (directory / FAILURE).exists():
        report_failure(store, folder, json.loads((directory / FAILURE).read_text())["message"])
    elif code == 0 and (directory / RESULT).exists():
        report_success(store, folder, directory)
    elif code == 0 and _nodes() > 1:
        _wait_for_result(store, folder)
    return code


def _train(processes: int, directory: Path) -> int:
    """Run the wrapper, hand it the pod's SIGTERM, and return its exit code."""
    os.environ |= _rendezvous()
    wrapper = subprocess.Popen([sys.executable, "-m", _WRAPPER, str(processes), str(directory)])

    def hand_on(number: int, frame: FrameType | None) -> None:
        wrapper.send_signal(number)

    signal.signal(signal.SIGTERM, hand_on)
    code = wrapper.wait()
    return 128 - code if code < 0 else code


def _nodes() -> int:
    return int(os.environ.get("PET_NNODES", "1").rpartition(":")[2])


def _rendezvous() -> dict[str, str]:
    """Torchrun's settings for several nodes, from what the operator says.

    Operators give a static rendezvous, with which a node that starts again is lost; over a store on the first node it
    is found again.
    """
    if _nodes() == 1 or "PET_RDZV_ENDPOINT" in os.environ:
        return {}
    first, port = os.environ["PET_MASTER_ADDR"], os.environ["PET_MASTER_PORT"]
    return {
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{first}:{port}",
        "PET_RDZV_CONF": f"is_host={int(os.environ.get('PET_NODE_RANK', '0') == '0')}",
    }


def _wait_for_result(store: ArtifactStore, folder: str) -> None:
    until = time.monotonic() + _RESULT_SECONDS
    while not outcome(store, folder) and time.monotonic() < until:
        time.sleep(_RESULT_POLL)


if __name__ == "__main__":
    main()
