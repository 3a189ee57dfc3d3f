"""What a pod of a training job runs: fetches the job's files, trains, and sends back what came of it.

Every node fetches and trains. The node that holds the result sends it; the others wait until it has, because the
operator ends all pods when one that it goes by has ended.
"""

import argparse
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.launchers.kubernetes.pod_metrics import sent_while_training
from gatehouse.components.launchers.kubernetes.transfer import (
    Expected,
    fetch_inputs,
    outcome,
    program_code,
    report_failure,
    report_success,
)
from gatehouse.components.launchers.launcher import (
    CHECKPOINT_NAME,
    CHECKPOINT_STORE,
    FAILURE,
    METRICS,
    PREEMPTED_CODE,
    RESULT,
    RETRY_CODE,
)
from gatehouse.components.tracking.shipping import SPOOL
from gatehouse.errors import GatehouseError, StaleSpecError, StoreError

logger = logging.getLogger(__name__)

_WRAPPER = "gatehouse.components.launchers.wrapper"
_LAST_SECONDS = 20.0
"""Of the grace period are left for bringing the last checkpoint to the store."""
_RESULT_SECONDS, _RESULT_POLL = 900.0, 1.0


def main() -> None:
    """Train as the job says; ends with the wrapper's exit code, 128 and above where another attempt makes sense."""
    parser = argparse.ArgumentParser(description="Train one model in a pod of a cluster.")
    parser.add_argument("store", help="Address of the artifact store, as pods see it.")
    parser.add_argument("folder", help="The job's folder in the store.")
    parser.add_argument("record", help="SHA-256 of the job's record.")
    parser.add_argument("processes", type=int, help="Workers of this pod.")
    parser.add_argument("grace", type=float, help="Seconds from this pod's SIGTERM to its SIGKILL.")
    parser.add_argument("hang", type=float, help="Seconds that a rank may make no progress.")
    arguments = parser.parse_args()
    # The first process of a container gets no signal that it does not ask for.
    signal.signal(signal.SIGTERM, _end)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    store = ArtifactStore.open(arguments.store)
    with tempfile.TemporaryDirectory(prefix="job-") as directory:
        try:
            expected = fetch_inputs(store, arguments.folder, arguments.record, Path(directory))
            _require_program(expected)
            os.environ |= {CHECKPOINT_STORE: arguments.store, CHECKPOINT_NAME: expected.digest}
            launch = arguments.folder.rpartition("/")[2]
            waits = [f"--grace-seconds={_kept_for_ranks(arguments.grace)}", f"--hang-seconds={arguments.hang}"]
            spool = _spool(Path(directory), arguments.folder.split("/")[1])
            with sent_while_training(store, arguments.folder, spool):
                code = _train(expected.program, arguments.processes, launch, Path(directory), waits)
            _report(store, arguments.folder, Path(directory), code)
            if code < RETRY_CODE:
                _remove(spool)
        except StoreError as error:
            logger.error("StoreError: %s", error)
            sys.exit(RETRY_CODE)
        except GatehouseError as error:
            report_failure(store, arguments.folder, f"{type(error).__name__}: {error}")
            sys.exit(f"{type(error).__name__}: {error}")
    sys.exit(code)


def _require_program(expected: Expected) -> None:
    if expected.code != (found := program_code(expected.program, expected.builder)):
        raise StaleSpecError(
            "The image of the pod holds another training program, or another builder of the model, than the launcher: "
            f"expected {expected.code[:12]}, found {found[:12]}. Give launch.image the image of the train task."
        )


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(PREEMPTED_CODE)


def _kept_for_ranks(grace: float) -> float:
    return max(grace - _LAST_SECONDS, grace / 2)


def _spool(directory: Path, name: str) -> Path:
    """Where the metrics of this node go: on the volume of `GATEHOUSE_SPOOL`, where the next pod finds what is left."""
    spool = directory / METRICS
    if volume := os.environ.get(SPOOL):
        kept = Path(volume) / name / os.environ.get("PET_NODE_RANK", "0")
        kept.mkdir(parents=True, exist_ok=True)
        spool.symlink_to(kept)
    return spool


def _remove(spool: Path) -> None:
    """Remove what no pod after this one needs, on a volume too; all of it has been sent."""
    kept = spool.resolve()
    shutil.rmtree(kept, ignore_errors=True)
    if kept != spool:
        with suppress(OSError):  # Another node still has its spool there.
            kept.parent.rmdir()


def _train(program: str, processes: int, launch: str, directory: Path, waits: list[str]) -> int:
    """Run the wrapper, hand it the pod's SIGTERM, and return its exit code."""
    given = [*waits, *_rendezvous(launch)]
    wrapper = subprocess.Popen([sys.executable, "-m", _WRAPPER, program, str(processes), str(directory), *given])

    def hand_on(number: int, frame: FrameType | None) -> None:
        wrapper.send_signal(number)

    signal.signal(signal.SIGTERM, hand_on)
    code = wrapper.wait()
    return 128 - code if code < 0 else code


def _report(store: ArtifactStore, folder: str, directory: Path, code: int) -> None:
    """Send what came of it; another attempt is for the operator to begin, and nothing is said about this one."""
    if (directory / FAILURE).exists():
        report_failure(store, folder, json.loads((directory / FAILURE).read_text())["message"])
    elif code == 0 and (directory / RESULT).exists():
        report_success(store, folder, directory)
    elif code == 0 and _nodes() != "1":
        _wait_for_result(store, folder)


def _nodes() -> str:
    return os.environ.get("PET_NNODES", "1")


def _rendezvous(launch: str) -> list[str]:
    """Where the nodes meet, as the operator says; empty for one node, and where it says all itself (elastic jobs).

    Operators give a static rendezvous, with which a node that starts again is lost; over a store on the first node it
    is found again.
    """
    if _nodes() == "1" or "PET_RDZV_ENDPOINT" in os.environ:
        return []
    nodes, endpoint = _nodes(), f"{os.environ['PET_MASTER_ADDR']}:{os.environ['PET_MASTER_PORT']}"
    return [f"--nodes={nodes}:{nodes}", f"--rendezvous={endpoint}", f"--run-id={launch}"]


def _wait_for_result(store: ArtifactStore, folder: str) -> None:
    signal.signal(signal.SIGTERM, _end)
    until = time.monotonic() + _RESULT_SECONDS
    while not outcome(store, folder) and time.monotonic() < until:
        time.sleep(_RESULT_POLL)


if __name__ == "__main__":
    main()
