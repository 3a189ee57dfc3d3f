"""The components that are derived from stages: what KFP is told of them, and that they give what their stages give."""

import json
from typing import Any

import hypothesis
import pytest
from gatehouse.pipelines.interfaces import component_of
from hypothesis import strategies as st

from gatehouse.errors import ContractBreachError, LeakageError
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import is_operational
from gatehouse.store.parameters import parameter_of, spec_of
from gatehouse.store.stage import StageModel, declared_stages
from gatehouse.store.store import ArtifactStore
from gatehouse.training.model_spec import CategoricalSpec, TransformationSpec
from gatehouse.training.transformation_stage import FitRequest, fit_transformation
from tests.source_tree import ROOT
from tests.training.synthetic import lay_out

TASKS = sorted(path.parent.name for path in (ROOT / "components").glob("*/component.py"))


@pytest.mark.parametrize("name", TASKS)
def test_every_input_and_output_says_what_it_is(name: str) -> None:
    spec = component_of(name).component_spec
    assert spec.description
    assert [key for key, parameter in spec.inputs.items() if not parameter.description] == []
    assert [key for key, output in (spec.outputs or {}).items() if not output.description] == []


def test_every_stage_that_stands_alone_has_its_component() -> None:
    """A component passes each field of its stage's request on, so that none is lost."""
    composed = {"compute_features", "evaluate", "judge", "launch", "register_model", "report_end", "rollback", "search"}
    composed |= {"snapshot", "split", "train"}
    alone = {name for name, stage in declared_stages().items() if not stage.declared.inner}
    assert alone - {"prepare", "previous_features", "require_contract", "require_no_leakage"} <= {*TASKS}
    for name in ({*TASKS} & alone) - composed:
        stage = declared_stages()[name]
        fields = {field for field, info in stage.request.model_fields.items() if not is_operational(info)}
        missing = fields - component_of(name).component_spec.inputs.keys()
        assert missing == {"promote": {"override"}, "tune": {"price"}, "monitor": {"baseline", "columns"}}.get(
            name, set()
        ), name


def test_a_component_gives_what_its_stage_gives(store: ArtifactStore) -> None:
    _, split = lay_out(store)
    spec = TransformationSpec(categorical=CategoricalSpec(min_count=3))
    request = FitRequest(split=split, spec=spec, model_name="delays")
    result = fit_transformation(request, store)
    component = component_of("fit_transformation")
    arguments = {"split": store.address_of(split), "model_name": "delays"}
    arguments |= {"store": store.address}
    assert component.python_func(**arguments, spec=parameter_of(spec)) == (result.transformation,)
    assert component.python_func(**arguments) != (result.transformation,)


class Free(StageModel):
    """A request of any JSON value."""

    value: Any


_TEXTS = st.text(max_size=20) | st.sampled_from(
    ["(none)", "(gatehouse null)", "(gatehouse number 1.0)", '"\\u0028"', "é"]
)
_NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
)


@hypothesis.given(_VALUES)
def test_every_value_of_a_configuration_comes_back_from_kfp_with_its_type(value: Any) -> None:
    """KFP takes ASCII and no null, makes a fraction of every number, and keeps no order."""
    parameter = parameter_of(Free(value=value))
    text = json.dumps(parameter, ensure_ascii=False)
    assert text.isascii() and not _holds_null(parameter)
    back = spec_of(Free, json.loads(text, parse_int=float)).value
    assert canonical_json(back) == canonical_json(value)
    assert json.dumps(back) == json.dumps(back, sort_keys=True), "keys are sorted, whatever order KFP gives them"


def _holds_null(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or any(map(_holds_null, inner))


@pytest.mark.parametrize(
    ("name", "error", "arguments"),
    [
        ("compute_features", ContractBreachError, {"snapshot": "", "definitions": "", "project": "", "as_of": ""}),
        ("split", LeakageError, {"training_set": "", "spec": {}, "model_name": ""}),
    ],
)
def test_the_task_after_one_that_judged_ends_the_run_before_it_does_anything(
    store: ArtifactStore, name: str, error: type[Exception], arguments: dict[str, Any]
) -> None:
    component = component_of(name)
    artifacts = dict.fromkeys(component.component_spec.outputs.keys() & {"metrics"})
    with pytest.raises(error, match="too many nulls"):
        component.python_func(store=store.address, verdict="fail", reasons=["too many nulls"], **artifacts, **arguments)
