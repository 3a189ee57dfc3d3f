"""Pieces in pods that are deleted meanwhile: the model is that of a run whose tasks do all themselves."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.conftest import Cluster, Started, ends

pytestmark = pytest.mark.timeout(3600)
PODS = "gatehouse.dev/pieces"


def until(what: str, seen: Callable[[], Any]) -> Any:
    """What is seen, once it is: pieces take seconds."""
    end = time.monotonic() + 1200
    while time.monotonic() < end:
        if result := seen():
            return result
        time.sleep(0.5)
    pytest.fail(f"not seen within 20 minutes: {what}")


@pytest.mark.parametrize("kind", ["ray", "indexed"])
def test_lost_pods_of_pieces_change_no_bit_of_a_model(cluster: Cluster, green: Started, kind: str) -> None:
    if kind == "ray" and "rayjobs" not in cluster.kubectl("api-resources", "--api-group=ray.io", "-o", "name"):
        pytest.skip("needs KubeRay in the cluster")
    own = cluster.beside(f"pieces-{kind}", engine={"kind": kind, "workers": 1, "memory": "1500M"})
    run = own.start(green.project)

    def at_work() -> set[str]:
        """Calls that have no answer yet."""
        keys = [key.split("/") for key in own.store.objects.list("jobs")]
        calls = {key[4].removesuffix(".json") for key in keys if key[3] == "calls"}
        return calls - {key[4] for key in keys if key[3] == "answers"}

    def delete(*labels: str) -> str:
        """Delete the running pods with these labels, at once."""
        listed = json.loads(own.kubectl("get", "pods", "-l", ",".join((PODS, *labels)), "-o", "json"))
        pods = [pod["metadata"]["name"] for pod in listed["items"] if pod["status"]["phase"] == "Running"]
        if pods:
            own.kubectl("delete", "pod", *pods, "--grace-period=0", "--force")
        return " ".join(pods)

    if kind == "ray":
        running = ("get", "rayjobs", "-o", "jsonpath={.items[*].status.jobStatus}")
        until("a driver", lambda: "RUNNING" in own.kubectl(*running) and at_work())
        assert delete("ray.io/node-type=worker")
        until("a new worker", lambda: json.loads(own.kubectl("get", "pods", "-l", PODS, "-o", "json"))["items"][1:])
        until("another call", lambda: "RUNNING" in own.kubectl(*running) and at_work())
        assert delete("ray.io/node-type=head")
    else:
        until("a pod of a piece", delete)
    assert ends(own, run) == ("SUCCEEDED", "succeeded", "", "")
    models = [
        event.body["result"]["model"]
        for place, each in ((cluster, green.runs["green"]), (own, run))
        for event in place.events(each)
        if (event.stage, event.event) == ("train", "finished")
    ]
    assert len(models) == 2 and models[0] == models[1]
    assert not own.kubectl("get", "rayjobs" if kind == "ray" else "jobs", "-o", "name")
    assert not list(own.store.objects.list("jobs"))
