"""Orders to retrain: due or not, held back, once for a cause whoever asks and wherever it is killed."""

import threading
import time
from typing import Any

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.kfp_api.client import KfpApi
from gatehouse.monitoring import orders as causes
from gatehouse.monitoring import retraining_stage
from gatehouse.monitoring.orders import CauseTakenError, Order, Orders
from gatehouse.monitoring.retraining_stage import RetrainRequest, RetrainResult, due, held_back, retrain
from gatehouse.monitoring.spec import RetrainSpec, SubmissionSpec
from gatehouse.operations.preparing_stage import PrepareRequest, prepare
from gatehouse.runtime.variables import ENDPOINT
from gatehouse.store.canonical import canonical_json
from gatehouse.store.run import RUN_ID, Attempt
from gatehouse.store.store import ArtifactStore
from tests.stand_ins.kfp_api import KfpServer

MODEL = f"models/delay/sha256-{'a' * 64}"
FACTS = {"decided from": "2013-11-01", "to": "2013-11-30", "labelled rows after the last train row": 500}
DAY = 86_400.0


def _drift_report(*triggers: str, **facts: Any) -> dict[str, Any]:
    return {
        "triggers": list(triggers),
        "reasons": [f"{trigger} was found" for trigger in triggers],
        "facts": FACTS | facts,
    }


def _request(store: ArtifactStore, *triggers: str, model: str = "", **facts: Any) -> RetrainRequest:
    training_set, own = (str(store.publish(kind, "delay", {"a": "1"})) for kind in ("training-sets", "models"))
    files = {"drift.json": canonical_json(_drift_report(*triggers, **facts))}
    inputs = {"reference": training_set, "model": model or own}
    drift = str(store.publish("drift-reports", "delay", files, derived_from=inputs))
    return RetrainRequest(project="flights", model_name="delay", drift=drift, source="gs://raw", spec=RetrainSpec())


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ENDPOINT, RUN_ID):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server(kfp_server: KfpServer, monkeypatch: pytest.MonkeyPatch) -> KfpServer:
    """A server that has the training pipeline."""
    monkeypatch.setenv(ENDPOINT, kfp_server.endpoint)
    api = KfpApi.connect()
    api.upload_version(api.pipeline("flights-training").id, SPEC)
    return kfp_server


SPEC = """
pipelineInfo: {name: flights-training}
root:
  dag: {tasks: {}}
  inputDefinitions:
    parameters:
      store: {parameterType: STRING}
      source: {parameterType: STRING}
schemaVersion: 2.1.0
sdkVersion: kfp-2.17.0
"""


@pytest.mark.parametrize(
    ("on", "drift", "age", "asks"),
    [
        (("drift", "decay"), _drift_report(), 99, ""),
        (("drift", "decay"), _drift_report("decay", "drift"), 0, "decay+drift"),
        (("decay",), _drift_report("drift"), 99, ""),
        ((), _drift_report("decay"), 99, ""),
        (("schedule",), _drift_report(), 29.9, ""),
        (("schedule",), _drift_report(), 30, "schedule"),
        (("volume",), _drift_report(), 0, ""),
        (("volume",), _drift_report(**{"labelled rows after the last train row": 100_000}), 0, "volume"),
    ],
)
def test_a_new_model_is_due_by_what_the_project_names(on: Any, drift: Any, age: float, asks: str) -> None:
    result, why = due(RetrainSpec(on=on), drift, age)
    assert result == asks and bool(why) == bool(asks)


def test_cool_down_and_budget_hold_orders_back() -> None:
    spec, now = RetrainSpec(cool_down_days=7, budget=2, budget_days=30), 100 * DAY
    before = [Order(str(day), "run", MODEL, (), {}, day * DAY) for day in (75, 95)]
    assert "given 5.0 days ago" in held_back(spec, before, now)
    assert "2 orders were given in the last 30 days; the budget is 2" in held_back(spec, before, now + 3 * DAY)
    assert held_back(spec, before, now + 6 * DAY) == held_back(spec, [], now) == ""


def test_without_a_server_the_order_waits_and_is_given_once(store: ArtifactStore) -> None:
    first = retrain(_request(store, "drift"), store)
    assert first.action == "ordered" and first.run == f"flights-training-{first.cause[:12]}"
    (order,) = Orders(store, "delay").all()
    assert order.parameters == {"source": "gs://raw"} and order.reasons == ("drift was found",)
    # Another day, and the order still waits: it comes first.
    assert retrain(_request(store, "drift", to="2013-12-01"), store) == first
    Orders(store, "delay").record(first.cause, "ended", exit_code=0)
    assert retrain(_request(store, "drift"), store).action == "done"
    other = retrain(_request(store, "drift", model=str(store.publish("models", "delay", {"a": "2"}))), store)
    assert other.action == "held back" and other.cause != first.cause, "another champion is another cause"
    kept = retrain(_request(store, "drift", to="2013-12-01"), store)
    assert kept.action == "held back" and kept.cause != first.cause and "cool_down_days" in kept.reasons[0]
    assert first.summary == f"{first.run} is ordered: drift was found"
    assert kept.summary == f"held back: {kept.reasons[0]}" and "no new model is ordered" in kept.warnings[0]


def test_a_server_gets_one_run_however_often_it_is_asked(store: ArtifactStore, server: KfpServer) -> None:
    first = retrain(_request(store, "decay"), store)
    assert first.action == "submitted" and retrain(_request(store, "decay"), store) == first
    (run,) = KfpApi.connect().runs()
    assert run.name == first.run
    assert run.parameters == {"store": store.address, "source": "gs://raw"}


def test_a_training_is_submitted_as_the_platform_says(store: ArtifactStore, server: KfpServer) -> None:
    """Someone uploaded another version meanwhile, as from a branch: it is not the one that monitoring orders."""
    api, (ours,) = KfpApi.connect(), server.objects.pipeline_versions.values()
    api.upload_version(ours["pipeline_id"], SPEC.replace("source", "branch"))
    plugins = {"mlflow": {"experiment_name": "flights"}}
    submission = SubmissionSpec(
        version=ours["name"], experiment="team", service_account="trainer", plugins_input=plugins
    )
    request = _request(store, "decay").model_copy(update={"submission": submission})
    assert retrain(request, store).action == "submitted"
    (run,) = server.objects.runs.values()
    assert (run["service_account"], run["plugins_input"]) == ("trainer", plugins)
    assert run["experiment_id"] == api.experiment("team").id
    assert run["pipeline_version_reference"]["pipeline_version_id"] == ours["pipeline_version_id"]


def test_a_server_without_the_version_that_is_asked_keeps_the_order(store: ArtifactStore, server: KfpServer) -> None:
    submission = SubmissionSpec(version="sha256-0")
    request = _request(store, "decay").model_copy(update={"submission": submission})
    with pytest.raises(ConfigurationError, match="sha256-0"):
        retrain.function(request, store)
    assert not server.objects.runs and len(Orders(store, "delay").all()) == 1


def test_a_server_without_the_pipeline_keeps_the_order(
    store: ArtifactStore, kfp_server: KfpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT, kfp_server.endpoint)
    monkeypatch.setenv(RUN_ID, "one")
    with pytest.raises(ConfigurationError, match=r"no pipeline flights-training with a version.*the order is kept"):
        retrain.function(_request(store, "decay"), store)
    api = KfpApi.connect()
    api.upload_version(api.pipeline("flights-training").id, SPEC)
    assert retrain(_request(store, "decay"), store).action == "submitted"


class _KilledError(BaseException):
    """Ends a task as a kill does: nothing behind it runs."""


@pytest.mark.parametrize("point", ["order", "submitting", "created", "submitted"])
def test_killed_at_any_step_the_repeat_ends_with_one_run(
    store: ArtifactStore, server: KfpServer, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv(RUN_ID, "one")
    kept, created = Orders.record, KfpApi.create_run

    def noting(self: Orders, cause: str, what: str, **body: Any) -> bool:
        if point == "order" and what == "submitting":
            raise _KilledError
        done = kept(self, cause, what, **body)
        if point == what:
            raise _KilledError
        return done

    def creating(self: KfpApi, *arguments: Any, **named: Any) -> Any:
        run = created(self, *arguments, **named)
        if point == "created":
            raise _KilledError
        return run

    with monkeypatch.context() as patch:
        patch.setattr(Orders, "record", noting)
        patch.setattr(KfpApi, "create_run", creating)
        with pytest.raises(_KilledError):
            retrain.function(_request(store, "decay"), store)
    again = retrain.function(_request(store, "decay"), store)
    assert again.action == "submitted" and len(list(KfpApi.connect().runs())) == 1
    assert len(Orders(store, "delay").all()) == 1


def test_where_another_task_was_killed_while_it_submitted_this_one_waits_and_then_goes_on(
    store: ArtifactStore, server: KfpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(RUN_ID, "one")
        patch.setattr(retraining_stage, "_submit", lambda *_: None)
        retrain.function(_request(store, "decay"), store)
    monkeypatch.setenv(RUN_ID, "two")
    late = retrain.function(_request(store, "decay"), store)
    assert late.action == "under way" and f"{late.run} is submitted by another task" in late.summary
    monkeypatch.setattr(causes, "SUBMITTING_LAPSES", -1.0)
    assert retrain.function(_request(store, "decay"), store).action == "submitted"
    assert len(list(KfpApi.connect().runs())) == 1


def test_two_at_once_give_one_order_and_one_run(store: ArtifactStore, server: KfpServer) -> None:
    request, result = _request(store, "decay"), list[RetrainResult]()
    start = threading.Barrier(4)

    def ask() -> None:
        start.wait()
        result.append(retrain.function(request, store))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(result) == 4 and {entry.action for entry in result} <= {"submitted", "under way"}
    assert len({entry.cause for entry in result}) == len(Orders(store, "delay").all()) == 1
    assert len(list(KfpApi.connect().runs())) == 1


@pytest.mark.parametrize("place", ["here", "on a cluster"])
def test_a_cause_whose_training_failed_is_ordered_again_within_the_limits(
    store: ArtifactStore, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    if place != "here":
        request.getfixturevalue("server")
    asked, orders = _request(store, "decay"), Orders(store, "delay")
    first = retrain.function(asked, store)
    if place == "here":
        orders.record(first.cause, "ended", run="flights-training.1", exit_code=2)
    else:
        (run,) = KfpApi.connect().runs()
        store.record(f"runs/{run.id}/end.json", {"state": "failed", "last": time.time()})
    kept = retrain.function(asked, store)
    assert kept.action == "held back" and "cool_down_days" in kept.summary
    free = asked.model_copy(update={"spec": RetrainSpec(cool_down_days=0)})
    again = retrain.function(free, store)
    assert again.action == first.action and again.run != first.run and "failed" in again.reasons[-1]
    assert retrain.function(free, store) == again and len(orders.all()) == 2
    orders.record(again.cause, "ended", run="flights-training.2", exit_code=0)
    assert retrain.function(free, store).action == "done"


def test_an_order_that_another_process_came_before_names_each_failure_once(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, orders, create = _request(store, "decay"), Orders(store, "delay"), causes.create_record
    orders.record(retrain.function(asked, store).cause, "ended", run="flights-training.1", exit_code=2)

    def late(objects: Any, key: str, body: dict[str, Any]) -> bool:
        if "/orders/" in key and len(orders.all()) == 1:
            create(objects, key, body | {"cause": "another"})
        return create(objects, key, body)

    monkeypatch.setattr(causes, "create_record", late)
    again = retrain.function(asked.model_copy(update={"spec": RetrainSpec(cool_down_days=0)}), store)
    assert len(orders.all()) == 3 and len(again.reasons) == 2


def test_a_window_of_the_past_orders_nothing_and_takes_up_no_order(store: ArtifactStore) -> None:
    retrain.function(_request(store, "decay"), store)
    past = _request(store, "drift").model_copy(update={"until": "2013-12-01T00:00:00Z"})
    result = retrain.function(past, store)
    assert result.action == "nothing" and "orders no training" in result.reasons[0]
    assert len(Orders(store, "delay").all()) == 1


def _take(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, run: str) -> None:
    monkeypatch.setenv(RUN_ID, run)
    Orders(store, "delay").claim("abc")


def test_the_first_stage_of_a_training_finds_its_order_by_its_run_and_claims_it(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, preparation = Orders(store, "delay"), PrepareRequest(model_name="delay")
    for cause in ("abc", "def"):
        orders.create(
            lambda _, cause=cause: Order(cause, f"flights-training-{cause}", MODEL, (cause,), {}, time.time())
        )
    orders.record("def", "submitted", kfp_run="0c5e")

    def ordered(run: str, request: PrepareRequest = preparation) -> tuple[str, ...]:
        monkeypatch.setenv(RUN_ID, run)
        return prepare.function(request, store).ordered

    assert ordered("flights-training-abc.2") == ("abc",) and ordered("0c5e") == ("def",)
    assert ordered("somebody's own") == ordered("") == ordered("0c5e", PrepareRequest()) == ()
    assert orders.attempts("abc") == ["flights-training-abc.2"] and orders.attempts("def") == ["0c5e"]
    with pytest.raises(CauseTakenError, match=r"flights-training-abc\.2 trains for the cause abc"):
        ordered("flights-training-abc.1")


def test_an_order_is_claimed_for_one_run(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        _take(store, monkeypatch, "one")
    with pytest.raises(CauseTakenError, match="one trains for the cause"):
        _take(store, monkeypatch, "two")
    monkeypatch.setenv(RUN_ID, "one")
    Attempt(store, "train").note("failed")  # KFP may try the task again.
    with pytest.raises(CauseTakenError):
        _take(store, monkeypatch, "two")
    end = {"state": "failed", "last": time.time()}
    store.record("runs/one/end.json", end)
    monkeypatch.setenv(RUN_ID, "one")
    Attempt(store, "train")  # Somebody retried the run in KFP, after its end.
    with pytest.raises(CauseTakenError):
        _take(store, monkeypatch, "two")
    store.record("runs/one/end.2.json", end | {"last": time.time()})
    _take(store, monkeypatch, "two")
    with pytest.raises(CauseTakenError, match="two trains"):
        _take(store, monkeypatch, "three")
    assert Orders(store, "delay").attempts("abc") == ["one", "two"]


def test_a_run_that_gave_no_sign_for_long_may_be_followed(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _take(store, monkeypatch, "one")
    Attempt(store, "train")
    with pytest.raises(CauseTakenError):
        _take(store, monkeypatch, "two")
    monkeypatch.setattr(causes, "TRAINING_LAPSES", -1.0)
    _take(store, monkeypatch, "two")
    store.record("runs/two/end.json", {"state": "succeeded", "last": time.time()})
    with pytest.raises(CauseTakenError):
        _take(store, monkeypatch, "three")


def test_attempts_on_one_machine_follow_each_other(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    _take(store, monkeypatch, "flights-training-abc.1")
    _take(store, monkeypatch, "flights-training-abc.2")
    for run in ("flights-training-abc.1b", "other.3"):
        with pytest.raises(CauseTakenError):
            _take(store, monkeypatch, run)


def test_two_runs_that_claim_at_once_are_told_apart(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    create = causes.create_record

    def late(objects: Any, key: str, body: Any) -> bool:
        if "training-001" in key and body["run"] == "two":
            create(objects, key, body | {"run": "one"})
        return create(objects, key, body)

    monkeypatch.setattr(causes, "create_record", late)
    with pytest.raises(CauseTakenError, match="one trains"):
        _take(store, monkeypatch, "two")
