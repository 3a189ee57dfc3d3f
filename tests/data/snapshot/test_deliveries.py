"""The record of what was delivered: no snapshot is without one, and where it was lost all the same that is said."""

import pytest

from gatehouse.errors import DeliveryError
from gatehouse.store.store import ArtifactStore
from tests.data.snapshot.conftest import HEADER, Events, rows

REWRITTEN = HEADER + rows(0, 600).replace(",50.0\n", ",51.0\n")


def _records(events: Events) -> list[str]:
    return list(events.store.objects.list("sources/small"))


@pytest.mark.parametrize("published", [False, True])
def test_a_run_that_is_killed_as_it_publishes_leaves_no_snapshot_without_a_record(
    events: Events, monkeypatch: pytest.MonkeyPatch, published: bool
) -> None:
    adopt = ArtifactStore.adopt

    def killed(store: ArtifactStore, *arguments: object) -> None:
        if published:
            adopt(store, *arguments)  # type: ignore[arg-type]  # as they come
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ArtifactStore, "adopt", killed)
        with pytest.raises(KeyboardInterrupt):
            events.take()
    assert len(_records(events)) == 1
    events.write(REWRITTEN)
    if published:
        with pytest.raises(DeliveryError, match="rewrite: 1 rows"):
            events.take()
    else:
        assert events.take().warnings == ()


def test_no_record_holds_a_value_of_a_row_that_was_set_aside(events: Events) -> None:
    events.table = {"on_invalid": "reject"}
    events.write(HEADER + rows(0, 600) + "5,2024-01-01T00:00:00Z,alice@example.com\n")
    events.take()
    (record,) = _records(events)
    body = events.store.objects.get_bytes(record).decode()
    assert "line 602, column value: expected double" in body
    assert "alice" not in body
