"""A run ends before its first task if it lacks what it needs, and after a verdict that is not pass."""

from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError, ContractBreachError, GatehouseError, LeakageError, VerdictError
from gatehouse.operations.preparing_stage import PrepareRequest, prepare, require_verdict
from gatehouse.store.run import RERUN, rerun_of
from gatehouse.store.store import ArtifactStore
from tests.operations.conftest import RUN


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


def test_later_tasks_of_a_run_read_which_stages_it_forces(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rerun_of(store, RUN) == ""
    for rerun in ("train@2", "split"):  # A retry of the first task changes nothing.
        prepare(PrepareRequest(rerun=rerun), store)
    assert (rerun_of(store, RUN), rerun_of(store, "other"), rerun_of(store, "")) == ("train@2", "", "")
    monkeypatch.setenv(RERUN, "tune")
    assert rerun_of(store, RUN) == "tune"
    with pytest.raises(ConfigurationError, match="'trian'"):
        prepare(PrepareRequest(rerun="trian"), store)


@pytest.mark.parametrize(
    ("kind", "error"), [("validations", ContractBreachError), ("leakage", LeakageError), ("skew", VerdictError)]
)
def test_a_verdict_ends_the_run_with_the_error_of_its_report(kind: str, error: type[GatehouseError]) -> None:
    report = f"s3://bucket/store/{kind}/flights/sha256-{'0' * 64}"
    require_verdict("The rows", "pass", report=report)
    for verdict in ("fail", "unjudged"):
        with pytest.raises(error, match=r"^The rows: ") as caught:
            require_verdict("The rows", verdict, ("a: why",), report)
        assert type(caught.value) is error and caught.value.exit_code == 2
        assert "a: why" in str(caught.value) and report in str(caught.value)
