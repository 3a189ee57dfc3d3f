"""The time span of a run is checked before its first task does anything."""

from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.operations.preparing.stage import PrepareRequest, prepare, require_span
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


def test_a_span_may_have_one_bound_or_none() -> None:
    for span in ({}, {"since": "2013-01-01T00:00:00Z"}, {"since": "2013-01-01T00:00Z", "until": "2013-01-02T00:00Z"}):
        require_span(span)
