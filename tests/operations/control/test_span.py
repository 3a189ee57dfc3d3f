"""The span of a run: what is no time with a zone, or ends before it starts, ends the run in its first task."""

from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.operations.preparing.stage import PrepareRequest, prepare, require_span
from gatehouse.store.store import ArtifactStore


@pytest.mark.parametrize(
    ("since", "until", "why"),
    [
        ("2013-02-01T00:00:00Z", "2013-01-01T00:00:00Z", "since: expected a time before until"),
        ("yesterday", "", "since: expected a time with its zone"),
        ("", "2013-01-01", "until: expected a time with its zone"),
    ],
)
def test_a_span_that_holds_no_time_is_refused(tmp_path: Path, since: str, until: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        require_span({"since": since, "until": until})
    with pytest.raises(ConfigurationError, match=why):
        prepare.function(PrepareRequest(since=since, until=until), ArtifactStore.open(str(tmp_path)))


def test_a_span_may_have_one_bound_or_none() -> None:
    for one in ({}, {"since": "2013-01-01T00:00:00Z"}, {"since": "2013-01-01T00:00Z", "until": "2013-01-02T00:00Z"}):
        require_span(one)
