"""The time span of a run is checked before its first task does anything."""

from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.operations.preparing.stage import PrepareRequest, prepare
from gatehouse.store.store import ArtifactStore


@pytest.mark.parametrize(
    ("since", "until", "place"),
    [
        ("2013-02-01T00:00:00Z", "2013-01-01T00:00:00Z", "since: "),
        ("yesterday", "", "since: "),
        ("", "2013-01-01", "until: "),
    ],
)
def test_a_span_without_a_time_is_refused(tmp_path: Path, since: str, until: str, place: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{place}"):
        prepare.function(PrepareRequest(since=since, until=until), ArtifactStore.open(str(tmp_path)))
