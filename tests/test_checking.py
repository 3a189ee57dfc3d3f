"""`gatehouse check`: one mistake after the other in a project; each is found, and told with thing, place and cure."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

import gatehouse
from gatehouse.checking import check_project
from gatehouse.commands.init import create_project
from gatehouse.errors import ConfigurationError

EXAMPLE = Path(gatehouse.__file__).parent / "pipelines" / "projects" / "flights"
PROJECT, CONTRACT, POLICY, DEFINITIONS = "project.yaml", "contract.yaml", "policy.yaml", "features/definitions.py"
STAGING, VIEW, HISTORY = (
    "features/staging/orders.sql",
    "features/views/order_content.sql",
    "features/views/customer_history.sql",
)
LABEL, KNOWN = "features/labels/returned.sql", "features/known/orders.sql"

MISTAKES = {
    "a key that is misspelled": (PROJECT, "tuning:", "tunning:", r"project.yaml:\d+: tunning: .*did you mean tuning"),
    "a key of a group": (PROJECT, "batch_size:", "batchsize:", r"data\.batchsize: .*did you mean batch_size"),
    "a number as text": (PROJECT, "epochs: 5", "epochs: five", r"stopping\.epochs: .*found 'five'"),
    "a number out of range": (PROJECT, "learning_rate: 0.001", "learning_rate: -1", r"optimizer\.learning_rate: .*-1"),
    "no YAML": (
        PROJECT,
        "store: .gatehouse",
        "store: [.gatehouse",
        r"project.yaml:8: is not YAML: found \[ that is never closed",
    ),
    "a key twice": (PROJECT, "model: {name}\n", "model: {name}\nmodel: {name}\n", r"model: stands twice"),
    "an architecture that is none": (
        PROJECT,
        "tabular_mlp",
        "tabular_mpl",
        r"training\.model\.architecture: .*tabular_mpl",
    ),
    **{
        f"a boundary of {found}": (
            PROJECT,
            "train_until: 2024-07-01",
            f"train_until: {found}",
            rf"1 problem .*train_until: expected a time such as 2024-07-01, or a duration .* P90D, found '{found}'$",
        )
        for found in ("81 days", "-P81D", "P0D")
    },
    "boundaries out of order": (PROJECT, "train_until: 2024-07-01", "train_until: 2025-07-01", r"split.*train_until <"),
    "a strategy that is none": (PROJECT, "  gap: P30D", "  gap: P30D\n  strategy: tme", r"split\.strategy: .*'tme'"),
    "a type that is none": (
        PROJECT,
        "amount: double",
        "amount: number",
        r":27: source\.tables\.orders\.columns\.amount: .*'number'",
    ),
    "an event time that is no column": (
        PROJECT,
        "event_time: placed_at",
        "event_time: placed",
        r"event_time: .*'placed'",
    ),
    "no event time": (PROJECT, "      event_time: placed_at\n", "", r"expected an event_time in one of them"),
    "a kind of source that is none": (PROJECT, "kind: files", "kind: file", r"source\.kind: .*'file'"),
    "no such service": (PROJECT, "service: order_return", "service: order_returns", r"did you mean order_return\?"),
    "a loss that is not for the label's task": (
        DEFINITIONS,
        'arrives=Available("known_at"),',
        'arrives=Available("known_at"), task="regression",',
        r"training\.loss\.kind: expected mse or huber, as the label's task in features is regression, found 'binary'",
    ),
    "no such slice": (PROJECT, "slices: [category]", "slices: [categry]", r"slices\.0: .*did you mean category\?"),
    "a slice like no column": (PROJECT, "[category]", "[email]", r"slices\.0: .*found 'email'; there are .*category"),
    "slices that are no list": (
        PROJECT,
        "slices: [category]",
        "slices: category",
        r"1 problem .*slices: expected a list of values, or keys with values, found 'category'$",
    ),
    "a slice that is no expression": (
        PROJECT,
        "slices: [category]",
        "slices: {odd: categry = 1}",
        r"project\.yaml:\d+: evaluation\.slices\.odd: expected columns of the training set, found categry in",
    ),
    "a protected column that is none": (
        PROJECT,
        "slices: [category]",
        "slices: [category]\n  protected: [categry]",
        r"project\.yaml:\d+: evaluation\.protected: expected a column "
        r"of the training set, found 'categry'.*mean category\?.*`keeps`",
    ),
    "a protected column that the training set lacks": (
        CONTRACT,
        "settled_at: {",
        "settled_at: {{protected: true, ",
        r"contract\.yaml:16: tables\.orders\.columns\.settled_at\.protected: expected a column .*'settled_at'",
    ),
    "fairness by a column that is not protected": (
        POLICY,
        "slices:",
        "fairness: {{category: {{equal_opportunity_difference: 0.1}}}}\nslices:",
        r"policy\.yaml:\d+: fairness\.category: expected a column "
        r"that contract.yaml or evaluation.protected calls protected \(none\)",
    ),
    "a column that is kept and there already": (
        DEFINITIONS,
        'arrives=Available("known_at"),',
        'arrives=Available("known_at"), keeps=("label",),',
        r"keeps: label: in the training set already",
    ),
    "limits on slices, and no slices": (
        PROJECT,
        "slices: [category]",
        "slices: []",
        r"policy\.yaml: slices: expected columns under evaluation\.slices in project\.yaml to judge by roc_auc, found",
    ),
    "an ignored feature that is none": (
        PROJECT,
        "{{}}",
        "{{data_drift: {{ignore: [amont]}}}}",
        r"ignore\.0: .*did you mean amount\?",
    ),
    "a view that is none": (
        PROJECT,
        "  leakage_alarm",
        "  unchecked: {{history: ok}}\n  leakage_alarm",
        r"unchecked\.history",
    ),
    "no reason": (
        PROJECT,
        "  leakage_alarm",
        "  unchecked: {{order_content: ''}}\n  leakage_alarm",
        r"order_content: .*at least 1",
    ),
    "a blank reason": (
        PROJECT,
        "  leakage_alarm",
        "  unchecked: {{order_content: '  '}}\n  leakage_alarm",
        r"order_content: .*at least 1",
    ),
    "a parameter of no setting": (
        PROJECT,
        "name: model.dropout",
        "name: model.drop",
        r"tuning\.parameters\.1.*model\.drop",
    ),
    "an objective that is not measured": (
        PROJECT,
        "  max_trial_count: 4",
        "  max_trial_count: 4\n  objective: mse",
        r"tuning\.objective: .*mse",
    ),
    "a stage that is none": (
        PROJECT,
        "monitoring:",
        "resources: {{trian: {{cpu: 1}}}}\nmonitoring:",
        r"resources: .*found trian",
    ),
    "a stage without a pod": (
        PROJECT,
        "monitoring:",
        "resources: {{fit_baseline: {{cpu: 1}}}}\nmonitoring:",
        r"resources: .*found fit_baseline",
    ),
    "a batch of no row": (PROJECT, "batch_size: 512", "batch_size: 0", r"batch_size: .*found 0"),
    "a folder without definitions": (PROJECT, "repo: features", "repo: feature", r"features\.repo: expected a folder"),
    "a group that is no column": (
        PROJECT,
        "  gap: P30D",
        "  gap: P30D\n  checks: {{groups: [customer]}}",
        r"customer_id\?",
    ),
    "a table that the source lacks": (
        CONTRACT,
        "  orders:\n",
        "  order:\n",
        r"contract.yaml:\d+: tables\.order: .*did you mean orders\?",
    ),
    "a column that the source lacks": (CONTRACT, "amount: {", "amout: {", r"columns\.amout: .*did you mean amount\?"),
    "another type": (
        CONTRACT,
        "amount: {type: double, min: 0}",
        "amount: {type: int64}",
        r"amount\.type: expected double",
    ),
    "a rule that is none": (CONTRACT, "min: 0}", "minimum: 0}", r"amount.minimum: there is no such key"),
    "a unique column that is none": (CONTRACT, "[[order_id]]", "[[order]]", r"unique.*order"),
    "bounds the wrong way": (CONTRACT, "min: 0, max: 1", "min: 2, max: 1", r"returned.*min"),
    "a metric that is none": (POLICY, "log_loss]", "logloss]", r"must_beat_baseline.*logloss"),
    "a metric of another task": (POLICY, "roc_auc: {min: 0.6}", "rmse: {max: 1}", r"bars.*rmse"),
    "a bar the wrong way": (POLICY, "{min: 0.6}", "{min: 0.9, max: 0.6}", r"bars\.roc_auc: expected min <= max"),
    "a metric beyond its values": (
        POLICY,
        "{min: 0.6}",
        "{min: 60}",
        r"policy.yaml:\d+: bars\.roc_auc\.min: expected at most 1, .*found 60",
    ),
    "a bar that bounds nothing": (
        POLICY,
        "roc_auc: {min: 0.6}",
        "log_loss: {min: 0.3}",
        r"policy.yaml:\d+: bars\.log_loss: lower values of log_loss are better: expected max, found only min",
    ),
    "an alarm below the bar": (
        POLICY,
        "{min: 0.6}",
        "{min: 0.97}",
        r"policy.yaml:\d+: leakage_alarm\.roc_auc: expected a better value than the bar of 0\.97.*found 0\.95",
    ),
    "an alarm that rings for guesses": (
        POLICY,
        "{roc_auc: 0.95}",
        "{roc_auc: 0.4}",
        r"leakage_alarm\.roc_auc: expected more than 0\.5, the roc_auc of a model that guesses, found 0\.4",
    ),
    "an alarm of guesses": (POLICY, "{roc_auc: 0.95}", "{balanced_accuracy: 0.5}", r"more than 0\.5, .* guesses"),
    "an alarm beyond its values": (POLICY, "{roc_auc: 0.95}", "{roc_auc: 80}", r"leakage_alarm\.roc_auc: .*found 80"),
    "schedules with a pipeline, a parameter and a value that are none": (
        PROJECT,
        "schedules:\n",
        "schedules:\n  trainin: '@daily'\n  scoring: {{cron: '@daily', parameters: {{sinse: x}} }}\n"
        "  weekly: {{pipeline: training, cron: '@daily', parameters: {{seed: many}} }}\n",
        r"project.yaml:\d+: schedules\.trainin\.pipeline: expected one of training,.*did you mean training\?"
        r".*scoring\.parameters\.sinse: .*did you mean since\?.*seed: expected number_integer, found 'many'",
    ),
    "a schedule of five fields": (
        PROJECT,
        'training: ""',
        "training: 0 4 * * 1",
        r"project.yaml:\d+: schedules\.training: expected six fields .*found 5; put the seconds before it: 0 0 4",
    ),
    "a syntax error": (
        DEFINITIONS,
        "orders = Source(",
        "orders = Source((",
        r"definitions.py.*(invalid syntax|never closed)",
    ),
    "definitions that end the process": (
        DEFINITIONS,
        "orders = Source(",
        "exit(0)\norders = Source(",
        r"definitions.py.*SystemExit",
    ),
    "a lag as text": (
        DEFINITIONS,
        'arrives=Available("known_at")',
        'arrives=Available("known_at", lag="one day")',
        r"definitions.py:\d+: Available: lag: expected a length of time .*timedelta\(days=1\).*found 'one day'",
    ),
    "one text for several": (
        DEFINITIONS,
        'entities=("customer_id",)',
        'entities=("customer_id")',
        r"FeatureView customer_history: entities: expected a list of values.*its comma, found 'customer_id'",
    ),
    "a kind of feature that is none": (
        DEFINITIONS,
        '"amount": "numeric"',
        '"amount": "number"',
        r"FeatureView order_content: features\.amount: expected one of numeric, double, categorical.*, found 'number'",
    ),
    "a view without availability": (
        DEFINITIONS,
        '    available=Available("event_timestamp"),\n    window',
        "    window",
        "states no availability",
    ),
    "a view that the service lacks": (
        DEFINITIONS,
        '"customer_history"))',
        '"customer"))',
        r"no FeatureView 'customer'",
    ),
    "an entity that is none": (
        DEFINITIONS,
        'entities=("customer_id",)',
        'entities=("customer",)',
        r"no Entity 'customer'",
    ),
    "a feature that the query lacks": (
        DEFINITIONS,
        '"amount": "numeric"',
        '"amounts": "numeric"',
        r"order_content.sql: expected the columns amounts",
    ),
    "a raw column that is none": (
        STAGING,
        "    amount,",
        "    amounts,",
        r"staging/orders.sql does not run: .*amounts",
    ),
    "a raw table that is none": (STAGING, "raw.orders", "raw.order", r"staging/orders.sql does not run: .*order"),
    "SQL that does not parse": (VIEW, "SELECT", "SELCT", r"views/order_content.sql does not run: .*SELCT"),
    "a function that is none": (HISTORY, "count(*)", "cout(*)", r"views/customer_history.sql does not run: .*cout"),
    "a staging table that is none": (HISTORY, "staging.orders", "staging.order", r"customer_history.sql.*order"),
    "a name that Feast refuses": (
        "features/feature_store.yaml",
        "project: {name}",
        "project: my-{name}",
        r"feature_store.yaml:2: project: expected letters, digits and '_'.*found 'my-returns'; write my_returns",
    ),
    "a semicolon": (
        HISTORY,
        "ORDER BY known_at)",
        "ORDER BY known_at);",
        r"customer_history.sql:9: expected one SELECT.*remove it",
    ),
    "two statements": (
        VIEW,
        "FROM staging.orders",
        "FROM staging.orders; SELECT 1",
        r"order_content.sql:3: .*keep one",
    ),
    "no query": (STAGING, None, "-- to be written", r"staging/orders.sql: expected a query"),
    "a query that depends on the clock": (
        HISTORY,
        "WHERE known_at IS NOT NULL",
        "WHERE known_at < now()",
        r"customer_history.sql:8: expected the same rows at every run, found now; read getvariable\('as_of'\)",
    ),
    "a query that depends on chance": (
        STAGING,
        "    amount,",
        "    amount * random() AS amount,",
        r"orders.sql:6: .*found random",
    ),
    "an error's own line": (
        HISTORY,
        "sum(returned)",
        "sum(returnd)",
        r"customer_history.sql does not run: .*\(line 6: +sum\(returnd\)",
    ),
    "a time that is a text": (
        VIEW,
        "placed_at AS event_timestamp",
        "'2024-01-01' AS event_timestamp",
        r"views/order_content.sql: event_timestamp: expected a time .*found VARCHAR",
    ),
    "a label that is a text": (
        LABEL,
        "returned = 1 AS label",
        "category AS label",
        r"labels/returned.sql: label: expected 0 or 1 \(binary\), found VARCHAR",
    ),
    "a label that is not given": (LABEL, "AS label", "AS labl", r"labels/returned.sql.*label"),
    "a variable that is none": (
        KNOWN,
        "getvariable('since')",
        "getvariable('from_then')",
        r"known/orders.sql.*from_then",
    ),
    "a known column that is none": (
        KNOWN,
        "WHERE placed_at",
        "WHERE placed",
        r"known/orders.sql does not run: .*placed",
    ),
}
_OPAQUE = re.compile(r"__\w+|datetime\.|Traceback|Extra inputs|Field required|Input should|CAST\(")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return create_project("returns", tmp_path)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_found_and_told(project: Path, mistake: str) -> None:
    file, before, after, told = MISTAKES[mistake]
    before, after = (
        text and text.replace("{{", "{").replace("}}", "}").replace("{name}", "returns") for text in (before, after)
    )
    path = project / file
    text = path.read_text()
    assert text.count(before or "") >= 1, "this test plants nothing"
    path.write_text(text.replace(before, after, 1) if before else after)
    with pytest.raises(ConfigurationError, match=f"(?s){told}") as caught:
        check_project(project)
    message = str(caught.value)
    assert not _OPAQUE.search(message), message
    assert Path(file).name in message or mistake in (
        "a folder without definitions",
        "a loss that is not for the label's task",
        "a metric of another task",
        "a feature that the query lacks",
    ), message


def test_queries_that_nothing_reads_and_tables_without_a_history_are_found(project: Path) -> None:
    (project / KNOWN).rename(project / "features/known/order.sql")
    shutil.copy(project / VIEW, project / "features/views/order_contents.sql")
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    told = str(caught.value)
    assert "known/order.sql: expected a table of the source (orders) (did you mean orders?)" in told
    assert (
        "views/order_contents.sql: no FeatureView of this name in definitions.py (did you mean order_content?)" in told
    )
    assert "the view order_content cannot be checked for leakage, as there is no known/<table>.sql of orders" in told


def test_mistakes_of_files_queries_and_names_are_told_together(project: Path) -> None:
    planted = (
        (PROJECT, "slices: [category]", "slices: [colour]"),
        (POLICY, "log_loss]", "rmse]"),
        (CONTRACT, "amount: {", "amout: {"),
        (PROJECT, "      columns:", "      sensitive: [returned]\n      columns:"),
        (CONTRACT, "max: 1", "max: 1, psi: 0.2"),  # Of a sensitive column, no histogram is kept.
        (HISTORY, "count(*)", "cout(*)"),
        (KNOWN, "WHERE placed_at", "WHERE placed"),
    )
    for file, before, after in planted:
        path = project / file
        path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(ConfigurationError, match="6 problems in the project"):
        check_project(project)


def test_a_query_that_reads_what_does_not_run_is_not_blamed(project: Path) -> None:
    path = project / STAGING
    path.write_text(path.read_text().replace("    amount,", "    amounts,"))
    with pytest.raises(ConfigurationError, match="1 problem in the project"):
        check_project(project)


def test_no_query_is_blamed_for_a_broken_macro(project: Path) -> None:
    (project / "features/macros.sql").write_text("CREATE MACRO twice(x) AS (x +* 2);")
    (project / LABEL).write_text((project / LABEL).read_text().replace("returned = 1", "twice(returned) = 2"))
    with pytest.raises(ConfigurationError, match=r"(?s)1 problem in the project.*macros.sql does not run"):
        check_project(project)


def test_a_project_that_is_right_is_said_to_be(project: Path) -> None:
    assert check_project(project).name == "returns"
    for folder in EXAMPLE.parent.iterdir():
        assert check_project(folder).name == folder.name


def test_trials_that_want_more_cores_than_there_are_are_warned_of(project: Path) -> None:
    body = yaml.safe_load((project / PROJECT).read_text())
    assert check_project(project).warnings == ()
    body["tuning"]["parallel_trial_count"] = 1000
    body["resources"] = {"tune": {"cpu": "1500m"}}
    for store, where in {"store": "this machine has ", "gs://acme/store": "(resources.tune.cpu) has 1.5."}.items():
        (project / PROJECT).write_text(yaml.safe_dump(body | {"store": store}))
        (told,) = check_project(project).warnings
        assert "want 1000 cores" in told and where in told
