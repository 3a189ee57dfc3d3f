"""What is no YAML is told in a person's words, with its line; names of other programs lead to ours."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from gatehouse.checking import check_project
from gatehouse.commands.init import create_project
from gatehouse.errors import ConfigurationError
from gatehouse.yaml_lines import load_model, nearest


class _Anything(BaseModel, extra="allow"):
    pass


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a:\n  b: 1\n\tc: 2\n", "f:3: is not YAML: found a tab before the key; indent with spaces"),
        ("a:\n\tb: 1\n", "f:2: is not YAML: found a tab"),
        ("a: 1\nb: c: d\n", "f:2: is not YAML: found a second ': ' in a line"),
        ("a: 1\nb: [1, 2\nc: 3\n", "f:2: is not YAML: found [ that is never closed"),
        ("a: 1\nb: 'c\n", "f:2: is not YAML: found ' that is never closed"),
        ("a: 1\nb: @c\n", "f:2: is not YAML: found a value that begins with @; put it in quotes"),
        ("a: 1\nb: *c\n", "f:2: is not YAML: found a value that begins with *"),
        ("a: 1\nb: !c d\n", "f:2: is not YAML: found a value that begins with !"),
        ("a: 1\nb:2\nc: 3\n", "f:2: is not YAML: expected a key with its colon and a space"),
        ("a: 1\n---\nb: 2\n", "f:2: is not YAML: found a second document"),
        ("a:\n  b: 1\n c: 2\n", "f:3: is not YAML: found a line that is indented otherwise"),
        ("a: 1\nb: c\x00d\n", "f:2: is not YAML: control characters are not allowed"),
    ],
)
def test_what_is_no_yaml_is_told_with_its_line_and_what_to_do(text: str, told: str) -> None:
    problems: list[str] = []
    read = load_model("f", text, _Anything, problems)
    assert read is None and [problem.startswith(told) for problem in problems] == [True], problems
    assert "<unicode" not in "".join(problems) and "{" not in "".join(problems)


def test_a_day_that_is_none_is_a_text() -> None:
    read = load_model("f", "a: 2024-13-01\n", _Anything, [])
    assert read is not None and read.model_dump() == {"a": "2024-13-01"}


def _replace(path: Path, before: str, after: str) -> None:
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after, 1))


@pytest.mark.parametrize(("name", "meant"), [("integer", "int64"), ("Float", "double"), ("x", "")])
def test_names_of_other_programs_lead_to_ours(name: str, meant: str) -> None:
    assert nearest(name, ["int64", "double"]) == (f" (did you mean {meant}?)" if meant else "")


def test_files_are_named_from_the_project_and_metrics_by_the_nearest(tmp_path: Path) -> None:
    project = create_project("returns", tmp_path)
    for file, before, after in (
        ("features/definitions.py", 'entities=("customer_id",)', 'entities=("customer_id")'),
        ("features/feature_store.yaml", "project: ", "project:\t"),
        ("policy.yaml", "log_loss]", "logloss]"),
        ("contract.yaml", "type: double", "type: float"),
        ("project.yaml", "returned: int64", "returned: integer"),
    ):
        _replace(project / file, before, after)
    (project / "promotion").mkdir()
    (project / "policy.yaml").rename(project / "promotion/policy.yaml")
    _replace(project / "project.yaml", "policy: ", "policy: promotion/")
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    for found in (
        "features/definitions.py: FeatureView customer_history: entities: expected a list",
        "promotion/policy.yaml:5: must_beat_baseline.0: expected a metric (did you mean log_loss?), found 'logloss'",
        "double?), found 'float'",
        "int64?), found 'integer'",
        "5 problems",
    ):
        assert found in str(caught.value), str(caught.value)


def test_other_files_are_looked_at_though_keys_are_wrong(tmp_path: Path) -> None:
    project = create_project("returns", tmp_path)
    for file, before, after in (
        ("project.yaml", "batch_size: 512", "batch_size: 0"),
        ("project.yaml", "slices: [category]", "slices: [colour]"),
        ("features/feature_store.yaml", "project: returns", "project: re-turns"),
        ("features/views/customer_history.sql", "count(*)", "cout(*)"),
        ("policy.yaml", "{roc_auc: 0.80}", "{roc_auc: 0.5}"),
    ):
        _replace(project / file, before, after)
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    for found in (
        "batch_size",
        "slices.0",
        "features/feature_store.yaml: project: ",
        "customer_history.sql does not run",
    ):
        assert found in str(caught.value), str(caught.value)
    assert "leakage_alarm.roc_auc: expected a better value" in str(caught.value), str(caught.value)


class _Drift(BaseModel, extra="forbid"):
    max_rise: int = 0


class _Tuning(BaseModel, extra="forbid"):
    max_trial_count: int = 0
    parameters: int = 0


class _Project(BaseModel, extra="forbid"):
    drift: _Drift = _Drift()
    tuning: _Tuning = _Tuning()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tuning: {max_trials: 3, parameters: 1}", "max_trial_count"),
        ("tuning: {max_rises: 3}", "max_rise"),
        ("tunning: {parameters: 1}", "tuning"),
    ],
)
def test_a_wrong_key_is_held_against_those_that_go_with_the_keys_beside_it(text: str, meant: str) -> None:
    problems: list[str] = []
    load_model("f", text, _Project, problems)
    assert [problem for problem in problems if f"(did you mean {meant}?)" in problem], problems


@pytest.mark.parametrize(
    ("boundary", "told"),
    [
        ("81", "expected a time such as 2024-07-01, or a duration such as P90D, found 81"),
        ("-P81D", "or a duration such as P90D, found '-P81D'"),
    ],
)
def test_a_boundary_is_a_time_or_a_duration(tmp_path: Path, boundary: str, told: str) -> None:
    project = create_project("returns", tmp_path)
    path = project / "project.yaml"
    path.write_text(re.sub(r"train_until: .*", f"train_until: {boundary}", path.read_text(), count=1))
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    assert told in str(caught.value)


def test_a_project_that_is_no_yaml_says_nothing_of_its_features(tmp_path: Path) -> None:
    project = create_project("returns", tmp_path)
    _replace(project / "project.yaml", "split:", "\tsplit:")
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    assert "a tab before the key" in str(caught.value) and "features.repo" not in str(caught.value)


def test_a_store_that_nothing_serves_is_told_with_its_line(tmp_path: Path) -> None:
    project = create_project("returns", tmp_path)
    _replace(project / "project.yaml", "store: .gatehouse/store", "store: s4://bucket/x")
    with pytest.raises(ConfigurationError, match=r"project.yaml:\d+: store: expected a folder, .* found 's4://'"):
        check_project(project)
