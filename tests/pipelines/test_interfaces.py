"""The components that are derived from stages: what KFP is told of them, and that they give what their stages give."""

import pytest

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.stage import declared_stages
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.control.requiring.stage import Requirement, require_contract
from gatehouse.components.training.transformation.spec import CategoricalSpec, TransformationSpec
from gatehouse.components.training.transformation.stage import FitRequest, fit_transformation
from gatehouse.errors import ContractBreachError
from gatehouse.pipelines.interfaces import component_of
from gatehouse.pipelines.tasks import forcible_stages
from gatehouse.project import ProjectFile
from tests.components.training.synthetic import lay_out

TASKS = sorted(name for name, stage in declared_stages().items() if not stage.declared.inner and name != "prepare")


def test_fields_of_request_and_result_are_the_parameters() -> None:
    spec = component_of("check_leakage").component_spec
    inputs = {name: (given.type, given.default) for name, given in spec.inputs.items()}
    texts = ("store", "snapshot", "feature_tables", "training_set", "definitions", "code", "force")
    numbers = {"alarm": ("Float", 0.95), "model_alarm": ("Float", 1.0), "cuts": ("Integer", 7)}
    others = {"model_alarm_severity": ("String", "refuse"), "unchecked": ("Dict", {})}
    assert inputs == dict.fromkeys(texts, ("String", None)) | numbers | others
    assert {name: given.type for name, given in spec.outputs.items()} == {
        "leakage": "String",
        "verdict": "String",
        "reasons": "List",
        "warnings": "List",
    }
    assert spec.inputs["training_set"].description == "Reference of the training set."


@pytest.mark.parametrize("name", TASKS)
def test_every_input_says_what_it_is(name: str) -> None:
    spec = component_of(name).component_spec
    assert spec.description
    assert [key for key, given in spec.inputs.items() if not given.description] == []


def test_a_stage_without_memo_takes_neither_code_nor_nonce() -> None:
    assert set(component_of("require_contract").component_spec.inputs) == {"store", "verdict", "reasons", "report"}
    assert component_of("require_contract").component_spec.outputs is None


def test_what_a_room_writes_itself_is_taken() -> None:
    assert component_of("evaluate").component_spec.outputs["roc"].type == "system.ClassificationMetrics@0.0.1"


def test_a_stage_that_only_stages_call_cannot_be_forced() -> None:
    assert {name for name, stage in declared_stages().items() if stage.declared.inner} == {"fit_baseline", "measure"}
    assert {"split", "train", "evaluate"} <= set(forcible_stages()) <= set(TASKS)


def test_a_stage_names_a_section_of_a_project_and_a_field_of_its_result() -> None:
    declared = [(stage.declared, stage.result.model_fields) for stage in declared_stages().values()]
    assert {each.section for each, _ in declared} > {"tuning", "calibration"}
    assert {each.section for each, _ in declared} <= {"", *ProjectFile.model_fields}
    assert {each.tracked for each, fields in declared if each.tracked in fields} == {"model", "experiment"}
    assert all(each.tracked in {"", *fields} for each, fields in declared)


def test_a_component_gives_what_its_stage_gives(store: ArtifactStore) -> None:
    training_set, split = lay_out(store)
    spec = TransformationSpec(categorical=CategoricalSpec(min_count=3))
    request = FitRequest(training_set=training_set, split=split, spec=spec, model_name="delays")
    found = fit_transformation(request, store)
    component, text = component_of("fit_transformation"), canonical_json(spec.model_dump(mode="json"))
    asked = (store.address, store.address_of(training_set), split, "delays", fit_transformation.code())
    assert component.python_func(*asked, "", text) == (found.transformation,)
    assert component.python_func(*asked, "") != (found.transformation,)


def test_a_component_ends_as_its_stage_ends(store: ArtifactStore) -> None:
    require_contract(Requirement(verdict="pass"), store)
    component = component_of("require_contract")
    assert component.python_func(store.address, "pass") is None
    with pytest.raises(ContractBreachError, match="too many nulls"):
        component.python_func(store.address, "fail", ["too many nulls"])
