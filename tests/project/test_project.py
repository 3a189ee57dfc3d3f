"""Project configuration: every mistake is reported at once, with file, line and key."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

import gatehouse
from gatehouse.api.projects import create_project
from gatehouse.configuration.strict import Duration, iso
from gatehouse.configuration.yaml_lines import load_model, read_yaml
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import GatePolicy, tolerated
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.tasks import BINARY
from gatehouse.monitoring.spec import DataDriftSpec, RetrainSpec
from gatehouse.project.checking import check_project
from gatehouse.project.project import load_project
from gatehouse.project.project_file import ProjectFile
from gatehouse.training.model_spec import NumericSpec
from gatehouse.training.spec import train_spec
from gatehouse.tuning.spec import CommandSearchSpec

EXAMPLE = Path(gatehouse.__file__).parent / "pipelines" / "projects" / "flights"
MISTAKES = {
    "project.yaml": [
        ("tuning:", "tunning:", "tunning"),
        ("batch_size:", "batchsize:", "training.data.batchsize"),
        ("epochs: 5", "epochs: five", "training.stopping.epochs"),
        ("learning_rate: 0.001", "learning_rate: -1", "training.optimizer.learning_rate"),
        ("model: returns\n", "model: returns\nmodel: returns\n", "model"),
        ("tabular_mlp", "tabular_mpl", "training.model.architecture"),
        ("train_until: 2024-07-01", "train_until: 2025-07-01", "split"),
        ("amount: double", "amount: number", "source.tables.orders.columns.amount"),
        ("event_time: placed_at", "event_time: placed", "source.tables.orders.event_time"),
        ("      event_time: placed_at\n", "", "source.tables"),
        ("kind: files", "kind: file", "source.kind"),
        ("service: order_return", "service: order_returns", "features.service"),
        ("slices: [category]", "slices: [categry]", "evaluation.slices.0"),
        ("slices: [category]", "slices: {odd: categry = 1}", "evaluation.slices.odd"),
        ("slices: [category]", "slices: []", "policy.yaml: slices"),
        ("{}", "{data_drift: {ignore: [amont]}}", "monitoring.data_drift.ignore.0"),
        ("  leakage_alarm", "  unchecked: {history: ok}\n  leakage_alarm", "features.unchecked.history"),
        ("name: model.dropout", "name: model.drop", "tuning.parameters.1.name"),
        ("  max_trial_count: 4", "  max_trial_count: 4\n  objective: mse", "tuning.objective"),
        ("monitoring:", "resources: {trian: {cpu: 1}}\nmonitoring:", "resources"),
        ("repo: features", "repo: feature", "features.repo"),
        ("  gap: P30D", "  gap: P30D\n  checks: {groups: [customer]}", "split.checks.groups.0"),
        ('  training: ""', '  training: {cron: "@daily", max_concurrency: true}', "schedules.training.max_concurrency"),
        ('training: ""', "training: 0 4 * * 1", "schedules.training"),
        ("monitoring:", "triggers: {new: {type: a}}\nmonitoring:", "triggers.new.pipeline"),
        (
            "monitoring:",
            "triggers: {training: {type: a, parameters: {x: 1}}}\nmonitoring:",
            "triggers.training.parameters.x",
        ),
        ("monitoring:", "events: {ops: {types: [gatehouse.model]}}\nmonitoring:", "events.ops.types"),
        ("    hidden: [64, 32]\n", "    hidden: [64, 32]\n  loss: {kind: mse}\n", "training.loss.kind"),
        ("type: double, min: 0.0,", "type: double, mn: 0.0,", "tuning.parameters.1.mn"),
        ("stopping:\n    epochs: 5", "stopping:\n    epochs: 5\n    metric: auc", "training.stopping.metric"),
        ("store: .gatehouse/store", "store: s4://bucket/x", "store"),
        ("store: .gatehouse/store", "store: s3://me:pa55word@b/x", "store"),
        ("train_until: 2024-07-01", "train_until: 2024-02-30", "split.train_until"),
        ("max_trial_count: 4", "max_trial_count: 4\n  budget: {cost: 2}", "tuning.budget.cost"),
        ("max_trial_count: 4", "max_trial_count: 4\n  algorithm: tpee", "tuning.algorithm"),
        ("gap: P30D", "gap: P1M", "split.gap"),
        ("monitoring:", "snapshots: {other: x}\nmonitoring:", "snapshots.other"),
        ("monitoring:", "calibration: {method: temperature}\nmonitoring:", "calibration"),
    ],
    "features/definitions.py": [
        (
            'arrives=Available("known_at"),',
            'arrives=Available("known_at"), task="regression",',
            "project.yaml: training.loss.kind",
        ),
        ('arrives=Available("known_at"),', 'arrives=Available("known_at"), keeps=("label",),', "returned: keeps"),
        ('Source(table="orders"', 'Source(table="order"', "Source order: table"),
        ('event_time="placed_at"', 'event_time="amount"', "Source orders: event_time"),
        ("orders = Source(", "orders = Source((", "invalid syntax"),
        ('arrives=Available("known_at")', 'arrives=Available("known_at", lag="one day")', "Available: lag"),
        ('entities=("customer_id",)', 'entities=("customer_id")', "FeatureView customer_history: entities"),
        ('"amount": "numeric"', '"amount": "number"', "FeatureView order_content: features.amount"),
        ('    available=Available("event_timestamp"),\n    window', "    window", "order_content"),
        ('"customer_history"))', '"customer"))', "order_return: views"),
        ("window=timedelta(0)", 'window="1d"', "FeatureView order_content: window"),
        ('Entity(name="order_id")', 'Entity(name="order_id", type="str")', "Entity order_id: type"),
    ],
    "contract.yaml": [
        ("settled_at: {", "settled_at: {protected: true, ", "tables.orders.columns.settled_at.protected"),
        ("  orders:\n", "  order:\n", "tables.order"),
        ("amount: {", "amout: {", "tables.orders.columns.amout"),
        ("amount: {type: double, min: 0}", "amount: {type: int64}", "tables.orders.columns.amount.type"),
        (
            "    unique:",
            "    expressions:\n      - {name: cheap, sql: amount + 1}\n    unique:",
            "tables.orders.expressions.0.sql",
        ),
        (
            "    unique:",
            "    expressions:\n      - {name: a, sql: 1 > 0}\n      - {name: b, sql: amout < 9}\n    unique:",
            "tables.orders.expressions.1.sql",
        ),
        ("min: 0}", "minimum: 0}", "tables.orders.columns.amount.minimum"),
        ("[[order_id]]", "[[order]]", "tables.orders.unique.0"),
        ("min: 0, max: 1", "min: 2, max: 1", "tables.orders.columns.returned.min"),
        ("unique: [[order_id]]", "unique: [order_id, amount]", "tables.orders.unique"),
    ],
    "policy.yaml": [
        ("slices:", "fairness: {category: {equal_opportunity_difference: 0.1}}\nslices:", "fairness.category"),
        ("log_loss]", "logloss]", "must_beat_baseline.0"),
        ("roc_auc: {min: 0.6}", "rmse: {max: 1}", "bars"),
        ("{min: 0.6}", "{min: 0.9, max: 0.6}", "bars.roc_auc"),
        ("champion:", "require_integration: true\nchampion:", "require_integration"),
        ("champion:", "regressions: {slices: false}\nchampion:", "regressions"),
        ("champion:", "max_training_age: P1D\nchampion:", "max_training_age"),
    ],
    "features/staging/orders.sql": [
        ("    amount,", "    amounts,", "does not run: Binder Err"),
        ("    amount,", "    amount * random() AS amount,", "expected the same rows"),
    ],
    "features/views/order_content.sql": [
        ("SELECT", "SELCT", "does not run: Parser Err"),
    ],
    "features/views/customer_history.sql": [
        ("count(*)", "cout(*)", "does not run: Catalog Er"),
        ("count(*)", "epoch(now())", "expected the same rows"),
    ],
    "features/known/orders.sql": [
        ("SELECT", "SELECT uuid() AS draw,", "expected the same rows"),
    ],
    "features/feature_store.yaml": [
        ("project: returns", "project: my-returns", "project"),
        ("type: sqlite", "type: sqllite", "online_store.type"),
        ("AsofOfflineStore", "AsofOflineStore", "offline_store.type"),
        ("provider: local", "provider: local\nprovider: aws", "provider"),
    ],
}
"""By file: a text of it, what stands there instead, and the key, or `file: key`, of the problem."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project as `gatehouse init` writes it."""
    return create_project("returns", tmp_path)


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text, "this test plants nothing"
    path.write_text(text.replace(before, after, 1))


def problems_of(project: Path) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    return [line.removeprefix("  - ") for line in str(caught.value).splitlines()[1:]]


@pytest.mark.parametrize(
    ("file", "before", "after", "place"), [(file, *row) for file, rows in MISTAKES.items() for row in rows]
)
def test_a_mistake_is_found_at_its_key(project: Path, file: str, before: str, after: str, place: str) -> None:
    edit(project / file, before, after)
    problems = problems_of(project)
    other, colon, rest = place.partition(": ")
    wrong, key = (other, rest) if colon and other.endswith((".yaml", ".sql")) else (file, place)
    assert any(re.match(rf"{re.escape(wrong)}(?::\d+)?:? {re.escape(key)}", problem) for problem in problems), problems
    assert not re.search("Traceback|pydantic|<unicode|_type\\b", str(problems))


@pytest.mark.parametrize(
    ("file", "before", "after", "suggestion"),
    [
        ("project.yaml", "tuning:", "tunning:", "tuning"),
        ("project.yaml", "returned: int64", "returned: integer", "int64"),
        ("project.yaml", "split:\n", "split:\n  strategy: temporal\n", "time"),
        ("project.yaml", "slices: [category]", "slices: [categry]", "category"),
        ("policy.yaml", "log_loss]", "logloss]", "log_loss"),
        ("policy.yaml", "approval:", "live: {metrixx: {brier: 0.02}}\napproval:", "metrics"),
    ],
)
def test_the_nearest_name_is_offered(project: Path, file: str, before: str, after: str, suggestion: str) -> None:
    edit(project / file, before, after)
    assert any(f"(did you mean {suggestion}?)" in problem for problem in problems_of(project))


def test_no_name_of_another_section_is_offered(project: Path) -> None:
    file = project / "project.yaml"
    file.write_text(file.read_text() + "events: {mine: {foldr: x, strategi: y}}\n")
    problems = [problem for problem in problems_of(project) if "events.mine" in problem]
    assert ["(did you mean" in problem for problem in problems] == [False, False]


def test_mistakes_of_all_files_are_reported_at_once(project: Path) -> None:
    edit(project / "project.yaml", "epochs: 5", "epochs: 0")
    edit(project / "project.yaml", "max_trial_count: 4", "max_trail_count: 4")
    edit(project / "policy.yaml", "tolerance: 0.002", "tolerance: much")
    (project / "contract.yaml").unlink()
    line = 1 + (project / "project.yaml").read_text().splitlines().index("    epochs: 0")
    problems = sorted(problems_of(project))
    assert [problem.split(":")[0] for problem in problems] == ["contract.yaml", "policy.yaml", *["project.yaml"] * 2]
    assert problems[2].startswith(f"project.yaml:{line}: training.stopping.epochs: ")


def test_the_examples_and_the_template_are_valid(project: Path) -> None:
    assert check_project(project).name == "returns"
    for folder in EXAMPLE.parent.iterdir():
        assert check_project(folder).name == folder.name


SECRET = "hunter2"


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("project.yaml", "  kind: files\n", f"  kind: files\n  password: {SECRET}\n"),
        ("project.yaml", "  kind: files\n", f"  kind: postgresql://u:p@{SECRET}@h/db\n"),
        ("project.yaml", "store: .gatehouse/store", f"store: ftp://u:p/{SECRET}@h/db"),
        ("project.yaml", "  path: data\n", f"  path: s3://u:{SECRET}@bucket\n"),
        ("project.yaml", "  gap: P30D", f"  gap: postgresql://u:p/{SECRET}@h/db"),
        ("project.yaml", 'training: ""', f"training: {{cron: 'x://u:p/{SECRET}@h'}}"),
        ("contract.yaml", "owner: nobody yet", f"password: {SECRET}"),
        ("policy.yaml", "approval: automatic", f"approval: a://u:p/{SECRET}@h"),
        ("features/feature_store.yaml", "type: sqlite", f"type: redis://u:p/{SECRET}@h"),
        ("features/definitions.py", 'entities=("customer_id",)', f'entities="a://u:p/{SECRET}@h"'),
    ],
)
def test_no_secret_is_in_a_message(project: Path, file: str, before: str, after: str) -> None:
    edit(project / file, before, after)
    assert SECRET not in str(problems_of(project))


def test_no_secret_is_in_a_traceback() -> None:
    with pytest.raises(ValidationError) as caught:
        ProjectFile.model_validate({"name": "n", "source": {"kind": "files", "password": SECRET}, "store": [SECRET]})
    assert SECRET not in str(caught.value) + repr(caught.value)
    with pytest.raises(ValidationError) as caught:
        train_spec({"seed": SECRET})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a:\n  b: 1\n\tc: 2\n", "f:3"),
        ("a: 1\nb: c: d\n", "f:2"),
        ("a: 1\nb: *c\n", "f:2"),
        ("a: 1\nb: !!python/object:os.system c\n", "f:2"),
        ("a: 1\n a: 2\n", "f:2"),
        ("a: 1\nb: c\x00d\n", "f"),
        ("a: &b [*b]\n", "f"),
        ("a: " + "[" * 100_000, "f"),
    ],
)
def test_what_is_not_yaml_is_refused_with_its_line(text: str, place: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{place}: is not YAML: "):
        read_yaml(text, "f")
    with pytest.raises(ConfigurationError, match=r"^f:2: a: is there twice"):
        read_yaml("a: 1\na: 2\n", "f")
    with pytest.raises(ConfigurationError, match="expected one YAML document"):
        read_yaml("a: 1\n---\nb: 2\n", "f")


def test_yaml_is_read_as_version_1_2() -> None:
    text = "on: [010, 1:30, 1e-3, off]\nd: 2024-13-01\nm: &m {x: 1}\nn: {<<: *m}\n"
    assert read_yaml(text, "f") == {"on": [10, "1:30", 0.001, "off"], "d": "2024-13-01", "m": {"x": 1}, "n": {"x": 1}}
    problems: list[str] = []
    spec = load_model("a.yaml", "on: [drift]\n", RetrainSpec, problems)
    drift = load_model("a.yaml", "unless_holds: off\n", DataDriftSpec, problems)
    assert spec is not None and spec.on == ("drift",) and drift is not None and not drift.unless_holds
    load_model("a.yaml", "clip: [0.01]\n", NumericSpec, problems)
    load_model("a.yaml", "parameters: [{name: a, type: float, min: 0, max: 1}]\n", CommandSearchSpec, problems)
    places = [["a.yaml:1", "clip.1"], ["a.yaml:1", "parameters.0.type"]]
    assert [problem.split(": ")[:2] for problem in problems] == places


@pytest.mark.parametrize("content", [b"", b"[]", b"just text", b"a: \xe9"])
@pytest.mark.parametrize("file", ["project.yaml", "contract.yaml", "policy.yaml"])
def test_a_file_that_cannot_be_read_is_refused(project: Path, file: str, content: bytes) -> None:
    (project / file).write_bytes(content)
    assert [problem.startswith(file) for problem in problems_of(project)] == [True]
    (project / file).unlink()
    assert problems_of(project)[0].startswith(f"{file}: expected a file")


@pytest.mark.parametrize("value", ["1 day", "1d", "24:00:00", "-P1D", "P1M", "p1d", "P", "PT", "", 6, 1.5, True])
def test_a_duration_is_iso_8601_and_nothing_else(value: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Duration).validate_python(value)
    for span in (timedelta(0), timedelta(days=400), timedelta(minutes=90), timedelta(days=30, microseconds=10)):
        assert TypeAdapter(Duration).validate_python(iso(span)) == span


def test_the_template_is_as_strict_as_the_defaults(project: Path) -> None:
    policy, usual = (item.resolved(profile_of(BINARY)) for item in (load_project(project).policy, GatePolicy()))
    assert set(policy.must_beat_baseline or ()) >= set(usual.must_beat_baseline or ())
    assert all((policy.leakage_alarm or {})[name] <= value for name, value in (usual.leakage_alarm or {}).items())
    assert all((policy.slices or {})[name] >= value for name, value in (usual.slices or {}).items())
    assert tolerated(policy.champion.tolerance, 0.5) <= tolerated(usual.champion.tolerance, 0.5)
    assert policy.champion.confidence >= usual.champion.confidence


def test_what_is_written_differently_and_means_the_same_keeps_its_reference(project: Path) -> None:
    before = [config.reference for config in load_project(project).configs()]
    contract = yaml.safe_load((project / "contract.yaml").read_text())
    for table in contract["tables"].values():
        table["columns"] = dict(reversed(table["columns"].items()))
    (project / "contract.yaml").write_text(f"# What we expect.\n{yaml.safe_dump(contract, sort_keys=False)}")
    repo = project / load_project(project).file.features.repo
    for path in repo.rglob("*.sql"):
        path.write_text(f"-- What we compute.\n{path.read_text()}\n\n/* The end. */\n")
    (repo / "definitions.py").write_text(f"{(repo / 'definitions.py').read_text()}\n# The end.\n")
    (repo / "feature_store.yaml").write_text(f"# Where to.\n{(repo / 'feature_store.yaml').read_text()}")
    assert [config.reference for config in load_project(project).configs()] == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("contract.yaml", "type: double", "type: int64"),
        ("features/definitions.py", '"numeric"', '"categorical"'),
        ("features/views/order_content.sql", "SELECT", "SELECT DISTINCT"),
        ("features/labels/returned.sql", "SELECT", "SELECT DISTINCT"),
        ("features/feature_store.yaml", "type: sqlite", "type: redis"),
    ],
)
def test_what_means_something_else_has_another_reference(project: Path, file: str, old: str, new: str) -> None:
    before = {config.reference for config in load_project(project).configs()}
    edit(project / file, old, new)
    assert len({config.reference for config in load_project(project).configs()} - before) == 1


def test_tests_of_candidates_are_published_where_they_run_and_refused_where_they_never_would(project: Path) -> None:
    (project / "integration").mkdir()
    (project / "integration" / "conftest.py").write_text("")
    assert "integration: expected this section" in problems_of(project)[0]
    with open(project / "project.yaml", "a") as file:
        file.write("integration: {rows: 16}\n")
    assert "integration: expected tests" in problems_of(project)[0]
    (project / "integration" / "test_sense.py").write_text("def test_sense(candidate): ...")
    tests = load_project(project).tests
    assert tests is not None and set(tests.files) == {"conftest.py", "test_sense.py"}
    assert tests in load_project(project).configs()


def test_a_view_and_a_label_that_an_engine_cannot_divide_are_named(project: Path) -> None:
    assert check_project(project).warnings == ()
    file = project / "project.yaml"
    file.write_text(file.read_text() + "engine: {workers: 2}\n")
    view, label = check_project(project).warnings
    assert "history" in view and "declare window" in view
    assert "returned" in label and "declare window and lead" in label
