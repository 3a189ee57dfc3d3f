"""Configuration as parameters of KFP: nothing is lost, and nothing that a person writes means something else."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

import gatehouse
from gatehouse.errors import ConfigurationError
from gatehouse.project.project import load_project
from gatehouse.store.identity import Spec
from gatehouse.store.parameters import as_parameter, as_written, checked, configuration_of, parameter_of
from tests.source_tree import ROOT


class Window(Spec):
    length: timedelta
    names: tuple[str, ...] = ()


class Settings(Spec):
    """A configuration with what an object of KFP cannot say by itself."""

    count: int
    limits: dict[str, float] = Field(default_factory=dict)
    words: tuple[str, ...] = ()
    share: float | None = 0.5
    window: Window | None = Window(length=timedelta(1))
    flag: bool = True


TEXTS = st.text(max_size=4) | st.sampled_from(
    ["größe", "место (км)", '"м"', r'"\u043c"', r'"\\u043c"', r'"\"', '"\\n\\u"']
)
WINDOWS = st.builds(
    Window, length=st.timedeltas(timedelta(0), timedelta(days=9)), names=st.lists(TEXTS, max_size=3).map(tuple)
)
SETTINGS = st.builds(
    Settings,
    count=st.integers(-(2**53), 2**53),
    limits=st.dictionaries(TEXTS, st.floats(-10, 10) | st.integers(0, 9), max_size=4),
    words=st.lists(TEXTS, max_size=4).map(tuple),
    share=st.none() | st.floats(0, 1),
    window=st.none() | WINDOWS,
    flag=st.booleans(),
)


def through_kfp(parameter: dict[str, Any]) -> dict[str, Any]:
    """Its messages make 5.0 of 5, keep no order of keys, and a spec is ASCII; its SDK takes no null."""
    sent = Struct()
    sent.update(parameter)
    assert "null_value" not in str(sent) and json.dumps(parameter, ensure_ascii=False).isascii()
    arrived: dict[str, Any] = MessageToDict(sent)
    return arrived


@given(SETTINGS)
def test_a_configuration_survives_what_kfp_makes_of_an_object(settings: Settings) -> None:
    arrived = through_kfp(parameter_of(settings))
    assert checked("settings", Settings, as_written(arrived)) == settings
    assert as_written(arrived) == as_written(parameter_of(settings))


def sections() -> Iterator[Any]:
    for path in sorted((ROOT / "pipelines" / "projects").glob("*/project.yaml")):
        project = load_project(path.parent)
        parts = (project.policy, *(getattr(project.file, name) for name in type(project.file).model_fields))
        yield from (part for part in parts if isinstance(part, Spec))


def test_every_section_of_the_examples_survives_it() -> None:
    parts = list(sections())
    assert len(parts) > 20, gatehouse.__file__
    for part in parts:
        assert checked("part", type(part), as_written(through_kfp(parameter_of(part)))) == part


def test_a_whole_number_that_kfp_would_change_is_refused() -> None:
    assert as_parameter({"seed": 2**53}) == {"seed": 2**53}
    with pytest.raises(ConfigurationError, match=str(2**53 + 1)):
        as_parameter({"deep": [{"seed": 2**53 + 1}]})
    with pytest.raises(ConfigurationError, match="a text as a key, found 1"):
        as_parameter({"deep": [{1: "one", "two": 2}]})


def test_false_switches_off_what_may_be_absent_and_is_refused_for_a_number() -> None:
    assert checked("settings", Settings, {"count": 1, "share": False, "window": False}) == Settings(
        count=1, share=None, window=None
    )
    with pytest.raises(ConfigurationError, match="count"):
        checked("settings", Settings, {"count": False})


@given(st.text() | st.sampled_from(["(none)", "none", "null", "false"]))
def test_a_text_that_a_person_writes_stays_what_it_is(text: str) -> None:
    assert as_written({"allowed": [text, "organic"]}) == {"allowed": [text, "organic"]}


def test_a_configuration_that_nobody_gives_is_the_default_or_refused() -> None:
    assert configuration_of("spec", {}, default={"a": 1}) == {"a": 1}
    assert configuration_of("spec", {"b": 5.0}, default={"a": 1}) == {"b": 5}
    with pytest.raises(ConfigurationError, match="neither"):
        configuration_of("spec", {})
