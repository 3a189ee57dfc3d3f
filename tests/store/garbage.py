"""An old blob that nothing refers to, and a collection that spares nothing for its age."""

from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.collection import Collector, Item, Wish
from gatehouse.store.store import ArtifactStore

NOW = Wish(grace=0)
OLD = b"old and unreferenced"
OLD_BLOB = f"blobs/{sha256_bytes(OLD)[:2]}/{sha256_bytes(OLD)}"


def collect(store: ArtifactStore, wish: Wish = NOW) -> list[Item]:
    """Mark and sweep; what was found, and what became of it."""
    collector = Collector(store, wish)
    return collector.sweep(collector.mark())
