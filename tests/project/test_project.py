"""Project configuration: every mistake is reported at once, with file, line and key."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import gatehouse
from gatehouse.cli.init import create_project
from gatehouse.configuration.yaml_lines import load_model
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.metrics.tasks.binary import BINARY
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.metrics.tasks.judging import judging_of
from gatehouse.monitoring.spec import DataDriftSpec, RetrainSpec
from gatehouse.project.checking import check_project
from gatehouse.project.project import load_project
from gatehouse.project.project_file import ProjectFile
from gatehouse.store.store import ArtifactStore
from gatehouse.training.transformation.spec import NumericSpec

EXAMPLE = Path(gatehouse.__file__).parent / "pipelines" / "projects" / "flights"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project as `gatehouse init` writes it."""
    return create_project("returns", tmp_path)


def test_the_example_and_the_template_are_valid(project: Path) -> None:
    assert load_project(EXAMPLE).name == "flights"
    assert load_project(project).name == "returns"


def test_the_template_is_as_strict_as_the_defaults(project: Path) -> None:
    policy, usual = (each.resolved(judging_of(BINARY)) for each in (load_project(project).policy, GatePolicy()))
    assert set(policy.must_beat_baseline or ()) >= set(usual.must_beat_baseline or ())
    assert all((policy.leakage_alarm or {})[name] <= value for name, value in (usual.leakage_alarm or {}).items())
    assert all((policy.slices or {})[name] >= value for name, value in (usual.slices or {}).items())
    assert policy.champion.tolerated(0.5) <= usual.champion.tolerated(0.5)
    assert policy.champion.confidence >= usual.champion.confidence


def test_configuration_is_published_under_the_reference_that_specs_are_compiled_with(
    project: Path, tmp_path: Path
) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    for config in load_project(project).configs():
        assert config.publish(store) == config.reference


def test_all_mistakes_of_all_files_are_reported_at_once(project: Path) -> None:
    text = (project / "project.yaml").read_text()
    (project / "project.yaml").write_text(
        text.replace("epochs: 5", "epochs: 0").replace("max_trial_count: 4", "max_trail_count: 4")
    )
    policy = (project / "policy.yaml").read_text()
    (project / "policy.yaml").write_text(policy.replace("tolerance: 0.002", "tolerance: much"))
    (project / "contract.yaml").unlink()
    with pytest.raises(ConfigurationError) as caught:
        load_project(project)
    message = str(caught.value)
    line = 1 + text.splitlines().index("    epochs: 5")
    assert f"project.yaml:{line}: training.stopping.epochs" in message and "found 0" in message
    assert "tuning.max_trail_count" in message and "policy.yaml:" in message and "champion.tolerance" in message
    assert "contract.yaml: expected a file" in message
    assert message.startswith("4 problems")


def test_a_key_that_stands_twice_is_named_with_its_line(project: Path) -> None:
    text = (project / "project.yaml").read_text()
    (project / "project.yaml").write_text(f"{text}model: another\n")
    with pytest.raises(ConfigurationError, match=rf"project\.yaml:{len(text.splitlines()) + 1}: model: stands twice"):
        load_project(project)


def test_the_key_on_is_a_text_and_the_value_off_is_false() -> None:
    problems: list[str] = []
    read = load_model("a.yaml", "on: [drift]\n", RetrainSpec, problems)
    assert problems == [] and read is not None and read.on == ("drift",)
    switched = load_model("a.yaml", "unless_holds: off\n", DataDriftSpec, problems)
    assert switched is not None and switched.unless_holds is False


def test_a_list_that_is_too_short_is_told_where_it_ends() -> None:
    problems: list[str] = []
    load_model("a.yaml", "clip: [0.01]\n", NumericSpec, problems)
    assert problems == ["a.yaml:1: clip.1: expected this key, found none"]


def test_a_rule_that_says_what_it_found_says_it_once() -> None:
    problems: list[str] = []
    load_model("project.yaml", "stages: {nothing: {owner: a}}\n", ProjectFile, problems)
    (told,) = [each for each in problems if "names of stages" in each]
    assert told.count(", found ") == 1 and told.endswith("found nothing")


def test_what_is_not_yaml_is_named(project: Path) -> None:
    (project / "project.yaml").write_text("name: [unclosed")
    with pytest.raises(ConfigurationError, match=r"project\.yaml:1: is not YAML"):
        load_project(project)


@pytest.mark.parametrize("content", ["", "[]", "just text"])
def test_a_file_that_is_no_mapping_is_refused(project: Path, content: str) -> None:
    (project / "project.yaml").write_text(content)
    with pytest.raises(ConfigurationError, match=r"project\.yaml"):
        load_project(project)


def test_a_folder_without_definitions_is_refused(project: Path) -> None:
    shutil.rmtree(project / "features")
    with pytest.raises(ConfigurationError, match=r"features\.repo"):
        load_project(project)


def test_split_boundaries_out_of_order_are_refused(project: Path) -> None:
    body = yaml.safe_load((project / "project.yaml").read_text())
    body["split"]["validation_until"] = "2020-01-01"
    (project / "project.yaml").write_text(yaml.safe_dump(body))
    with pytest.raises(ConfigurationError, match="train_from < train_until < validation_until < test_until"):
        load_project(project)


def test_nothing_is_overwritten_by_init(project: Path) -> None:
    with pytest.raises(ConfigurationError, match="exists already"):
        create_project("returns", project.parent)


@pytest.mark.parametrize("name", ["", "Returns", "a/b", "../x", "9lives", "ü"])
def test_init_refuses_what_is_no_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="is no project name"):
        create_project(name, tmp_path)


def test_a_snapshot_of_another_project_is_given_by_its_reference(project: Path) -> None:
    contract = yaml.safe_load((project / "contract.yaml").read_text())
    table = next(iter(contract["tables"].values()))
    table["foreign_keys"] = [{"columns": [next(iter(table["columns"]))], "table": "t", "snapshot": "customers"}]
    (project / "contract.yaml").write_text(yaml.safe_dump(contract))
    with pytest.raises(ConfigurationError, match="leads to the snapshot 'customers': expected its reference"):
        load_project(project)
    written = (project / "project.yaml").read_text()
    (project / "project.yaml").write_text(f"{written}\nsnapshots: {{customers: snapshots/c/sha256-{'0' * 64}}}\n")
    assert load_project(project).file.snapshots["customers"].startswith("snapshots/c/")
    (project / "project.yaml").write_text(f"{written}\nsnapshots: {{other: snapshots/c/sha256-{'0' * 64}}}\n")
    with pytest.raises(ConfigurationError, match=r"snapshots\.other: no foreign key of contract\.yaml leads to it"):
        load_project(project)


def test_a_source_without_any_time_is_refused(project: Path) -> None:
    text = (project / "project.yaml").read_text()
    (project / "project.yaml").write_text(text.replace("      event_time: placed_at\n", ""))
    with pytest.raises(ConfigurationError, match=r"source\.tables: expected an event_time"):
        load_project(project)


def test_a_metric_of_another_task_is_refused_with_what_is_offered(project: Path) -> None:
    body = yaml.safe_load((project / "policy.yaml").read_text())
    body["bars"] = {"r2": {"min": 0.9}}
    (project / "policy.yaml").write_text(yaml.safe_dump(body))
    expected = r"policy\.yaml:\d+: bars: the task binary has the metrics accuracy, .*; found r2"
    with pytest.raises(ConfigurationError, match=expected):
        load_project(project)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"budget": {"cost": 2}}, r"tuning\.budget\.cost: expected the price of a machine under prices\.per_hour"),
        ({"objective": "logloss"}, r"tuning\.objective: .*did you mean log_loss\?.*found 'logloss'"),
        (
            {"algorithm": "tpee"},
            r"tuning\.algorithm: expected one of random, grid,.* \(did you mean tpe\?\), found 'tpee'",
        ),
        (
            {"early_stopping": {"name": "medain"}},
            r"tuning\.early_stopping\.name: expected one of .* \(did you mean median\?\), found 'medain'",
        ),
    ],
)
def test_what_no_experiment_can_be_is_refused(project: Path, given: dict[str, Any], told: str) -> None:
    body = yaml.safe_load((project / "project.yaml").read_text())
    body["tuning"] |= given
    (project / "project.yaml").write_text(yaml.safe_dump(body))
    with pytest.raises(ConfigurationError, match=told):
        load_project(project)


def test_an_objective_that_training_does_not_measure_is_refused(project: Path) -> None:
    body = yaml.safe_load((project / "project.yaml").read_text())
    body["tuning"]["objective"] = "brier"
    (project / "project.yaml").write_text(yaml.safe_dump(body))
    with pytest.raises(
        ConfigurationError,
        match=r"tuning.objective: expected what training measures: log_loss, roc_auc, or .* found 'brier'",
    ):
        load_project(project)
    body["training"].setdefault("stopping", {})["metric"] = "brier"
    (project / "project.yaml").write_text(yaml.safe_dump(body))
    assert load_project(project).file.tuning.objective[0].minimize


def test_what_is_written_differently_and_means_the_same_keeps_its_reference(project: Path) -> None:
    before = [config.reference for config in load_project(project).configs()]
    contract = yaml.safe_load((project / "contract.yaml").read_text())
    for table in contract["tables"].values():
        table["columns"] = dict(reversed(table["columns"].items()))
    (project / "contract.yaml").write_text(f"# What we expect.\n{yaml.safe_dump(contract, sort_keys=False)}")
    repo = project / load_project(project).file.features.repo
    for path in repo.rglob("*.sql"):
        path.write_text(f"-- What we compute.\n{path.read_text()}\n\n/* The end. */\n")
    definitions = (repo / "definitions.py").read_text()
    (repo / "definitions.py").write_text(f"{definitions}\n# The end.\n")
    settings = (repo / "feature_store.yaml").read_text()
    (repo / "feature_store.yaml").write_text(f"# Where to.\n{settings}")
    assert [config.reference for config in load_project(project).configs()] == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("contract.yaml", "type: double", "type: int64"),
        ("features/definitions.py", '"numeric"', '"categorical"'),
        ("features/views", "SELECT", "SELECT DISTINCT"),
        ("features/labels", "SELECT", "SELECT DISTINCT"),
        ("features/feature_store.yaml", "type: sqlite", "type: redis"),
    ],
)
def test_what_means_something_else_has_another_reference(project: Path, file: str, old: str, new: str) -> None:
    before = {config.reference for config in load_project(project).configs()}
    path = next((project / file).glob("*.sql")) if (project / file).is_dir() else project / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert len({config.reference for config in load_project(project).configs()} - before) == 1


def test_definitions_that_do_not_run_are_refused_with_everything_else(project: Path) -> None:
    definitions = project / "features/definitions.py"
    definitions.write_text(f"{definitions.read_text()}\n)")
    (project / "policy.yaml").write_text("champion: {tolerance: much}\n")
    with pytest.raises(
        ConfigurationError, match=r"(?s)2 problems.*policy\.yaml:1: .*definitions\.py:\d+: is no Python"
    ):
        load_project(project)


def test_a_calibration_of_another_task_is_refused(project: Path) -> None:
    body = yaml.safe_load((project / "project.yaml").read_text())
    body["calibration"] = {"method": "temperature"}
    (project / "project.yaml").write_text(yaml.safe_dump(body))
    with pytest.raises(
        ConfigurationError, match=r"calibration: method: expected platt or isotonic or none .* found temp"
    ):
        load_project(project)
    body["calibration"] = {"threshold": {"rule": "f_beta", "beta": 2}}
    (project / "project.yaml").write_text(yaml.safe_dump(body))
    calibration = load_project(project).file.calibration
    assert calibration is not None and calibration.resolved(TASKS["binary"]) == "platt"


@pytest.mark.parametrize(
    ("where", "told"), [("tuning", r"tuning\.final_rows"), ("training", r"training\.stopping\.refit")]
)
def test_a_calibration_on_rows_that_the_model_is_trained_on_is_refused(project: Path, where: str, told: str) -> None:
    body = yaml.safe_load((project / "project.yaml").read_text())
    body["calibration"] = {}
    if where == "tuning":
        body["tuning"]["final_rows"] = "train_and_validation"
    else:
        del body["tuning"]
        body["training"]["stopping"] = {"refit": 1}
    (project / "project.yaml").write_text(yaml.safe_dump(body))
    with pytest.raises(ConfigurationError, match=rf"calibration: expected rows that .*{told} trains on"):
        load_project(project)
    del body["calibration"]
    (project / "project.yaml").write_text(yaml.safe_dump(body))
    tuning = load_project(project).file.tuning
    assert tuning is None or tuning.refits


def test_a_refit_of_trials_is_told_where_it_stands(project: Path) -> None:
    body = yaml.safe_load((project / "project.yaml").read_text())
    body["training"]["stopping"] = {"refit": 1}
    (project / "project.yaml").write_text(yaml.safe_dump(body))
    with pytest.raises(ConfigurationError, match=r"project\.yaml:\d+: training\.stopping\.refit: .* set it to 0"):
        load_project(project)


def test_tests_of_candidates_are_published_where_they_run_and_refused_where_they_never_would(project: Path) -> None:
    (project / "integration").mkdir()
    (project / "integration" / "conftest.py").write_text("")
    with pytest.raises(ConfigurationError, match=r"integration/: expected the section integration in project.yaml"):
        load_project(project)
    with open(project / "project.yaml", "a") as file:
        file.write("integration: {rows: 16}\n")
    with pytest.raises(ConfigurationError, match=r"integration/: expected test_….py, found none"):
        load_project(project)
    (project / "integration" / "test_sense.py").write_text("def test_sense(candidate): ...")
    tests = load_project(project).tests
    assert tests is not None and set(tests.files) == {"conftest.py", "test_sense.py"}
    assert tests in load_project(project).configs()


_UNKEPT = {
    "require_integration: true": r"require_integration: expected the section integration .* write `integration: {}`",
    "require_online: true": r"require_online: expected the section integration in project.yaml",
    "regressions: {slices: false}": r"regressions: expected metrics here, or columns",
    "max_training_age: P1D": r"max_training_age: expected at least the gap .*30 days, .* found 1 days",
}


@pytest.mark.parametrize(("rule", "told"), _UNKEPT.items())
def test_a_rule_that_no_candidate_of_the_project_can_keep_is_told(project: Path, rule: str, told: str) -> None:
    policy = project / "policy.yaml"
    before = policy.read_text()
    policy.write_text(f"{before}{rule}\n")
    with pytest.raises(ConfigurationError, match=rf"policy\.yaml:{len(before.splitlines()) + 1}: {told}"):
        load_project(project)
    head = {"require_integration": "integration", "require_online": "integration online"}.get(rule.split(":")[0])
    name = head or rule.split(":")[0].replace("max_training_age", "training age")
    policy.write_text(f"{before}{rule}\nrules: {{{name}: {{severity: warn}}}}\n")
    load_project(project)
    if head:
        policy.write_text(f"{before}{rule}\n")
        with open(project / "project.yaml", "a") as file:
            file.write("integration: {}\n")
        load_project(project)


def test_a_policy_that_refuses_warnings_and_a_view_that_is_always_warned_of_are_told(project: Path) -> None:
    (project / "features/known/orders.sql").unlink()
    body = yaml.safe_load((project / "project.yaml").read_text())
    body["features"]["unchecked"] = {"customer_history": "a pilot", "order_content": "a pilot"}
    (project / "project.yaml").write_text(yaml.safe_dump(body))
    check_project(project)
    with open(project / "policy.yaml", "a") as file:
        file.write("warnings: refuse\n")
    with pytest.raises(ConfigurationError, match=r"policy.yaml: warnings: refuse: expected no view .*customer_history"):
        check_project(project)


@pytest.mark.parametrize(
    ("feature", "policy", "told"),
    [
        ("0.976", "leakage_alarm: {roc_auc: 0.80}", ["leakage_alarm: {roc_auc: 0.976} or higher there"]),
        ("0.976", "", ["refuses every model above 0.95."]),
        ("0.976", "leakage_alarm: {roc_auc: 0.98}", []),
        ("0.976", "leakage_alarm: {}", []),
        ("0.976", "rules: {leakage alarm: {severity: warn}}", []),
        ("null", "leakage_alarm: {roc_auc: 0.70}", []),
    ],
)
def test_two_alarms_that_do_not_belong_together_are_warned_of(
    project: Path, feature: str, policy: str, told: list[str]
) -> None:
    for file, before, after in (
        ("project.yaml", "leakage_alarm: 0.95", f"leakage_alarm: {feature}"),
        ("policy.yaml", "leakage_alarm: {roc_auc: 0.95}", policy),
    ):
        path = project / file
        path.write_text(path.read_text().replace(before, after))
    found = [text for text in check_project(project).warnings if "leakage_alarm" in text]
    assert [
        re.match(r"project\.yaml:\d+: features\.leakage_alarm: 0\.976 lets", text) is not None for text in found
    ] == [True for _ in told]
    assert all(words in text for words, text in zip(told, found, strict=True))
