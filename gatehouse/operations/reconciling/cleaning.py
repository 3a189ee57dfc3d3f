"""Removes what killed writers left, and nothing that a living process holds: locks and renewed leases protect that.

The checkpoints of a job stay, because the next run resumes from them. A job object on a cluster is deleted with the pod
of its launcher, or at its own deadline. The next tuning controller takes over the lease of a killed one. Online stores
have no locks: they compare when they write.
"""

from gatehouse.store.collection import store_time
from gatehouse.store.leases import remove_lapsed
from gatehouse.store.store import ArtifactStore


def clean(store: ArtifactStore) -> int:
    """Remove workspaces of killed processes on this machine, and leases that are not renewed; returns their number."""
    return store.sweep() + remove_lapsed(store.objects, store_time(store.objects))
