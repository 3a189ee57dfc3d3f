"""`gatehouse init`: a project from a template, or from a table whose columns get their roles by flags."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from gatehouse.api import projects
from gatehouse.cli.main import app, register
from gatehouse.data.splitting.spec import TimeSplit
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.compilation.compiling import compile_pipeline
from gatehouse.kfp.compilation.policy import breaches
from gatehouse.kfp.compilation.specification import read_spec
from gatehouse.project.checking import check_project
from gatehouse.training.spec import task_of


def _visits(folder: Path, rows: int = 400, prices: int = 7) -> Path:
    """Separated by `;`, with decimal commas, epoch times, names with blanks, and rows that are alike."""
    pairs = (n // 2 if prices < rows else n for n in range(rows))
    lines = (
        f"{1_700_000_000 + n * 9000};{n % prices},5;{('DE', 'FR', 'FR')[n % 3]};{n % 5};{('yes', 'no')[n % 2]}\n"
        for n in pairs
    )
    (folder / "visits.csv").write_text("visited at;Price (EUR);country;stars;bought\n" + "".join(lines))
    return folder / "visits.csv"


def _init(*arguments: object, fails: bool = False) -> Result:
    register("init")  # Other tests register other commands.
    result = CliRunner().invoke(app, ["init", *map(str, arguments)])
    assert bool(result.exception) == fails, result.output
    return result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_label_is_enough_for_a_table_with_times_and_no_key(folder: Path) -> None:
    output = _init("visits", "--from", _visits(folder), "--label", "bought", "--alarm", 0.9).output
    assert "predicts  bought = 'yes'" in output and "decided   visited at" in output and "by time, P10D" in output
    project = check_project(folder / "visits")
    split = project.file.split
    assert isinstance(split, TimeSplit)
    # Pairs of rows, 2.5 hours apart: the newest 184 rows are validation and test, the newest 124 are test.
    assert (split.train_until, split.validation_until) == (timedelta(days=10), timedelta(days=6))
    assert project.file.features.leakage_alarm == 0.9
    assert project.policy.leakage_alarm == {"roc_auc": 0.9} and project.policy.must_beat_baseline == ("log_loss",)
    assert project.file.evaluation.slices == ("country",)
    definitions = (folder / "visits/features/definitions.py").read_text()
    assert '"price_eur": "numeric"' in definitions and '"country": "categorical"' in definitions
    assert "bought" not in definitions.split("features={")[1].split("}")[0]
    query = (folder / "visits/features/staging/visits.sql").read_text()
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA raw")
        connection.execute("CREATE TABLE raw.visits AS FROM read_csv('visits.csv', delim=';', decimal_separator=',')")
        keys = f"SELECT count(*), count(DISTINCT row_key) FROM ({query})"
        assert connection.execute(keys).fetchall() == [(400, 400)]


def test_a_project_is_not_there_before_it_is_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is killed leaves no folder, which would exist already the next time."""
    fill = projects._fill

    def fill_unseen(template: Path, target: Path, values: dict[str, object]) -> None:
        fill(template, target, values)
        assert not (folder / "visits").exists()

    monkeypatch.setattr(projects, "_fill", fill_unseen)
    message = _init("visits", "--from", _visits(folder), "--label", "stars", "--positive", ">= 3").output
    assert Path(message.partition("\nreport ")[2].split()[0]).is_file()
    assert check_project(folder / "visits") and {path.name for path in folder.iterdir()} == {"visits", "visits.csv"}
    assert (folder / "visits").stat().st_mode & 0o055


def test_numbers_since_1970_are_the_time_when_they_are_named(folder: Path) -> None:
    lines = "".join(f"{1_700_000_000_000 + n * 10**7},{n % 7},{n % 2}\n" for n in range(90))
    (folder / "e.csv").write_text("no 1,n,y\n" + lines)
    output = " ".join(_init("e", "--from", folder / "e.csv", "--label", "y", "--time", "no 1").output.split())
    assert "may be milliseconds since 1970: --time of" in output and "decided no 1" in output
    assert check_project(folder / "e").file.source.tables["e"].times == {"no 1": "milliseconds"}


def test_parquet_with_a_key_and_the_time_of_the_outcome(folder: Path) -> None:
    days = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(100)]
    columns = {
        "Order": [f"o{n}" for n in range(100)],
        "placed": days,
        "settled": [day + timedelta(days=9) for day in days],
        "from": [float(n % 13) for n in range(100)],
        "refund": [float(n % 3) for n in range(100)],
        "class": [n % 3 == 0 for n in range(100)],
    }
    pq.write_table(pa.table(columns), folder / "orders.parquet")
    flags = ("--label", "class", "--known", "settled", "--without", "refund")
    output = " ".join(_init("orders", "--from", folder / "orders.parquet", *flags).output.split())
    assert " key Order " in output and "left out refund as you said" in output
    check_project(folder / "orders")
    assert "class = true AS label, settled AS known_at" in (folder / "orders/features/labels/class.sql").read_text()
    query = (folder / "orders/features/known/orders.sql").read_text()
    assert """CASE WHEN "settled" <= getvariable('as_of') THEN "class" END AS "class\"""" in query
    assert '"from": "numeric"' in (folder / "orders/features/definitions.py").read_text()


@pytest.mark.parametrize(
    ("label", "flags", "outcome", "task", "policy", "strategy"),
    [
        ("stars", (), "stars", "regression", ("rmse", {"r2": 0.99}), "random"),
        ("stars", ("--task", "multiclass"), "stars", "multiclass", ("log_loss", {"accuracy": 0.99}), "stratified"),
        ("stars", ("--positive", ">= 3"), "stars >= 3", "binary", ("log_loss", {"roc_auc": 0.95}), "stratified"),
        ("bought", ("--positive", "no"), "bought = 'no'", "binary", ("log_loss", {"roc_auc": 0.95}), "stratified"),
    ],
)
def test_the_label_has_the_task_of_its_values_or_of_the_flags(
    folder: Path,
    label: str,
    flags: tuple[str, ...],
    outcome: str,
    task: str,
    policy: tuple[str, dict[str, float]],
    strategy: str,
) -> None:
    _init("visits", "--from", _visits(folder, prices=400), "--label", label, "--time", "none", *flags)
    project = check_project(folder / "visits")
    assert project.file.split.strategy == strategy and task_of(project.file.training).name == task
    assert (project.policy.must_beat_baseline, project.policy.leakage_alarm) == ((policy[0],), policy[1])
    assert "event_time: delivered_at" in (folder / "visits/project.yaml").read_text()
    assert f", {outcome} AS label," in " ".join((folder / f"visits/features/labels/{label}.sql").read_text().split())


def test_names_in_any_script_stay_and_definitions_are_called_in_ascii(folder: Path) -> None:
    lines = "".join(
        f"{n},{n % 7}.5,{n * n % 11},{('лес', 'море')[n % 2]},{('да', 'нет')[n % 3 % 2]}\n" for n in range(300)
    )
    (folder / "uni.csv").write_text("идентификатор,Größe (㎝),日本,место,метка\n" + lines)
    _init("uni", "--from", folder / "uni.csv", "--label", "метка", "--positive", "да")
    project = check_project(folder / "uni")
    assert project.file.evaluation.slices == ("место",)
    definitions = (folder / "uni/features/definitions.py").read_text()
    assert all(f'"{name}": ' in definitions for name in ("größe_cm", "日本", "место"))
    assert 'Entity(name="row_key", type="int64")' in definitions and "Predicts метка = 'да'." in definitions
    assert '"идентификатор" AS row_key' in (folder / "uni/features/staging/uni.sql").read_text()
    assert "метка = 'да' AS label" in (folder / "uni/features/labels/outcome.sql").read_text()
    spec = compile_pipeline("training", project, folder / "compiled")
    assert list(breaches(read_spec(spec))) == [], "specs are ASCII"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--label: expected a column of the file"),
        (["--label", "country", "--task", "regression"], "--task regression: .* found country"),
        (["--label", "stars", "--task", "regression", "--positive", "3"], "--positive: expected --task binary"),
        (["--label", "bougt"], r"--label: .*found 'bougt' \(did you mean bought\?\)"),
        (["--label", "Price (EUR)"], r"--label: .* found Price \(EUR\) with 1"),
        (["--label", "bought", "--without", "bought"], "--label: .* found bought"),
        (["--label", "bought", "--without=stars", "--without=country"], "to predict bought from, found none"),
        (["--label", "bought", "--positive", "maybe"], "--positive: expected no or yes, found 'maybe'"),
        (["--label", "stars", "--positive", ">= nan"], "--positive: expected a number"),
        (["--label", "bought", "--key", "stars"], "--key: .* found stars with 5 values in 400 rows"),
        (["--label", "bought", "--time", "country"], "--time: expected a column of times"),
        (["--label", "bought", "--group", "bought"], "--group: expected"),
    ],
)
def test_what_does_not_fit_is_refused_alone_and_nothing_is_left(folder: Path, flags: list[str], message: str) -> None:
    result = _init("visits", "--from", _visits(folder, prices=1), *flags, fails=True)
    assert isinstance(result.exception, ConfigurationError)
    with pytest.raises(ConfigurationError, match=message):
        raise result.exception
    assert not result.output
    assert not (folder / "visits").exists()


def test_rare_labels_many_categories_and_percents_are_met(folder: Path) -> None:
    lines = (f"{n},{n % 13}.5%,v{n % 150},{'yes' if n % 11 == 0 else 'no'}\n" for n in range(600))
    (folder / "rare.csv").write_text("id,share,street_id,bought\n" + "".join(lines))
    output = _init("rare", "--from", "rare.csv", "--label", "bought").output
    assert (
        "street_id has 150 values" in output and "--without 'street_id'" in output and "--group 'street_id'" in output
    )
    project = check_project(folder / "rare")
    assert project.file.calibration is not None and project.file.calibration.threshold.rule == "f_beta"
    assert '"share": "numeric"' in (folder / "rare/features/definitions.py").read_text()
    with duckdb.connect() as connection:
        [data] = folder.glob("rare/.gatehouse/store/blobs/**/*.parquet")
        assert connection.execute(f"SELECT max(share) FROM read_parquet('{data}')").fetchall() == [(0.125,)]
    _init("even", "--from", _visits(folder), "--label", "bought")
    assert check_project(folder / "even").file.calibration is None
