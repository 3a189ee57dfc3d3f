"""Which node of a job this pod is, as its operator says in the environment."""

import os

ENDPOINT = "PET_RDZV_ENDPOINT"
"""Set by the operator of an elastic job: where its nodes meet."""


def node_count() -> str:
    """How many nodes the job has; `min:max` for an elastic job."""
    return os.environ.get("PET_NNODES", "1")


def node_name() -> str:
    """What tells this node apart from the others of its job, the same for every pod that takes its place.

    It is the rank of the node, or the name of the pod where the operator gives no rank, as in an elastic job.
    """
    return os.environ.get("PET_NODE_RANK") or os.uname().nodename


def rendezvous_options(launch: str) -> list[str]:
    """Options of the wrapper that say where the nodes meet; none for one node, and for an elastic job.

    For several nodes, operators set a static rendezvous, with which a node that starts again is lost. With a store on
    the first node it is found again.

    Args:
        launch: Identifies the launch of the job.
    """
    nodes = node_count()
    if nodes == "1" or ENDPOINT in os.environ:
        return []
    endpoint = f"{os.environ['PET_MASTER_ADDR']}:{os.environ['PET_MASTER_PORT']}"
    return [f"--nodes={nodes}:{nodes}", f"--rendezvous={endpoint}", f"--run-id={launch}"]
