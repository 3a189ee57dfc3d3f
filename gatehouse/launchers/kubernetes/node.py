"""Finds which node of a job this pod is, from the operator's environment variables."""

import os

ENDPOINT = "PET_RDZV_ENDPOINT"
"""Set by the operator of an elastic job: the address of the rendezvous."""


def node_count() -> str:
    """How many nodes the job has; `min:max` for an elastic job."""
    return os.environ.get("PET_NNODES", "1")


def node_name() -> str:
    """An id that distinguishes this node from the others of its job, and stays the same for a replacement pod.

    It is the rank of the node, or the name of the pod if the operator gives no rank, as in an elastic job.
    """
    return os.environ.get("PET_NODE_RANK") or os.uname().nodename


def rendezvous_options(launch: str) -> list[str]:
    """Options of the wrapper for the rendezvous; none for one node, and for an elastic job.

    For several nodes, operators set a static rendezvous, which a restarted node cannot join again. With a store on the
    first node, it can.

    Args:
        launch: Identifies the launch of the job.
    """
    nodes = node_count()
    if nodes == "1" or ENDPOINT in os.environ:
        return []
    endpoint = f"{os.environ['PET_MASTER_ADDR']}:{os.environ['PET_MASTER_PORT']}"
    return [f"--nodes={nodes}:{nodes}", f"--rendezvous={endpoint}", f"--run-id={launch}"]
