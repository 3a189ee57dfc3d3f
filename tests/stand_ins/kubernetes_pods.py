"""A scenario for the stand-in cluster that really runs what the pods of a job are told to run, as processes."""

import os
import subprocess
import sys
import threading

from tests.ports import free_port
from tests.stand_ins.kubernetes_api import Cluster
from tests.stand_ins.kubernetes_kinds import Object, container_of, environment_of


def run_pods(cluster: Cluster, job: Object) -> None:
    """Run what the pods are told to run, as an operator that starts nothing again.

    It sets the variables that the operator of the job's kind sets, and no other.
    """
    nodes, container = container_of(job)
    port = free_port()
    running = []
    for rank in range(nodes):
        pod = cluster.add_pod(job, f"node-{rank}")
        environment = {item["name"]: item["value"] for item in container["env"] if "value" in item}
        for variable in ("TMPDIR", "GATEHOUSE_CACHE", "GLOO_SOCKET_IFNAME"):
            environment.pop(variable, None)
        environment |= environment_of(job, rank, port)
        process = subprocess.Popen(
            [sys.executable, *container["command"][1:]],
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        cluster.processes.append(process)
        cluster.start(job, pod)
        copying = threading.Thread(target=_copy, args=(cluster, pod, process), daemon=True)
        copying.start()
        running.append((pod, process, copying))
    codes = []
    for pod, process, copying in running:
        codes.append(process.wait())
        copying.join(5)  # The last lines. A process that is left behind holds the pipe open.
        cluster.end(job, pod, codes[-1])
    cluster.conclude(job, succeeded=not any(codes), reason="JobEnded", message=f"exit codes {codes}")


def _copy(cluster: Cluster, pod: Object, process: subprocess.Popen[bytes]) -> None:
    assert process.stdout
    for line in process.stdout:
        sys.stderr.write(line.decode())
        cluster.say(pod, line.decode().rstrip())
