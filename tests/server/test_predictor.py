"""The predictor server: the protocol's answers, the batch's bits, features read by keys, and wrong requests."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
import torch

from gatehouse.errors import ConfigurationError, PredictionError
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.evaluation.stage import EvaluateRequest, evaluate
from gatehouse.features.definitions.repository import read_repository
from gatehouse.monitoring.scoring import ScoreRequest, score
from gatehouse.online.materialization import materialize_views
from gatehouse.online.store import online_view, open_online, sqlite_file
from gatehouse.registry.alias import Resolver
from gatehouse.server import inference
from gatehouse.server.access import Access, Rate
from gatehouse.server.inference import Online, ServedModel
from gatehouse.server.predictor import Following, create_app
from gatehouse.server.problems import status_of
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore
from gatehouse.training.calibration.spec import CalibrationSpec
from gatehouse.training.calibration.stage import CalibrateRequest, calibrate
from gatehouse.training.models import build_model
from gatehouse.training.scoring.predictor import Predictor
from gatehouse.training.transformation.fitting import fit
from tests.evaluation.candidates import publish_model
from tests.features import shops
from tests.registry.gate import NAME, Gate, make_gate
from tests.server.serving import client, serving
from tests.training.specs import architecture, network
from tests.training.synthetic import CATEGORICAL, NUMERIC, publish_split, publish_training_set, table

FEATURES = [*NUMERIC, *CATEGORICAL]
ROWS = table(150)


def tensors(rows: pa.Table, kinds: dict[str, str]) -> list[dict[str, Any]]:
    """The inputs of a request for rows."""
    return [
        {"name": name, "datatype": kind, "shape": [rows.num_rows], "data": rows[name].to_pylist()}
        for name, kind in kinds.items()
    ]


KINDS = dict.fromkeys(NUMERIC, "FP64") | dict.fromkeys(CATEGORICAL, "BYTES")


def infer(address: str, inputs: list[dict[str, Any]], expected: int = 200, **body: Any) -> Any:
    """What the server answers to inputs."""
    sent = json.dumps({"inputs": inputs} | body)  # `requests` itself sends no NaN.
    found = requests.post(f"{address}/v2/models/delays/infer", data=sent, timeout=60)
    assert found.status_code == expected, found.text
    return found.json() if expected == 200 else found.json()["error"]


def data(answer: Any) -> dict[str, Any]:
    """Values by output."""
    return {each["name"]: each["data"] for each in answer["outputs"]}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[ArtifactStore, ServedModel, pa.Table]:
    """A network with the batch that it scored."""
    store = ArtifactStore.open(tmp_path_factory.mktemp("served"))
    rows = ROWS.append_column("at", pa.array(range(ROWS.num_rows)))
    training_set = publish_training_set(store, rows, decision_time="at", task="binary")
    model = publish_model(store, training_set, publish_split(store, training_set, train=range(100)), steps=2)
    batch = score(ScoreRequest(model=model, rows=training_set, version=4), store)
    served = ServedModel("delays", "4", model, Predictor.load(store, model))
    return store, served, pq.read_table(store.paths(batch.predictions))


@pytest.fixture(scope="module")
def address(published: tuple[ArtifactStore, ServedModel, pa.Table]) -> Iterator[str]:
    with serving(create_app(Following(published[1]))) as address:
        yield address


def test_answers_are_the_batch_to_the_bit_alone_and_together(
    address: str, published: tuple[ArtifactStore, ServedModel, pa.Table]
) -> None:
    batch = published[2]
    together = data(infer(address, tensors(ROWS, KINDS)))
    assert together == {name: batch[name].to_pylist() for name in ("probability", "positive")}
    for place in range(0, ROWS.num_rows, 15):
        alone = data(infer(address, tensors(ROWS.slice(place, 1), KINDS)))
        assert alone["probability"] == [batch["probability"][place].as_py()]


@pytest.mark.parametrize("loss", ["binary", "multiclass", "regression"])
def test_trees_answer_as_their_batch(loss: str) -> None:
    import xgboost

    from gatehouse.training.scoring.trees import columns

    transformation = fit(ROWS, NUMERIC, CATEGORICAL)
    outputs = 2 if loss == "multiclass" else 1
    described = {"model": {"architecture": "xgboost"}, "loss": "mse" if loss == "regression" else loss}
    arrays = columns(*transformation.apply(ROWS))
    types = ["q"] * transformation.width + ["c"] * len(transformation.categorical)
    matrix = xgboost.DMatrix(arrays, ROWS["label"].to_numpy(), feature_types=types, enable_categorical=True)
    objective = {"binary": "binary:logistic", "multiclass": "multi:softprob", "regression": "reg:squarederror"}[loss]
    settings: dict[str, Any] = {"objective": objective} | ({"num_class": outputs} if outputs > 1 else {})
    booster = xgboost.train(settings, matrix, 3)
    predictor = Predictor({"architecture": described, "transformation": transformation.to_json()}, booster)
    batch = predictor.predict(ROWS)
    model = ServedModel("delays", "1", "", predictor, ("early", "late") if outputs > 1 else ())
    name = {"binary": "probability", "multiclass": "probabilities", "regression": "prediction"}[loss]
    for rows, expected in ((ROWS, batch), (ROWS.slice(7, 1), batch[7:8])):
        answer = model.infer(inference.Inference.model_validate({"inputs": tensors(rows, KINDS)}))
        (found,) = (each for each in answer["outputs"] if each["name"] == name)
        assert found["shape"] == list(expected.shape) and found["data"] == expected.reshape(-1).tolist()
        if outputs > 1:
            assert data(answer)["class"] == [("early", "late")[each] for each in expected.argmax(axis=1)]


def test_a_model_that_gives_no_numbers_answers_nothing(store: ArtifactStore) -> None:
    training_set = publish_training_set(store, ROWS, task="binary")
    split = publish_split(store, training_set, train=range(100))
    model = publish_model(store, training_set, split, steps=2, broken=True)
    served = ServedModel("delays", "4", model, Predictor.load(store, model))
    with pytest.raises(PredictionError, match="for 2 of 2 rows that it scored together, such as nan") as raised:
        served.infer(inference.Inference.model_validate({"inputs": tensors(ROWS.slice(0, 2), KINDS)}))
    assert status_of(raised.value) == 500


def test_it_says_what_it_is_takes_and_gives(address: str) -> None:
    def get(path: str, expected: int = 200) -> Any:
        found = requests.get(address + path, timeout=60)
        assert found.status_code == expected
        return found.json()

    assert get("/v2")["name"] == "gatehouse"
    assert get("/v2/health/live")["live"] is True and get("/v2/health/ready")["ready"] is True
    for path in ("/v2/models/delays", "/v2/models/delays/versions/4"):
        described = get(path)
        assert described["versions"] == ["4"] and described["name"] == "delays"
        assert {each["name"]: each["datatype"] for each in described["inputs"]} == KINDS
        assert described["outputs"] == [
            {"name": "probability", "datatype": "FP64", "shape": [-1]},
            {"name": "positive", "datatype": "BOOL", "shape": [-1]},
        ]
        assert get(f"{path}/ready") == {"ready": True, "name": "delays"}
    assert get("/v2/models/others", 404)["error"] == "Expected the model delays, version 4, found others."
    assert "found delays:5" in get("/v2/models/delays/versions/5/ready", 404)["error"]
    assert 'route="/v2/models/{name}"' in requests.get(f"{address}/metrics", timeout=60).text


def test_a_request_may_name_its_outputs_and_itself_and_send_columns(address: str) -> None:
    inputs = tensors(ROWS.slice(0, 3), KINDS)
    for each in inputs:
        each |= {"shape": [3, 1], "data": [[value] for value in each["data"]]}
    answer = infer(address, inputs, id="a7", outputs=[{"name": "positive"}])
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("a7", "delays", "4")
    assert [(each["name"], each["shape"]) for each in answer["outputs"]] == [("positive", [3])]


def test_whole_and_missing_numbers_are_taken(address: str) -> None:
    inputs = tensors(ROWS.slice(0, 1), KINDS)
    inputs[0] |= {"datatype": "INT64", "data": [900]}
    whole = infer(address, inputs)
    inputs[0] |= {"datatype": "FP64", "data": [900.0]}
    assert data(infer(address, inputs)) == data(whole)
    inputs[0] |= {"data": [None]}
    assert data(infer(address, inputs)) != data(whole)


@pytest.mark.parametrize(
    ("place", "change", "told"),
    [
        (0, {"name": "width"}, "missing distance, unknown width"),
        (0, {"name": "wind"}, "inputs: expected each once"),
        (3, {"datatype": "FP64", "data": [1.0, 2.0]}, "input carrier: expected datatype BYTES, found FP64"),
        (1, {"datatype": "BYTES", "data": ["a", "b"]}, "input wind: expected datatype FP64, found BYTES"),
        (1, {"datatype": "BOOL", "data": [True, False]}, "input wind: expected datatype FP64, found BOOL"),
        (1, {"data": [1.0, True]}, "input wind, datatype FP64, data[1]: "),
        (1, {"data": [1.0, float("nan")]}, "input wind, datatype FP64, data[1]: "),
        (1, {"datatype": "FP32", "data": [1.0, 1e39]}, "input wind, datatype FP32, data[1]: "),
        (1, {"datatype": "INT8", "data": [300, 1]}, "input wind, datatype INT8, data[0]: "),
        (1, {"datatype": "INT64", "data": [2.0, 2.9]}, "input wind, datatype INT64, data[1]: "),
        (1, {"datatype": "INT64", "data": [1, 2**53 + 1]}, "input wind, datatype FP64, data[1]: "),
        (1, {"datatype": "UINT8", "data": [1, -0.5]}, "input wind, datatype UINT8, data[1]: "),
        (3, {"data": ["AA", 7]}, "input carrier, datatype BYTES, data[1]: "),
        (1, {"data": [1.0]}, "shape [2] or [2, 1]; found shape [2] and 1 values"),
        (2, {"shape": [1, 2]}, "input delay_rate: expected a value for each of the 2 rows of distance"),
        (1, {"datatype": "FP16"}, "inputs.1.datatype"),
    ],
)
def test_a_wrong_input_is_named_with_what_was_expected(
    address: str, place: int, change: dict[str, Any], told: str
) -> None:
    inputs = tensors(ROWS.slice(0, 2), KINDS)
    inputs[place] |= change
    assert told in infer(address, inputs, 400)


def test_a_request_without_rows_or_of_an_unknown_output_is_named(address: str) -> None:
    assert "at least one" in infer(address, tensors(ROWS.slice(0, 0), KINDS), 400)
    wanted = [{"name": "margin"}]
    assert "expected probability, positive, found margin" in infer(
        address, tensors(ROWS.slice(0, 1), KINDS), 400, outputs=wanted
    )
    assert "inputs" in infer(address, [], 400)
    sent = requests.post(f"{address}/v2/models/delays/infer", data=b" " * (16 * 1024 * 1024 + 1), timeout=60)
    assert sent.status_code == 413 and "at most 16,777,216 bytes" in sent.json()["error"]


def test_with_keys_alone_features_are_read_and_scored_as_the_batch(tmp_path: Path, store: ArtifactStore) -> None:
    rows, details, sales = shops.retrieved(store, tmp_path, "both")
    (training_set,) = store.references("training-sets", "both")
    fitted = fit(rows, details["numeric"], details["categorical"])
    described = architecture(network(hidden=(9, 5)), fitted.width, [each.cardinality for each in fitted.categorical])
    torch.manual_seed(2)
    weights = build_model(described).state_dict()
    predictor = Predictor({"architecture": described, "transformation": fitted.to_json()}, weights)
    model = str(store.publish("models", "delays", {"x": b"x"}, derived_from={"training_set": training_set}))
    with pytest.raises(ConfigurationError, match="The online store has no values of sales"):
        Online.of_model(store, model)
    repository = read_repository(shops.write_repository(tmp_path / "repo"))
    views = [online_view(repository.views["sales"])]
    online = open_online(store, "shops", repository.folder)
    materialize_views(online, views, {"sales": [*sales.values()]}, shops.AS_OF)
    read = replace(Online.of_model(store, model), now=lambda: shops.AS_OF)
    served = ServedModel("delays", "1", model, predictor, online=read)
    kinds = {"shop": "INT64", "amount": "FP64", "currency": "BYTES"}
    assert {each.name: each.datatype for each in read.inputs} == kinds
    batch = predictor.predict(rows)
    with serving(create_app(Following(served))) as address:
        assert data(infer(address, tensors(rows, kinds)))["probability"] == batch.tolist()
        assert data(infer(address, tensors(rows.slice(9, 1), kinds)))["probability"] == [batch[9]]
        for datatype, key in (("INT64", 1.7), ("FP64", 1.7), ("FP64", 2.0**53), ("INT64", True), ("INT64", "1")):
            inputs = tensors(rows.slice(9, 1), kinds)
            inputs[0] |= {"datatype": datatype, "data": [key]}
            told = infer(address, inputs, 400)
            assert told.startswith("input shop, datatype INT64, data[0]: ") and repr(key) in told
        inputs[0] |= {"datatype": "FP64", "data": [float(rows["shop"][9].as_py())]}
        assert data(infer(address, inputs))["probability"] == [batch[9]]
        assert "or the keys shop, amount, currency alone" in infer(address, tensors(rows, {"shop": "INT64"}), 400)
        sqlite_file(store, "shops").write_bytes(b"no database")
        found = requests.get(f"{address}/v2/health/ready", timeout=60)
        assert found.status_code == 503 and found.json()["error"]


def test_an_alias_is_served_as_the_version_that_holds_it(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)
    monkeypatch.setattr(Predictor, "load", lambda store, model: model)
    gate = make_gate(store)
    gate.run(gate.model(1))
    served = ServedModel.of(store, f"{NAME}@champion", online=False)
    assert (served.name, served.version, str(served.predictor)) == (NAME, "1", gate.model(1))
    with pytest.raises(ConfigurationError, match="found 'delays', which names no version"):
        ServedModel.of(store, NAME, online=False)
    with pytest.raises(ConfigurationError, match="delays@canary: no version is canary now; expected delays@champion"):
        ServedModel.of(store, f"{NAME}@canary", online=False)


def in_bytes(inputs: list[dict[str, Any]], **asked: Any) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a request with all inputs as bytes."""
    heads, blobs = [], []
    for each in inputs:
        values = each["data"]
        if each["datatype"] == "BYTES":
            texts = [value.encode() for value in values]
            blobs.append(b"".join(len(text).to_bytes(4, "little") + text for text in texts))
        else:
            blobs.append(np.array(values, "<f8").tobytes())
        head = {name: value for name, value in each.items() if name != "data"}
        heads.append(head | {"parameters": {"binary_data_size": len(blobs[-1])}})
    told = json.dumps({"inputs": heads} | asked).encode()
    return b"".join([told, *blobs]), {"Inference-Header-Content-Length": str(len(told))}


def test_tensors_as_bytes_are_scored_and_answered_as_those_in_json(address: str) -> None:
    rows = ROWS.slice(0, 20)
    inputs = tensors(rows, KINDS)
    inputs[0]["data"][3] = None
    expected = data(infer(address, inputs))
    inputs[0]["data"][3] = float("nan")
    url = f"{address}/v2/models/delays/infer"
    one = [{"name": "positive", "parameters": {"binary_data": True}}, {"name": "probability"}]
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({}, set()),
        ({"parameters": {"binary_data_output": True}}, {"probability", "positive"}),
        ({"outputs": one}, {"positive"}),
    ]
    for asked, binary in cases:
        body, headers = in_bytes(inputs, **asked)
        answer = requests.post(url, data=body, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        at = int(answer.headers.get("Inference-Header-Content-Length", len(answer.content)))
        found = {}
        for output in json.loads(answer.content[:at])["outputs"]:
            assert ("data" not in output) is (output["name"] in binary)
            if output["name"] not in binary:
                found[output["name"]] = output["data"]
                continue
            size = output["parameters"]["binary_data_size"]
            kind = {"FP64": "<f8", "BOOL": "?"}[output["datatype"]]
            found[output["name"]] = np.frombuffer(answer.content[at : at + size], kind).tolist()
            at += size
        assert at == len(answer.content)
        assert found == expected


@pytest.mark.parametrize(
    "body", [b'{"inputs": null}', b'{"inputs": 5}', b'{"inputs": true}', b"[]", b"5", b"[" * 200_000]
)
def test_a_body_of_another_shape_is_a_wrong_request(address: str, body: bytes) -> None:
    answer = requests.post(f"{address}/v2/models/delays/infer", data=body, timeout=60)
    assert (answer.status_code, bool(answer.json()["error"])) == (400, True), answer.text


@pytest.mark.parametrize(
    ("change", "length", "told"),
    [
        (lambda body: body[:-1], None, "expected 14 bytes, found 13"),
        (lambda body: body + b"x", None, "as binary_data_size of the inputs say"),
        (lambda body: body, "99999999", "Inference-Header-Content-Length: expected at most"),
        (lambda body: body, "7", "body: expected JSON"),
        (lambda body: body.replace(b'"FP64"', b'"FP16"', 1), None, "expected a datatype of BOOL"),
        (lambda body: body.replace(b'"FP64"', b'"BOOL"', 1), None, "a byte of a bool is 0 or 1"),
        (lambda body: body.replace(b'"shape"', b'"data": [], "shape"', 1), None, "expected data, or binary_data_size"),
    ],
)
def test_bytes_that_are_not_what_the_request_says_are_named(
    address: str, change: Callable[[bytes], bytes], length: str | None, told: str
) -> None:
    body, headers = in_bytes(tensors(ROWS.slice(0, 2), KINDS))
    head = int(headers["Inference-Header-Content-Length"])
    changed = change(body)
    inside = change(body[:head]) if len(changed) - len(body) not in (-1, 1) else body[:head]
    given = {"Inference-Header-Content-Length": length or str(len(inside))}
    answer = requests.post(f"{address}/v2/models/delays/infer", data=changed, headers=given, timeout=60)
    assert (answer.status_code, told in answer.json()["error"]) == (400, True), answer.text


def test_where_tokens_are_asked_for_only_their_holders_are_answered(
    published: tuple[ArtifactStore, ServedModel, pa.Table],
) -> None:
    store, served, _ = published
    reader = client(store, "", "ros", "read")
    body = {"inputs": tensors(ROWS.slice(0, 1), KINDS)}
    with serving(create_app(Following(served), Access(store, Rate(1000, 2)))) as address:
        reader.address = address
        for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/delays/ready", "/metrics"):
            assert requests.get(address + path, timeout=60).status_code == 200, path
        for headers in ({}, {"Authorization": "Bearer gatehouse_x"}):
            url = f"{address}/v2/models/delays"
            for answer in (
                requests.get(url, headers=headers, timeout=60),
                requests.post(f"{url}/infer", json=body, headers=headers, timeout=60),
            ):
                assert answer.status_code == 401 and "Expected a token" in answer.json()["error"]
        assert reader.post("/v2/models/delays/infer", **body).status_code == 200
        assert reader.get("/v2/models/delays").json()["name"] == "delays"


def test_a_moved_alias_is_followed_and_no_answer_is_half_of_two_versions(
    published: tuple[ArtifactStore, ServedModel, pa.Table],
) -> None:
    _, first, _ = published
    described = first.predictor.description
    other = Predictor(described, build_model(described["architecture"]).state_dict())
    models = {"4": first, "5": replace(first, version="5", predictor=other)}
    expected = {version: each.predictor.predict(ROWS).tolist() for version, each in models.items()}
    assert expected["4"] != expected["5"]
    held = ["4"]
    followed = Following(first, lambda present: models[held[0]], seconds=0.001)
    seen: set[str] = set()

    def ask(_: int) -> None:
        answer = infer(address, tensors(ROWS, KINDS))
        assert data(answer)["probability"] == expected[answer["model_version"]]
        seen.add(answer["model_version"])

    with serving(create_app(followed)) as address, ThreadPoolExecutor(4) as threads:
        for _ in range(500):
            if len(seen) == 2:
                break
            held[0] = "5" if held[0] == "4" else "4"
            list(threads.map(ask, range(8)))
    assert seen == {"4", "5"}


def test_where_the_next_model_cannot_be_loaded_the_present_one_is_served_on(
    published: tuple[ArtifactStore, ServedModel, pa.Table], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(present: ServedModel) -> ServedModel:
        raise ConfigurationError("no version is champion now")

    followed = Following(published[1], fail)
    followed.look()
    assert followed.model is published[1]
    assert "delays:4 is served on" in caplog.text and "no version is champion now" in caplog.text


def test_a_calibrated_model_becomes_champion_and_is_served_with_the_probabilities_of_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)
    monkeypatch.setenv(RUN_ID, "r")
    store = ArtifactStore.open(tmp_path)
    rows = ROWS.append_column("at", pa.array(range(ROWS.num_rows)))
    snapshot = str(store.publish("snapshots", "raw", {"tables.json": "{}"}))
    training_set = publish_training_set(store, rows, snapshot=snapshot, decision_time="at", task="binary")
    parts = {"train": range(60), "validation": range(60, 120), "test": range(120, 150)}
    split = publish_split(store, training_set, **parts)
    trained = publish_model(store, training_set, split, steps=2)
    asked = CalibrateRequest(
        model=trained, training_set=training_set, split=split, spec=CalibrationSpec(method="platt", min_rows=60)
    )
    model = calibrate(asked, store).model
    gate = Gate(store, training_set, split)
    gate.say_how_it_was_made(trained)
    lenient = GatePolicy.model_validate(
        {"must_beat_baseline": [], "leakage_alarm": {}, "slices": {}, "least_test_rows": 30, "least_rarer_rows": 1}
        | {"better_than_guessing": None}
    )
    judged = EvaluateRequest(
        model=model,
        champion=gate.resolve(model, lenient),
        training_set=training_set,
        split=split,
        spec=EvaluationSpec(bootstrap_samples=20),
        policy=lenient,
    )
    assert gate.register(model, evaluate(judged, store).evaluation, lenient).decision == "approved"
    batch = pq.read_table(store.paths(score(ScoreRequest(model=model, rows=training_set), store).predictions))
    served = ServedModel.of(store, f"{NAME}@champion", online=False)
    assert (served.version, served.model) == ("1", model)
    resolved = Resolver(str(tmp_path), NAME, tmp_path / "resolved").resolve("champion").path
    assert (resolved / "calibration.json").read_text() == store.path(model, "calibration.json").read_text()
    answer = served.infer(inference.Inference.model_validate({"inputs": tensors(ROWS, KINDS)}))
    assert data(answer)["probability"] == batch["probability"].to_pylist()
    assert data(answer)["probability"] == Predictor.load(store, model).predict(ROWS).tolist()
    assert data(answer)["probability"] != Predictor.load(store, trained).predict(ROWS).tolist()
