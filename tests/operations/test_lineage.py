"""OpenLineage: a server gets the jobs of a run with what they read and made, the same however often they are sent."""

import uuid
from collections.abc import Iterator
from datetime import datetime

import pytest

from gatehouse.operations.ending_stage import EndRequest, EndResult, report_end
from gatehouse.operations.lineage import lineage_of
from gatehouse.store.manifest import Column
from gatehouse.store.run import Attempt, events
from gatehouse.store.store import ArtifactStore
from tests.operations.conftest import RUN
from tests.operations.hook import Hook, hooked


@pytest.fixture
def marquez(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """A server that records what it gets."""
    with hooked(201) as hook:
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{hook.port}")
        yield hook


def end(store: ArtifactStore, kfp_state: str = "SUCCEEDED") -> EndResult:
    return report_end(EndRequest(project="flights", pipeline="training", kfp_state=kfp_state), store)


def work(store: ArtifactStore) -> tuple[str, str]:
    """A run that took a snapshot and computed a table from it."""
    snapshot = str(store.publish("snapshots", "raw", {"a.csv": b"a\n"}))
    columns = [Column("key", "string"), Column("delay", "int32")]
    table = str(
        store.publish("feature-tables", "delays", {"t": b"t"}, derived_from={"snapshot": snapshot}, columns=columns)
    )
    for stage, result in (("snapshot", {"snapshot": snapshot}), ("compute_features", {"tables": [table]})):
        Attempt(store, stage).note("finished", result=result)
    return snapshot, table


def test_each_job_names_what_it_read_and_made_with_schema_and_version(store: ArtifactStore, marquez: Hook) -> None:
    snapshot, table = work(store)
    assert end(store).posted
    assert {*marquez.paths} == {"/api/v1/lineage"}
    jobs = [(body["eventType"], body["job"]["name"]) for body in marquez.bodies]
    run, first, second = "flights.training", "flights.training.snapshot", "flights.training.compute_features"
    expected = [("START", run), ("START", first), ("COMPLETE", first), ("START", second), ("COMPLETE", second)]
    assert jobs == [*expected, ("COMPLETE", run)]
    whole, computed = marquez.bodies[-1], marquez.bodies[-2]
    (read,), (made,) = computed["inputs"], computed["outputs"]
    assert (read["name"], made["name"]) == ("snapshots/raw", "feature-tables/delays")
    assert read["namespace"] == f"file://{store.address}"
    assert read["facets"]["version"]["datasetVersion"] == snapshot.rpartition("-")[2]
    assert made["facets"]["version"]["datasetVersion"] == table.rpartition("-")[2]
    fields = made["facets"]["schema"]["fields"]
    assert [(field["name"], field["type"]) for field in fields] == [("key", "string"), ("delay", "int32")]
    assert computed["run"]["facets"]["parent"]["run"]["runId"] == whole["run"]["runId"]
    assert (whole["inputs"], len(whole["outputs"])) == ([], 2), "what it made itself is no input of the whole run"


def test_every_event_keeps_what_the_specification_requires(store: ArtifactStore, marquez: Hook) -> None:
    """OpenLineage 2.0.2, RunEvent: its required fields and their formats; the client has no schema."""
    work(store)
    end(store)
    for body in marquez.bodies:
        assert {"eventTime", "producer", "schemaURL", "run", "job"} <= {*body}
        assert datetime.fromisoformat(body["eventTime"]).tzinfo and "://" in body["producer"]
        assert str(uuid.UUID(body["run"]["runId"])) == body["run"]["runId"]
        assert body["eventType"] in ("START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER")
        for dataset in (*body["inputs"], *body["outputs"]):
            assert {"namespace", "name"} <= {*dataset}
            assert all({"_producer", "_schemaURL"} <= {*facet} for facet in dataset["facets"].values())


def test_a_failure_has_its_message_without_secrets(
    store: ArtifactStore, marquez: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_PASSWORD", "hunter22")
    Attempt(store, "train").note("failed", error="E", message="no disk hunter22")
    end(store, "FAILED")
    ends = [body for body in marquez.bodies if body["eventType"] == "FAIL"]
    assert [body["job"]["name"] for body in ends] == ["flights.training.train", "flights.training"]
    assert all(body["run"]["facets"]["errorMessage"]["message"] == "no disk ***" for body in ends)


def test_a_repeat_is_about_the_same_runs_and_a_delivery_is_not_repeated(store: ArtifactStore, marquez: Hook) -> None:
    work(store)
    end(store)
    again = [(str(event.run.runId), event.eventTime) for event in lineage_of(store, RUN)]
    assert again == [(body["run"]["runId"], body["eventTime"]) for body in marquez.bodies]
    end(store)
    assert len(marquez.bodies) == len(again)


def test_a_server_that_is_down_fails_nothing_and_gets_it_later(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(store)
    with hooked(400) as down:
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{down.port}")
        result = end(store)
        assert result.state == "succeeded" and not result.posted
    with hooked(201) as up:
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{up.port}")
        assert end(store).posted and len(up.bodies) == 6
    assert [event.stage for _, event in events(store, RUN) if event.event == "warned"] == ["notice:webhook"]


def test_without_an_address_nothing_is_sent_or_written(store: ArtifactStore) -> None:
    work(store)
    assert not end(store).posted and not list(store.objects.list("events"))
