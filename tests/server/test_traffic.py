"""Traffic: arms that are sticky and have their share, fallback to the champion, the shadow, and the ledger followed."""

import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.errors import ConfigurationError
from gatehouse.registry.ledger import CANARY, CHAMPION, SHADOW, Ledger
from gatehouse.server.inference import Inference, ServedModel
from gatehouse.server.predictor import Following, create_app
from gatehouse.server.traffic import (
    INTERLEAVED,
    WAITING_BYTES,
    Answer,
    Shadowing,
    Traffic,
    Waiting,
    fraction,
    team_draft,
)
from gatehouse.store.store import ArtifactStore
from tests.evaluation.candidates import publish_model
from tests.server.live import Live, arms_of, make_live, tensors
from tests.server.serving import serving
from tests.training.synthetic import publish_split, publish_training_set, table

ROWS = table(200)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    """Version 1, 2, another 3, which gives NaN, and 4, which is no model."""
    return make_live(ArtifactStore.open(tmp_path_factory.mktemp("traffic")))


def _request(rows: pa.Table, *, keys: bool = True, **more: Any) -> Inference:
    return Inference.model_validate({"inputs": tensors(rows, keys=keys)} | more)


def test_a_key_stays_in_its_arm_as_the_share_grows_and_each_canary_gets_others() -> None:
    draws = [fraction("delays", 2, json.dumps([f"f{number}"])) for number in range(40_000)]
    for share in (0.01, 0.05, 0.5):
        taken = sum(draw < share for draw in draws) / len(draws)
        assert abs(taken - share) < 4 * math.sqrt(share * (1 - share) / len(draws))
    others = [fraction("delays", 3, json.dumps([f"f{number}"])) for number in range(40_000)]
    both = sum(draw < 0.5 and other < 0.5 for draw, other in zip(draws, others, strict=True))
    assert abs(both / len(draws) - 0.25) < 0.01


def test_the_rows_of_a_request_are_answered_by_the_models_of_their_arms(live: Live) -> None:
    live.promote(1, CHAMPION)
    live.promote(2, CANARY, 0.3)
    traffic = live.traffic()
    body = traffic.body(traffic.answer(_request(ROWS)))
    arms, versions = arms_of(body)
    assert 0 < arms.count(CANARY) < ROWS.num_rows and "model_version" not in body
    assert versions == [{CHAMPION: "1", CANARY: "2"}[arm] for arm in arms]
    assert arms == [
        CANARY if fraction("delays", 2, json.dumps([key])) < 0.3 else CHAMPION for key in ROWS["flight_id"].to_pylist()
    ]
    scored = {version: live.predict(int(version), ROWS) for version in ("1", "2")}
    data = {output["name"]: output["data"] for output in body["outputs"]}
    assert data["probability"] == [scored[version][row] for row, version in enumerate(versions)]
    again = traffic.body(traffic.answer(_request(ROWS.slice(7, 1))))
    assert arms_of(again)[0] == arms[7:8] and again["model_version"] == versions[7]
    live.promote(2, CANARY, 0.6)
    more = arms_of(live.traffic().body(live.traffic().answer(_request(ROWS))))[0]
    assert all(later == CANARY for arm, later in zip(arms, more, strict=True) if arm == CANARY) and more != arms


def test_without_keys_the_id_of_the_request_decides_and_a_named_version_answers_all(live: Live) -> None:
    live.promote(1, CHAMPION)
    live.promote(2, CANARY, 0.5)
    traffic = live.traffic()
    arms = {}
    for number in range(40):
        answer = traffic.answer(_request(ROWS.slice(0, 3), keys=False, id=f"r{number}"))
        (arms[answer.id],) = {part.arm for part in answer.parts}
    assert {*arms.values()} == {CHAMPION, CANARY}
    assert len({traffic.answer(_request(ROWS.slice(0, 1), keys=False)).id for _ in range(3)}) == 3
    for version in ("1", "2"):
        body = traffic.body(traffic.answer(_request(ROWS), version))
        assert body["model_version"] == version and {*arms_of(body)[0]} == {"named"}


@pytest.mark.parametrize(("canary", "error"), [(3, "PredictionError"), (4, "ConfigurationError")])
def test_the_champion_answers_for_a_canary_that_fails(live: Live, canary: int, error: str) -> None:
    live.promote(1, CHAMPION)
    live.promote(canary, CANARY, 0.5)
    traffic = live.traffic()
    answer = traffic.answer(_request(ROWS))
    body = traffic.body(answer)
    arms, versions = arms_of(body)
    assert CANARY in arms and {*versions} == {"1"} and body["model_version"] == "1"
    assert {part.arm: part.error for part in answer.parts} == {CHAMPION: "", CANARY: error}
    (data,) = (output["data"] for output in body["outputs"] if output["name"] == "probability")
    assert data == live.predict(1, ROWS)


def test_the_latency_of_a_canary_that_fails_is_that_of_both_models(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    live.promote(1, CHAMPION)
    live.promote(3, CANARY, 0.5)
    traffic, score = live.traffic(), ServedModel.score

    def slow(model: ServedModel, features: pa.Table) -> pa.Table:
        if model.version == "3":
            time.sleep(0.2)
        return score(model, features)

    monkeypatch.setattr(ServedModel, "score", slow)
    (of_canary,) = (part for part in traffic.answer(_request(ROWS)).parts if part.arm == CANARY)
    assert of_canary.model.version == "1" and of_canary.milliseconds > 200


def test_a_key_for_which_the_protocol_has_no_datatype_is_no_input(live: Live) -> None:
    rows = table(150)
    dated = rows.append_column("day", pa.array([date(2013, 1, 1)] * rows.num_rows))
    training_set = publish_training_set(live.store, dated, task="binary", entity_keys=["flight_id", "day"])
    split = publish_split(live.store, training_set, train=range(100))
    model = publish_model(live.store, training_set, split, steps=2, seed=2)
    traffic = Traffic(ServedModel.load(live.store, "delays", 1, model, online=False))
    assert [schema.name for schema in traffic.champion.identity] == ["flight_id", "decision_time"]
    assert traffic.answer(_request(ROWS)).failure is None


def test_a_ranking_is_answered_by_one_model(live: Live) -> None:
    plain = live.model(1)
    ranking = ServedModel(
        plain.name,
        "1",
        plain.model,
        plain.predictor,
        keys={"flight_id": "string", "carrier": "string"},
        group="carrier",
    )
    traffic = Traffic(ranking, {CANARY: live.model(2)}, {CHAMPION: 1, CANARY: 2}, 0.5, 9)
    arms = arms_of(traffic.body(traffic.answer(_request(ROWS))))[0]
    of_group: dict[str, set[str]] = {}
    for group, arm in zip(ROWS["carrier"].to_pylist(), arms, strict=True):
        of_group.setdefault(group, set()).add(arm)
    assert len(of_group) == 3 and all(len(arms) == 1 for arms in of_group.values())


def test_interleaved_groups_are_ordered_by_both_models_and_each_row_names_who_picked_it(live: Live) -> None:
    keys = {"flight_id": "string", "carrier": "string"}
    models = [replace(live.model(number), keys=keys, group="carrier") for number in (1, 2)]
    traffic = Traffic(models[0], {CANARY: models[1]}, {CHAMPION: 1, CANARY: 2}, 1.0, 9, interleave=True)
    body = traffic.body(traffic.answer(_request(ROWS)))
    arms, versions = arms_of(body)
    assert {*arms} == {INTERLEAVED} and {*versions} == {"1", "2"}
    (ranks,) = (output["data"] for output in body["outputs"] if output["name"] == models[0].outputs[0].name)
    scores = [live.predict(number, ROWS) for number in (1, 2)]
    for carrier in {*ROWS["carrier"].to_pylist()}:
        rows = [row for row, value in enumerate(ROWS["carrier"].to_pylist()) if value == carrier]
        assert sorted(ranks[row] for row in rows) == [*range(1, len(rows) + 1)]
        # Each model's own rows stand in its own order.
        for number in (1, 2):
            own = [row for row in rows if versions[row] == str(number)]
            best_first = sorted(own, key=lambda row: -ranks[row])
            assert best_first == sorted(own, key=lambda row, of=scores[number - 1]: (-of[row], row))
        assert abs(sum(versions[row] == "1" for row in rows) - len(rows) / 2) <= 1
    again = traffic.body(traffic.answer(_request(ROWS)))
    assert arms_of(again) == (arms, versions) and again["outputs"] == body["outputs"]
    alone = replace(traffic, models={})
    assert arms_of(alone.body(alone.answer(_request(ROWS)))) == ([INTERLEAVED] * len(arms), ["1"] * len(arms))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6), st.integers(0, 7))
def test_a_team_draft_places_each_row_once_and_favours_nobody(scores: list[tuple[int, int]], coins: int) -> None:
    first, second = zip(*scores, strict=True)
    drafted = team_draft(first, second, lambda turn: bool(coins >> turn & 1))
    assert sorted(row for row, _ in drafted) == [*range(len(scores))]
    swapped = team_draft(second, first, lambda turn: not coins >> turn & 1)
    assert swapped == [(row, not team) for row, team in drafted]


def test_the_shadow_scores_what_was_answered_and_is_not_served(live: Live) -> None:
    live.promote(1, CHAMPION)
    live.promote(2, CANARY, 0.0)  # Other tests share the ledger.
    live.promote(2, SHADOW)
    done: SimpleQueue[Answer] = SimpleQueue()
    traffic, shadowing = live.traffic(), Shadowing(done.put)
    answer = traffic.answer(_request(ROWS))
    shadowing.start()
    shadowing.add(traffic, answer)
    scored = done.get(timeout=60)
    shadowing.close()
    (part,) = scored.parts
    assert (part.arm, part.model.version, scored.id) == (SHADOW, "2", answer.id)
    assert part.predictions and part.predictions["probability"].to_pylist() == live.predict(2, ROWS)
    with serving(create_app(Following(traffic))) as address:
        body = {"inputs": tensors(ROWS, keys=True)}
        served = requests.post(f"{address}/v2/models/delays/infer", json=body, timeout=60).json()
    assert {*arms_of(served)[1]} == {*arms_of(traffic.body(answer))[1]} == {"1"}


def test_what_waits_is_bounded_in_rows_and_bytes() -> None:
    waiting: Waiting[str] = Waiting(10)
    assert [waiting.add("a", 6, 1), waiting.add("b", 6, 1), waiting.add("c", 4, 1)] == [True, False, True]
    assert (waiting.take(), waiting.take(), waiting.dropped) == (["a", "c"], [], 6)
    # A request may have more rows than wait at most, and is not lost where nothing waits.
    assert [waiting.add("d", 99, 2 * WAITING_BYTES), waiting.add("e", 1, 1)] == [True, False]
    waiting.take()
    assert [waiting.add(name, 1, WAITING_BYTES // 2) for name in "fgh"] == [True, True, False]


@pytest.fixture
def address(live: Live) -> Iterator[str]:
    live.promote(1, CHAMPION)
    live.promote(2, CANARY, 0.5)
    ledger = Ledger(live.store, "delays")
    followed = Following(live.traffic(), lambda present: Traffic.of(live.store, ledger, False, present), seconds=0.01)
    with serving(create_app(followed)) as address:
        yield address


def test_the_server_follows_the_ledger_and_drops_no_request(live: Live, address: str) -> None:
    expected = {str(version): live.predict(version, ROWS) for version in (1, 2)}
    seen: set[tuple[str, ...]] = set()

    def ask(_: int) -> None:
        body = {"inputs": tensors(ROWS, keys=True)}
        result = requests.post(f"{address}/v2/models/delays/infer", json=body, timeout=60)
        assert result.status_code == 200, result.text
        (data,) = (output["data"] for output in result.json()["outputs"] if output["name"] == "probability")
        versions = arms_of(result.json())[1]
        assert data == [expected[version][row] for row, version in enumerate(versions)]
        seen.add(tuple(sorted({*versions})))

    with ThreadPoolExecutor(3) as threads:
        for step in range(60):
            if step % 3 == 0:
                live.promote(1 + step % 2, CHAMPION)
                live.promote(2 - step % 2, CANARY, 0.5 if step % 4 else 0.0)
            list(threads.map(ask, range(3)))
            if len(seen) > 2:
                break
    assert len(seen) > 2
    described = requests.get(f"{address}/v2/models/delays", timeout=60).json()
    assert {*described["versions"]} == {"1", "2"} and "flight_id" in json.dumps(described["parameters"]["identity"])
    metrics = requests.get(f"{address}/metrics", timeout=60).text
    assert 'gatehouse_rows_total{arm="canary",error="",version="' in metrics
    assert requests.get(f"{address}/v2/models/delays/versions/9", timeout=60).status_code == 404


def test_a_request_with_keys_of_a_wrong_form_is_refused(live: Live) -> None:
    live.promote(1, CHAMPION)
    traffic = live.traffic()
    wrong = tensors(ROWS.slice(0, 2), keys=True)
    wrong[-1] |= {"shape": [1], "data": ["f0"]}
    with pytest.raises(ConfigurationError, match="flight_id"):
        traffic.answer(Inference.model_validate({"inputs": wrong}))
    for text in ("noon", "9999-12-31T23:59:59-12:00"):
        timed = [
            *tensors(ROWS.slice(0, 1)),
            {"name": "decision_time", "datatype": "BYTES", "shape": [1], "data": [text]},
        ]
        with pytest.raises(ConfigurationError, match="decision_time"):
            traffic.answer(Inference.model_validate({"inputs": timed}))
    with pytest.raises(ConfigurationError, match="at least one row"):
        traffic.answer(Inference.model_validate({"inputs": tensors(ROWS.slice(0, 0))}))
