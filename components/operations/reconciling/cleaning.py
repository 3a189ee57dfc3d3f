"""Removes what dead writers left: nothing that a living process holds, as locks and renewed leases show.

A job's checkpoints stay, as the next run goes on from them. The object of a job on a cluster goes with the pod of its
launcher, or at its own deadline. The lease of a tuning controller is taken over by the next. Online stores have no
locks: they compare when they write.
"""

from gatehouse.components.artifacts.collection import store_time
from gatehouse.components.artifacts.leases import remove_lapsed
from gatehouse.components.artifacts.store import ArtifactStore


def clean(store: ArtifactStore) -> int:
    """Remove the workspaces of killed processes on this machine, and leases that nobody renews; gives how many."""
    return store.sweep() + remove_lapsed(store.objects, store_time(store.objects))
