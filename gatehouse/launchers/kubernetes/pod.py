"""The program of a pod: it fetches the job's files, trains, and sends metrics and the result.

Every node fetches and trains. The node that has the result sends it. The others wait until then, because some
operators end all pods of a job when one of them has ended.

Every ten seconds a pod appends the new lines of its metrics file, with a sample of its CPU, memory and GPUs, to
`jobs/<name>/<launch>/metrics/<hour>`. At its start it appends its environment to `jobs/<name>/<launch>/pods`. The
launcher appends the lines to its own file, and sends them to MLflow from there. So metrics arrive even if the pod
fails, is evicted or does not have the result, and a pod needs no connection to MLflow. A line may arrive twice, for
example after a restart of the launcher: it has the same time and step.
"""

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from gatehouse.errors import GatehouseError, StoreError, WrongImageError
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
    HUNG,
    HUNG_CODE,
    METRICS,
    PREEMPTED_CODE,
    RESULT,
    RETRY_CODE,
    noted_attempts,
    stacks_of,
)
from gatehouse.store.records import read_record
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.machine import PREFIX, Machine, in_background, note_gpus
from gatehouse.tracking.metrics_file import MetricsFile, points_of, read_lines
from gatehouse.tracking.provenance import capture_environment


def node_count() -> str:
    """How many nodes the job has, an elastic one at most."""
    return os.environ.get("PET_NNODES", "1").rpartition(":")[2]


def rendezvous_options(launch: str, min_nodes: int = 0) -> list[str]:
    """Options of the wrapper for the rendezvous of a launch; none for one node.

    For several nodes, operators set a static rendezvous, which a restarted node cannot join again. With a store on the
    first node, it can.
    """
    nodes = node_count()
    if nodes == "1":
        return []
    endpoint = f"{os.environ['PET_MASTER_ADDR']}:{os.environ['PET_MASTER_PORT']}"
    return [f"--nodes={nodes}", f"--min-nodes={min_nodes}", f"--rendezvous={endpoint}", f"--run-id={launch}"]


logger = logging.getLogger(__name__)

_SEND_SECONDS = 10.0
_SEND_BYTES = 1 << 20  # lines in one object of the store
_OPEN_HOURS = 2  # hours whose folders pods may still append to; the clocks of machines differ


@contextmanager
def sending_metrics(store: ArtifactStore, folder: str, metrics: Path) -> Iterator[None]:
    """Send the metrics of this pod's ranks every ten seconds, and once more at the end of the context.

    Samples of the machine are added to the same file. With several nodes, their names contain that of the node. Lines
    that the store does not accept are sent the next time.
    """
    samples, offset = MetricsFile(metrics), 0
    machine, began = Machine(os.getpid()), time.monotonic()
    node = "" if node_count() == "1" else f"{os.environ['PET_NODE_RANK']}/"

    def send() -> None:
        nonlocal offset
        sample = {f"{PREFIX}{node}{name.removeprefix(PREFIX)}": value for name, value in machine.sample().items()}
        samples.log(sample, round(time.monotonic() - began))
        samples.flush()
        try:
            while (read := read_lines(metrics, offset, _SEND_BYTES))[0]:
                # There is a folder for each hour, so that no reader must list all objects of a long job.
                hour = f"{folder}/metrics/{int(time.time()) // 3600:08d}"
                store.append(hour, {"lines": read[0].decode(errors="replace")})
                offset = read[1]
        except (GatehouseError, OSError) as error:
            logger.warning("Metrics are not sent for now: %s", error)

    def send_on(ended: threading.Event) -> None:
        while not ended.wait(_SEND_SECONDS):
            send()

    store.append(f"{folder}/pods", {"environment": capture_environment().tags()})
    try:
        with in_background(send_on, "send-metrics"):
            yield
    finally:
        send()
        samples.close()


class PodMetrics:
    """The metrics that the pods of one job have sent, as its launcher receives them."""

    def __init__(self, store: ArtifactStore, folder: str, metrics: Path) -> None:
        """Receive from the job's folder in the store into the launcher's metrics file."""
        self._store, self._folder, self._metrics = store, folder, metrics
        self._file: MetricsFile | None = None
        self._received: set[str] = set()
        self._closed_hours: set[str] = set()

    def receive(self) -> None:
        """Append new lines to the launcher's file; lines that cannot be read now are received the next time."""
        prefix = f"{self._folder}/metrics"
        try:
            hours = list(self._store.objects.folders(prefix))
            for hour in sorted(set(hours) - self._closed_hours):
                for key in sorted(set(self._store.objects.list(f"{prefix}/{hour}")) - self._received):
                    lines = (read_record(self._store.objects, key) or {}).get("lines", "").encode()
                    self._file = self._file or MetricsFile(self._metrics)
                    self._file.append(lines)
                    for point in points_of(lines):
                        note_gpus({point.name: point.value})
                    self._received.add(key)
            self._closed_hours = set(hours[:-_OPEN_HOURS])
        except (GatehouseError, OSError) as error:
            logger.warning("Metrics of the pods are not read for now: %s", error)

    def close(self) -> None:
        """Receive the remaining lines of every hour, and close the file."""
        self._closed_hours = set()
        self.receive()
        if self._file is not None:
            self._file.close()

    def environments(self) -> list[dict[str, str]]:
        """The environment of each pod that started, as tags."""
        keys = self._store.objects.list(f"{self._folder}/pods")
        return [(read_record(self._store.objects, key) or {}).get("environment", {}) for key in keys]


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
    parser.add_argument("min_nodes", type=int, help="The fewest nodes with which a script goes on; 0 for all.")
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
    """Fetch, train and report; returns the exit code of the wrapper, or 0 if the other nodes finished without this."""
    if _finished(store, arguments.folder):
        return 0
    # The machines of a job agree on their ranks only where they meet.
    record = fetch_inputs(store, arguments.folder, arguments.record, directory, shards=node_count() == "1")
    if record.code != (code := program_code(record.program, record.own)):
        raise WrongImageError(
            "The pod's image holds another version of Gatehouse, or of your own code, than the launcher: "
            f"expected {record.code[:12]}, found {code[:12]}. Give the job the image of the task that launches it."
        )
    os.environ |= {CHECKPOINT_STORE: arguments.store, CHECKPOINT_NAME: record.digest}
    launch = arguments.folder.rpartition("/")[2]
    grace = max(arguments.grace - _UPLOAD_SECONDS, arguments.grace / 2)
    options = [f"--grace-seconds={grace}", f"--hang-seconds={arguments.hang}", f"--max-restarts={record.restarts}"]
    options += rendezvous_options(launch, arguments.min_nodes)
    with sending_metrics(store, arguments.folder, directory / METRICS):
        command = [record.program, str(arguments.processes), str(directory), *options]
        wrapper = subprocess.Popen([sys.executable, "-m", _WRAPPER, *command])
        signal.signal(signal.SIGTERM, lambda number, frame: wrapper.send_signal(number))
        ended = wrapper.wait()
        ended = 128 - ended if ended < 0 else ended
    if attempts := noted_attempts(directory):
        node = os.environ.get("PET_NODE_RANK", "0")
        store.append(f"{arguments.folder}/attempts", {"attempts": [line | {"node": node} for line in attempts]})
    if ended and _finished(store, arguments.folder):
        return 0
    if ended == HUNG_CODE:
        report_failure(store, arguments.folder, f"{HUNG}\n{stacks_of(directory)}", outcome="hung")
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
        while reported_end(store, arguments.folder).get("outcome") in (None, "hung") and time.monotonic() < until:
            time.sleep(_RESULT_POLL_SECONDS)
    return ended


def _finished(store: ArtifactStore, folder: str) -> bool:
    """Whether the other nodes have finished the job: a node that comes back too late would wait for them in vain."""
    if node_count() == "1" or reported_end(store, folder).get("outcome") != "succeeded":
        return False
    logger.info("The other nodes have finished the job: nothing is left for this one.")
    return True


if __name__ == "__main__":
    main()
