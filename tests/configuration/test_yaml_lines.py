"""What is no YAML is told in a person's words, with its line; names of other programs lead to ours."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from gatehouse.cli.init import create_project
from gatehouse.configuration.yaml_lines import load_model, nearest
from gatehouse.errors import ConfigurationError
from gatehouse.project.checking import check_project
from gatehouse.project.project_file import ProjectFile
from gatehouse.training.spec import train_spec


def test_a_word_in_common_leads_to_a_name_that_is_less_alike() -> None:
    names = ["least_test_rows", "least_rarer_rows", "must_beat_baseline", "slices"]
    assert nearest("min_test_row", names) == " (did you mean least_test_rows?)"
    assert nearest("test", names) == nearest("row_count", names) == ""


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
        "4 problems",
    ):
        assert found in str(caught.value), str(caught.value)


def test_other_files_are_looked_at_though_keys_are_wrong(tmp_path: Path) -> None:
    project = create_project("returns", tmp_path)
    for file, before, after in (
        ("project.yaml", "batch_size: 512", "batch_size: 0"),
        ("project.yaml", "slices: [category]", "slices: [colour]"),
        ("features/feature_store.yaml", "project: returns", "project: re-turns"),
        ("features/views/customer_history.sql", "count(*)", "cout(*)"),
        ("policy.yaml", "{roc_auc: 0.95}", "{roc_auc: 0.5}"),
    ):
        _replace(project / file, before, after)
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    for found in (
        "batch_size",
        "slices.0",
        "features/feature_store.yaml:2: project: ",
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


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            "architecture: tabular_mlp",
            "architecture: tabular_mpl",
            r"training\.model\.architecture: expected one of .* \(did you mean tabular_mlp\?\), found 'tabular_mpl'",
        ),
        (
            "    hidden: [64, 32]\n",
            "    hidden: [64, 32]\n  loss: {kind: bianry}\n",
            r"training\.loss\.kind: expected binary, as .* is binary, found 'bianry' \(did you mean binary\?\)",
        ),
        (
            "    hidden: [64, 32]\n",
            "    hidden: [64, 32]\n  loss: {kind: mse}\n",
            r"training\.loss\.kind: expected binary, as the label's task in features is binary, found 'mse'",
        ),
        (
            "split:\n",
            "split:\n  strategy: temporal\n  fraction: 0.2\n",
            r"split\.strategy: expected one of time, random.* \(did you mean time\?\), found 'temporal'",
        ),
        ("kind: files", "kind: file", r"source\.kind: expected one of files.* \(did you mean files\?\), found 'file'"),
        (
            "    hidden: [64",
            "    hiden: [64",
            r"training\.model\.hiden: there is no such key \(did you mean hidden\?\)",
        ),
        ("  service: ", "  servce: ", r"features\.servce: there is no such key \(did you mean service\?\)"),
        (
            "name: model.dropout",
            "name: model.dropot",
            r"tuning\.parameters\.1\.name: there is no such setting \(did you mean model\.dropout\?\), found",
        ),
        (
            "type: double, min: 0.0,",
            "type: double, mn: 0.0,",
            r"tuning\.parameters\.1\.mn: there is no such key \(did you mean min\?\)$",
        ),
        (
            "stopping:\n    epochs: 5",
            "stopping:\n    epochs: 5\n    metric: auc",
            r"training\.stopping\.metric: the loss binary gives .*, not auc \(did you mean roc_auc\?\), found 'auc'",
        ),
        (
            "store: .gatehouse/store",
            "store: s4://bucket/x",
            r"store: expected a folder, or one of gs://.*, found 's4://'",
        ),
        (
            "store: .gatehouse/store",
            "store: s3://me:pa55word@b/x",
            r"store: expected an address without a password, found one",
        ),
        ("store: .gatehouse/store", "store: ftp://h/x", r"store: expected a folder, or one of gs://.*, found 'ftp://'"),
        (
            "store: .gatehouse/store",
            "store: gcs//bucket",
            r"store: expected a folder, or an address .*, found 'gcs//bucket'",
        ),
    ],
)
def test_one_mistake_is_one_problem_at_its_very_key(tmp_path: Path, before: str, after: str, told: str) -> None:
    project = create_project("returns", tmp_path)
    _replace(project / "project.yaml", before, after)
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    first, *problems = str(caught.value).splitlines()
    assert first.startswith("1 problem ") and re.match(rf"  - project\.yaml:\d+: {told}", problems[0]), str(
        caught.value
    )
    line = int(problems[0].split(":")[1])
    key = told.partition(": ")[0].rpartition(".")[2]
    assert key in (project / "project.yaml").read_text().splitlines()[line - 1]


def test_what_else_is_wrong_is_told_beside_a_loss_of_another_task(tmp_path: Path) -> None:
    project = create_project("returns", tmp_path)
    _replace(
        project / "project.yaml", "    hidden: [64, 32]\n", "    hidden: [64, 0]\n  loss: {kind: huber, delta: 2.0}\n"
    )
    _replace(project / "policy.yaml", "[log_loss]", "[rmse]")
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    for found in ("3 problems", "training.model.hidden.1: ", "training.loss.kind: expected binary", "found rmse"):
        assert found in str(caught.value), str(caught.value)


def test_a_label_of_another_task_than_all_else_is_told_once(tmp_path: Path) -> None:
    project = create_project("returns", tmp_path)
    task = 'task="regression", arrives=Available("known_at")'
    _replace(project / "features/definitions.py", 'arrives=Available("known_at")', task)
    with pytest.raises(ConfigurationError, match=r"(?s)^1 problem .*training.loss.kind: expected mse or huber, as"):
        check_project(project)


@pytest.mark.parametrize(
    ("file", "before", "after", "told"),
    [
        (
            "features/feature_store.yaml",
            "type: sqlite",
            "type: sqllite",
            r"feature_store\.yaml:\d+: online_store\.type: expected one of sqlite, redis \(did you mean sqlite\?\)",
        ),
        (
            "features/feature_store.yaml",
            "AsofOfflineStore",
            "AsofOflineStore",
            r"feature_store\.yaml:\d+: offline_store\.type: expected gatehouse\..*AsofOfflineStore, the only one",
        ),
        (
            "features/definitions.py",
            'views=("order_content",',
            'views=("order_contents",',
            r"definitions\.py: order_return: views: no FeatureView 'order_contents' \(did you mean order_content\?\)$",
        ),
        (
            "features/definitions.py",
            "window=timedelta(0)",
            'window="1d"',
            r"definitions\.py: FeatureView order_content: window: .* found '1d'; write window=timedelta\(days=1\)$",
        ),
        (
            "features/definitions.py",
            "window=timedelta(0)",
            "windw=timedelta(0)",
            r"definitions\.py: FeatureView .*: windw: there is no such argument \(did you mean window\?\)$",
        ),
        (
            "features/definitions.py",
            'Entity(name="order_id")',
            'Entity(name="order_id", type="str")',
            r"definitions\.py: Entity order_id: type: expected one of string, int64 \(did you mean string\?\)",
        ),
        (
            "features/definitions.py",
            '"categorical", "amount"',
            '"categorical" "amount"',
            r"definitions\.py:\d+: is no Python: invalid syntax.*, found '.*\"amount\".*'\. Often a comma",
        ),
        (
            "contract.yaml",
            "unique: [[order_id]]",
            "unique: [order_id, amount]",
            r"contract\.yaml:\d+: tables\.orders\.unique: expected lists of columns, found \[order_id, amount\]; "
            r"write \[\[order_id, amount\]\] for all together, or \[\[order_id\], \[amount\]\] for each on its own$",
        ),
    ],
)
def test_one_mistake_of_another_file_is_one_problem(
    tmp_path: Path, file: str, before: str, after: str, told: str
) -> None:
    project = create_project("returns", tmp_path)
    _replace(project / file, before, after)
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    first, *problems = str(caught.value).splitlines()
    assert first.startswith("1 problem ") and re.search(told, problems[0]), str(caught.value)


_SECRET = "hunter2"


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("project.yaml", "  kind: files\n", f"  kind: files\n  password: {_SECRET}\n"),
        ("project.yaml", "  kind: files\n", f"  kind: files\n  x: postgresql://u:pa/{_SECRET}@h/db\n"),
        ("project.yaml", "  kind: files\n", f"  kind: postgresql://u:p@{_SECRET}@h/db\n"),
        ("project.yaml", "  kind: files\n", f"  kind: postgresql://u:p/{_SECRET}@h/db\n"),
        ("project.yaml", "store: .gatehouse/store", f"store: ftp://u:p/{_SECRET}@h/db"),
        ("project.yaml", "store: .gatehouse/store", f"store: [{{password: {_SECRET}}}]"),
        ("project.yaml", "  path: data\n", f"  path: s3://u:{_SECRET}@bucket\n"),
        ("project.yaml", "  gap: P30D", f"  gap: postgresql://u:p/{_SECRET}@h/db"),
        ("project.yaml", 'training: ""', f"training: {{cron: 'x://u:p/{_SECRET}@h'}}"),
        ("contract.yaml", "owner: nobody yet", f"password: {_SECRET}"),
        ("policy.yaml", "approval: automatic", f"approval: a://u:p/{_SECRET}@h"),
        ("features/feature_store.yaml", "type: sqlite", f"type: redis://u:p/{_SECRET}@h"),
        ("features/feature_store.yaml", "project: returns", f"project: redis://:p@{_SECRET}@h"),
        ("features/definitions.py", 'entities=("customer_id",)', f'entities="a://u:p/{_SECRET}@h"'),
    ],
)
def test_no_password_is_told(tmp_path: Path, file: str, before: str, after: str) -> None:
    project = create_project("returns", tmp_path)
    _replace(project / file, before, after)
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    assert _SECRET not in str(caught.value)
    key = after.strip().splitlines()[-1].partition(":")[0].strip().partition("=")[0]
    assert f"{key}:" in str(caught.value) or f"{key}." in str(caught.value)


def test_no_traceback_holds_what_a_person_wrote() -> None:
    with pytest.raises(ValidationError) as caught:
        ProjectFile.model_validate({"name": "n", "source": {"kind": "files", "password": _SECRET}, "store": [_SECRET]})
    assert _SECRET not in str(caught.value) + repr(caught.value)
    with pytest.raises(ValidationError) as caught:
        train_spec({"seed": _SECRET})
    assert _SECRET not in str(caught.value)


@pytest.mark.parametrize("kind", ["squared", "mae", "pairwise"])
def test_a_loss_that_is_none_is_answered_with_those_of_the_label(tmp_path: Path, kind: str) -> None:
    project = create_project("returns", tmp_path)
    _replace(
        project / "project.yaml", "    hidden: [64, 32]\n", f"    hidden: [64, 32]\n  loss: {{kind: {kind}, x: 1}}\n"
    )
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    told = f"training.loss.kind: expected binary, as the label's task in features is binary, found '{kind}'"
    assert str(caught.value).count("training.loss") == 1 and told in str(caught.value)


def test_a_character_that_looks_like_another_is_named() -> None:
    assert nearest("s\u0435ed", ["seed"]) == " (did you mean seed? It holds CYRILLIC SMALL LETTER IE)"
    assert nearest("seed\u200b", ["seed"]) == " (did you mean seed? It holds ZERO WIDTH SPACE)"
    assert nearest("gr\u00f6se", ["gr\u00f6sse"]) == " (did you mean gr\u00f6sse?)"


@pytest.mark.parametrize(
    ("file", "before", "after", "told"),
    [
        (
            "project.yaml",
            "contract: contract.yaml",
            "contract: 5",
            "project.yaml:33: contract: expected a text, found 5; ",
        ),
        (
            "project.yaml",
            "contract: contract.yaml",
            "contract: ''",
            "project.yaml:33: contract: expected to have at least",
        ),
        (
            "project.yaml",
            "contract: contract.yaml",
            "contract: features",
            "features: expected a file in .*, found a fold",
        ),
        (
            "project.yaml",
            "contract: contract.yaml",
            f"contract: {'a' * 300}",
            "a: expected a file that can be read, found",
        ),
        (
            "project.yaml",
            "contract: contract.yaml",
            'contract: "a\\0b"',
            "expected a file that can be read, found none .*null",
        ),
        (
            "project.yaml",
            "repo: features",
            "repo: nothing",
            "project.yaml:37: features.repo: expected a folder with defin",
        ),
        ("project.yaml", "repo: features", "repo:", "project.yaml:37: features.repo: expected a text, found nothing$"),
        (
            "project.yaml",
            "slices: [category]",
            "slices: [no]",
            "slices.0: expected a text, found false; put it in quotes$",
        ),
        ("project.yaml", "batch_size: 512", "batch_size: -5", "batch_size: expected at least 1, found -5$"),
        (
            "project.yaml",
            "train_until: 2024-07-01",
            "train_until: 2024-02-30",
            "expected a day of the calendar, such as 2",
        ),
        (
            "project.yaml",
            "validation_until: 2024-09-01",
            "validation_until: 2024-05-01",
            "found 2024-07-01 00:00, 2024-05",
        ),
        (
            "project.yaml",
            "store: .gatehouse",
            "store: \u201c.gatehouse",
            "in quotes that YAML does not know; write none$",
        ),
        (
            "features/feature_store.yaml",
            "provider: local",
            "provider: local\nprovider: aws",
            "4: provider: stands twice; ke",
        ),
    ],
)
def test_one_mistake_is_told_once_and_plainly(tmp_path: Path, file: str, before: str, after: str, told: str) -> None:
    project = create_project("returns", tmp_path)
    _replace(project / file, before, after)
    with pytest.raises(ConfigurationError, match=f"(?s)^1 problem .*{told}"):
        check_project(project)
