"""A script on as many nodes as there are, on real operators: it goes on when two of four are deleted at once."""

import json
import re

import pytest
from kfp import dsl

from gatehouse import components as gh
from tests.cluster.conftest import Cluster, start
from tests.cluster.test_own_pipeline import printed

pytestmark = pytest.mark.timeout(3600)
NODES, FEWEST = 4, 2
SCRIPT = """
import os, pathlib, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
saved = pathlib.Path(os.environ["GATEHOUSE_CHECKPOINTS"]) / "last.pt"
first, total = torch.load(saved, weights_only=True) if saved.exists() else (0, 0)
print(f"first={first} world={world}", flush=True)
for step in range(first, 60):
    part = torch.tensor(sum(range(step * 100 + rank, step * 100 + 100, world)))
    dist.all_reduce(part)
    total += int(part)
    if rank == 0:
        print(f"step={step}", flush=True)
        torch.save((step + 1, total), f"{saved}.new")
        os.rename(f"{saved}.new", saved)
    time.sleep(1.5)
if rank == 0:
    (pathlib.Path(os.environ["GATEHOUSE_OUTPUT"]) / "total").write_text(str(total))
    print(f"total={total}", flush=True)
"""


@pytest.mark.parametrize("kind", ["pytorchjob", "trainjob"])
def test_a_script_goes_on_when_two_of_its_nodes_are_deleted(cluster: Cluster, kind: str) -> None:
    label, name = f"gatehouse-test=elastic-{kind}", f"elastic-{kind}"

    @dsl.pipeline(name="elastic")
    def built() -> None:
        launched = gh.launch(
            script=SCRIPT,
            kind=kind,
            nodes=NODES,
            min_nodes=FEWEST,
            image=cluster.images["training"],
            resources={"cpu": "200m", "memory": "1Gi"},
            settings={"labels": {"gatehouse-test": name}},
            store=cluster.store.address,
        )
        launched.set_memory_limit("2G").set_container_image(cluster.images["training"])

    run = start(cluster, built, name)

    def running() -> dict[str, str]:
        """Names of the running nodes by their place; the first has the rendezvous."""
        pods = json.loads(cluster.kubectl("get", "pods", "-l", label, "-o", "json"))["items"]
        places = ("training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index")
        places = places if kind == "pytorchjob" else ("batch.kubernetes.io/job-completion-index",)
        return {
            "-".join(pod["metadata"]["labels"][place] for place in places): pod["metadata"]["name"]
            for pod in pods
            if pod["status"].get("phase") == "Running"
        }

    first = "master-0" if kind == "pytorchjob" else "0"
    logs = ("logs", "-l", label, "--tail=-1", "--prefix=false")
    cluster.until("all nodes at work", lambda: len(running()) == NODES and "step=10" in cluster.kubectl(*logs))
    nodes = running()
    lost = [nodes[place] for place in sorted(nodes.keys() - {first})[:2]]
    cluster.kubectl("delete", "pod", *lost, "--grace-period=0", "--force")
    cluster.require_success(run)
    log = printed(cluster, name, run)
    assert max(int(number) for number in re.findall(r"first=(\d+)", log)) > 0, "it went on from a checkpoint"
    assert f"total={sum(range(6000))}" in log
