"""Requests and results as parameters: what is carried as it is, what as an object, and that nothing is lost."""

import json
from datetime import timedelta
from typing import Literal

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gatehouse.errors import ConfigurationError
from gatehouse.store import parameters
from gatehouse.store.identity import Spec, operational
from gatehouse.store.parameters import (
    SINCE,
    as_written,
    parameter_of,
    request_of,
    spec_of,
    values_of,
)
from gatehouse.store.stage import Declaration, Stage, StageModel
from gatehouse.store.store import ArtifactStore


class Window(Spec):
    length: timedelta
    names: tuple[str, ...] = ()


class Question(StageModel):
    """A request with a field of every kind; a person fills in `since`."""

    text: str
    window: Window
    word: Literal["some", "all"] = "all"
    count: int = 3
    share: float = 0.5
    flag: bool = False
    names: tuple[str, ...] = ("a",)
    more: Window | None = None
    since: str = ""
    place: str = operational("here")


class Answer(StageModel):
    text: str
    rows: dict[str, int]
    reasons: tuple[str, ...]
    window: Window


class Settings(Spec):
    """A configuration with what an object cannot say by itself."""

    count: int
    limits: dict[str, float | None]
    words: tuple[str | None, ...]
    window: Window | None = None


def _ask(request: Question, store: ArtifactStore) -> Answer:
    raise AssertionError


STAGE = Stage(Declaration("ask", "Ask"), _ask)
WINDOW = {"length": "PT1H"}
WINDOWS = st.builds(
    Window, length=st.timedeltas(timedelta(0), timedelta(days=9)), names=st.lists(st.text(max_size=3)).map(tuple)
)
REQUESTS = st.builds(
    Question,
    text=st.text(max_size=5),
    window=WINDOWS,
    word=st.sampled_from(["some", "all"]),
    count=st.integers(-(10**9), 10**9),
    share=st.floats(allow_nan=False, allow_infinity=False),
    flag=st.booleans(),
    names=st.lists(st.text(max_size=3)).map(tuple),
    more=st.none() | WINDOWS,
)
TEXTS = st.text(max_size=4) | st.sampled_from(
    [
        "(none)",
        "(gatehouse null)",
        "(gatehouse number 3)",
        "größe",
        "место (км)",
        '"м"',
        r'"\u043c"',
        r'"\\u043c"',
        r'"\"',
        '"\\n\\u"',
    ]
)
SETTINGS = st.builds(
    Settings,
    count=st.integers(-(2**53), 2**53),
    limits=st.dictionaries(TEXTS, st.none() | st.floats(-10, 10) | st.integers(0, 9), max_size=4),
    words=st.lists(st.none() | TEXTS, max_size=4).map(tuple),
    window=st.none() | WINDOWS,
)


@given(REQUESTS)
def test_a_request_survives_its_parameters(request_: Question) -> None:
    carried = dict(zip(Question.model_fields, values_of(request_), strict=True))
    assert request_of(STAGE, **{name: carried[name] for name in carried if name != "place"}) == request_


def test_parameters_that_are_no_request_are_refused() -> None:
    with pytest.raises(ValidationError, match="word"):
        request_of(STAGE, text="x", window=WINDOW, word="none")


def test_a_result_becomes_values_in_the_order_of_its_fields() -> None:
    result = Answer(text="x", rows={"a": 1}, reasons=("why",), window=Window(length=timedelta(hours=1)))
    assert values_of(result) == ("x", {"a": 1}, ["why"], {"length": "PT1H", "names": []})


@pytest.mark.parametrize("shown", [SINCE, "all", "", "2013-11-01T00:00:00Z"])
def test_a_form_that_nobody_filled_in_is_empty_and_a_name_stays_what_it_is(shown: str) -> None:
    request = request_of(STAGE, text="all", window=WINDOW, since=shown)
    assert (request.text, request.since) == ("all", shown if shown.startswith("2013") else "")


@given(SETTINGS)
def test_a_configuration_survives_what_kfp_makes_of_an_object(settings: Settings) -> None:
    """Its SDK takes no null, its messages make 5.0 of 5 and keep no order of keys, and a spec is ASCII."""
    sent = Struct()
    sent.update(parameter_of(settings))
    text = json.dumps(MessageToDict(sent), ensure_ascii=False)
    assert "null_value" not in str(sent) and text.isascii()
    arrived = MessageToDict(sent)
    assert spec_of(Settings, arrived) == settings
    assert as_written(arrived) == as_written(parameter_of(settings))


@given(st.text() | st.sampled_from(["(none)", "(number 3)", "none", "null"]))
def test_a_text_that_a_person_writes_stays_what_it_is(text: str) -> None:
    """Analytics writes (none) for a value that is missing, and a dictionary in a pipeline does not go through ours."""
    assert as_written({"allowed": [text, "organic"]}) == {"allowed": [text, "organic"]}


def test_a_configuration_that_nobody_gives_is_the_default_or_refused() -> None:
    assert parameters.given("spec", {}, default={"a": 1}) == {"a": 1}
    assert parameters.given("spec", {"b": 5.0}, default={"a": 1}) == {"b": 5}
    with pytest.raises(ConfigurationError, match="neither"):
        parameters.given("spec", {})
