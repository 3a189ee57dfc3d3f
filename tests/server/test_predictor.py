"""The predictor server: the protocol's answers, the batch's bits, features read by keys, and wrong requests."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
import torch

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.repository import read_repository
from gatehouse.monitoring.scoring_stage import ScoreRequest, score
from gatehouse.online.materialization import materialize_views
from gatehouse.online.serving import open_online, sqlite_file
from gatehouse.online.store import online_view
from gatehouse.server import inference
from gatehouse.server.access import Access, Rate
from gatehouse.server.inference import Online, ServedModel
from gatehouse.server.predictor import Following, create_app
from gatehouse.server.traffic import Traffic
from gatehouse.store.store import ArtifactStore
from gatehouse.training.models import build_model
from gatehouse.training.predictor import Predictor
from gatehouse.training.transformation import fit
from tests.evaluation.candidates import publish_model
from tests.features import shops
from tests.server.serving import client, serving
from tests.training.specs import architecture, network
from tests.training.synthetic import CATEGORICAL, NUMERIC, publish_split, publish_training_set, table

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
    result = requests.post(f"{address}/v2/models/delays/infer", data=sent, timeout=60)
    assert result.status_code == expected, result.text
    return result.json() if expected == 200 else result.json()["error"]


def data(answer: Any) -> dict[str, Any]:
    """Values by output."""
    return {item["name"]: item["data"] for item in answer["outputs"]}


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
    with serving(create_app(Following(Traffic(published[1])))) as address:
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

    from gatehouse.training.predictor import tree_columns

    transformation = fit(ROWS, NUMERIC, CATEGORICAL)
    outputs = 2 if loss == "multiclass" else 1
    described = {"model": {"architecture": "xgboost"}, "loss": "mse" if loss == "regression" else loss}
    arrays = tree_columns(*transformation.apply(ROWS))
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
        request = inference.Inference.model_validate({"inputs": tensors(rows, KINDS)})
        answer = model.answer(request, model.score(model.read(request.inputs)))
        (result,) = (output for output in answer["outputs"] if output["name"] == name)
        assert result["shape"] == list(expected.shape) and result["data"] == expected.reshape(-1).tolist()
        if outputs > 1:
            assert data(answer)["class"] == [("early", "late")[item] for item in expected.argmax(axis=1)]


def test_it_says_what_it_is_takes_and_gives(address: str) -> None:
    def get(path: str, expected: int = 200) -> Any:
        result = requests.get(address + path, timeout=60)
        assert result.status_code == expected
        return result.json()

    assert get("/v2")["name"] == "gatehouse"
    assert get("/v2/health/live")["live"] is True and get("/v2/health/ready")["ready"] is True
    for path in ("/v2/models/delays", "/v2/models/delays/versions/4"):
        described = get(path)
        assert described["versions"] == ["4"] and described["name"] == "delays"
        assert {item["name"]: item["datatype"] for item in described["inputs"]} == KINDS
        assert described["outputs"] == [
            {"name": "probability", "datatype": "FP64", "shape": [-1]},
            {"name": "positive", "datatype": "BOOL", "shape": [-1]},
        ]
        assert get(f"{path}/ready") == {"ready": True, "name": "delays", "version": "4"}
    assert get("/v2/models/others", 404)["error"] == "Expected the model delays, version 4, found others."
    assert "found delays:5" in get("/v2/models/delays/versions/5/ready", 404)["error"]
    assert 'route="/v2/models/{name}"' in requests.get(f"{address}/metrics", timeout=60).text


@pytest.mark.parametrize(
    ("place", "change", "message"),
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
    address: str, place: int, change: dict[str, Any], message: str
) -> None:
    inputs = tensors(ROWS.slice(0, 2), KINDS)
    inputs[place] |= change
    assert message in infer(address, inputs, 400)


def test_with_keys_alone_features_are_read_and_scored_as_the_batch(tmp_path: Path, store: ArtifactStore) -> None:
    rows, details, sales = shops.retrieved(store, tmp_path, "both")
    (training_set,) = store.references("training-sets", "both")
    fitted = fit(rows, details["numeric"], details["categorical"])
    described = architecture(network(hidden=(9, 5)), fitted.width, [item.cardinality for item in fitted.categorical])
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
    assert {entry.name: entry.datatype for entry in read.inputs} == kinds
    batch = predictor.predict(rows)
    with serving(create_app(Following(Traffic(served)))) as address:
        assert data(infer(address, tensors(rows, kinds)))["probability"] == batch.tolist()
        assert data(infer(address, tensors(rows.slice(9, 1), kinds)))["probability"] == [batch[9]]
        for datatype, key in (("INT64", 1.7), ("FP64", 1.7), ("FP64", 2.0**53), ("INT64", True), ("INT64", "1")):
            inputs = tensors(rows.slice(9, 1), kinds)
            inputs[0] |= {"datatype": datatype, "data": [key]}
            message = infer(address, inputs, 400)
            assert message.startswith("input shop, datatype INT64, data[0]: ") and repr(key) in message
        inputs[0] |= {"datatype": "FP64", "data": [float(rows["shop"][9].as_py())]}
        assert data(infer(address, inputs))["probability"] == [batch[9]]
        assert "or the keys shop, amount, currency alone" in infer(address, tensors(rows, {"shop": "INT64"}), 400)
        sqlite_file(store, "shops").write_bytes(b"no database")
        result = requests.get(f"{address}/v2/health/ready", timeout=60)
        assert result.status_code == 503 and result.json()["error"]


def test_where_tokens_are_asked_for_only_their_holders_are_answered(
    published: tuple[ArtifactStore, ServedModel, pa.Table],
) -> None:
    store, served, _ = published
    reader = client(store, "", "ros", "read")
    body = {"inputs": tensors(ROWS.slice(0, 1), KINDS)}
    with serving(create_app(Following(Traffic(served)), Access(store, Rate(1000, 2)))) as address:
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
    expected = {version: model.predictor.predict(ROWS).tolist() for version, model in models.items()}
    assert expected["4"] != expected["5"]
    content = ["4"]
    followed = Following(Traffic(first), lambda present: Traffic(models[content[0]]), seconds=0.001)
    seen: set[str] = set()

    def ask(_: int) -> None:
        answer = infer(address, tensors(ROWS, KINDS))
        assert data(answer)["probability"] == expected[answer["model_version"]]
        seen.add(answer["model_version"])

    with serving(create_app(followed)) as address, ThreadPoolExecutor(4) as threads:
        for _ in range(500):
            if len(seen) == 2:
                break
            content[0] = "5" if content[0] == "4" else "4"
            list(threads.map(ask, range(8)))
    assert seen == {"4", "5"}
