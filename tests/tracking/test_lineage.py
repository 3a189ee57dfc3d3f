"""Lineage is read off manifests."""

from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import lineage_of, lineage_tags


def test_lineage_holds_every_ancestor_once_and_not_the_artifact_itself(store: ArtifactStore) -> None:
    raw = store.publish("datasets", "raw", {"a": "1"})
    left = store.publish("features", "left", {"a": "2"}, derived_from={"raw": raw})
    right = store.publish("features", "right", {"a": "3"}, derived_from={"raw": raw})
    top = store.publish("models", "m", {"a": "4"}, derived_from={"left": left, "right": right})
    assert lineage_of(store, top) == tuple(sorted(map(str, (raw, left, right))))
    assert lineage_of(store, raw) == ()


def test_tags_name_kind_and_name_and_keep_two_of_a_kind(store: ArtifactStore) -> None:
    one, two = (str(store.publish("datasets", "raw", {"a": text})) for text in "12")
    other = str(store.publish("splits", "s", {"a": "1"}))
    assert lineage_tags((one, two, other)) == {
        "gatehouse.lineage.datasets.raw": f"{one} {two}",
        "gatehouse.lineage.splits.s": other,
    }
