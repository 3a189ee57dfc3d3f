"""`gatehouse init --from`: a project from a table of one's own, whose columns are chosen by flags or by answers."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from sklearn.datasets import load_diabetes
from typer.testing import CliRunner

from gatehouse.cli import init_from, table_roles
from gatehouse.cli.init import create_project
from gatehouse.cli.main import _register, app
from gatehouse.cli.table_roles import Column, Wanted, chosen
from gatehouse.data.splitting.spec import TimeSplit
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.compilation.compiling import compile_pipeline
from gatehouse.kfp.compilation.policy import breaches
from gatehouse.kfp.compilation.specification import read_spec
from gatehouse.project.checking import check_project
from gatehouse.project.project import Project
from gatehouse.training.spec import task_of
from tests.compiling import with_a_short_stack

_register("init")


def _visits(folder: Path, rows: int = 400, prices: int = 7) -> Path:
    """Separated by `;`, with decimal commas, epoch times, names with blanks, and rows that are alike."""
    pairs = (n // 2 if prices < rows else n for n in range(rows))
    lines = (
        f"{1_700_000_000 + n * 9000};{n % prices},5;{('DE', 'FR', 'FR')[n % 3]};{n % 5};{('yes', 'no')[n % 2]}\n"
        for n in pairs
    )
    (folder / "visits.csv").write_text("visited at;Price (EUR);country;stars;bought\n" + "".join(lines))
    return folder / "visits.csv"


def _init(*arguments: object, answers: str | None = None, fails: bool = False) -> Result:
    result = CliRunner().invoke(app, ["init", *map(str, arguments)], input=answers)
    assert bool(result.exception) == fails, result.output
    return result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _keys(project: Project, table: str) -> tuple[int, int]:
    """Rows and different keys of the staging table that a made key is in."""
    query = (project.folder / "features" / "staging" / f"{table}.sql").read_text()
    file = project.folder / "data" / f"{table}.csv"
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA raw")
        connection.execute(f"CREATE TABLE raw.{table} AS FROM read_csv('{file}', delim=';', decimal_separator=',')")
        counted = connection.execute(f"SELECT count(*), count(DISTINCT row_key) FROM ({query})").fetchall()[0]
    return int(counted[0]), int(counted[1])


def test_boundaries_of_time_move_along_with_the_rows(folder: Path) -> None:
    told = _init("visits", "--from", _visits(folder), "--label", "bought", "--positive", "yes").output
    assert "few rows: train 206, validation 78, test 116. With fewer than 100 rows" in told
    assert "lets no model pass" not in told
    split = check_project(folder / "visits").file.split
    # Pairs of rows, 2.5 hours apart: the newest 184 rows are validation and test, the newest 124 are test.
    assert isinstance(split, TimeSplit)
    assert (split.train_until, split.validation_until) == (timedelta(days=10), timedelta(days=6))


def test_a_table_with_times_and_no_key(folder: Path) -> None:
    output = _init("visits", "--from", _visits(folder), "--label", "bought", "--positive", "yes", "--alarm", 0.9).output
    assert "predicts  bought = 'yes'" in output and "decided   visited at" in output
    assert "divided   by time, P" in output
    project = check_project(folder / "visits")
    assert project.file.split.strategy == "time" and project.file.features.leakage_alarm == 0.9
    assert project.policy.leakage_alarm == {"roc_auc": 0.9} and project.policy.must_beat_baseline == ("log_loss",)
    assert project.file.evaluation.slices == ("country",)
    definitions = (folder / "visits/features/definitions.py").read_text()
    assert '"price_eur": "numeric"' in definitions and '"country": "categorical"' in definitions
    assert "bought" not in definitions.split("features={")[1].split("}")[0]
    assert _keys(project, "visits") == (400, 400)


def test_the_made_key_of_rows_that_are_alike_does_not_tell_the_outcome(folder: Path) -> None:
    lines = "".join(f"{n // 2};{n // 2 % 3};{n % 2}\n" for n in range(400))
    (folder / "pairs.csv").write_text(f"x;y;bought\n{lines}")
    _init("pairs", "--from", folder / "pairs.csv", "--label", "bought")
    query = (folder / "pairs/features/staging/pairs.sql").read_text()
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA raw")
        connection.execute(f"CREATE TABLE raw.pairs AS SELECT *, now() AS delivered_at FROM '{folder / 'pairs.csv'}'")
        of_first = f"SELECT count(*), avg(bought), count(DISTINCT row_key) FROM ({query}) WHERE row_key LIKE '%-1'"
        assert connection.execute(of_first).fetchall() == [(200, pytest.approx(0.5, abs=0.15), 200)]
        many = f"SELECT count(DISTINCT row_key) FROM ({query})"
        assert connection.execute(many).fetchall() == [(400,)]


def test_what_a_person_should_know_of_the_rows_is_told(folder: Path) -> None:
    (folder / "tiny.csv").write_text("x,y\n" + "".join(f"{n % 17},{n % 2}\n" for n in range(200)))
    tiny = _init("tiny", "--from", folder / "tiny.csv", "--label", "y", "--positive", "1", "--key", "none").output
    assert "lets no model pass on fewer than 100 test rows" in " ".join(tiny.split())
    told = _init("twice", "--from", _visits(folder, 16_000), "--label", "bought", "--task", "multiclass").output
    assert "bought has two values (no, yes), for which --task binary is made, not multiclass." in told
    assert "few rows" not in told and "divided   by time, P250D and P125D before" in told
    rows = "".join(f"{2203 if n == 9 else 2020}-01-0{n % 9 + 1},{n % 7},{n % 3}\n" for n in range(400))
    (folder / "late.csv").write_text("at,price,stars\n" + rows)
    late = _init("late", "--from", folder / "late.csv", "--label", "price", "--task", "regression").output
    assert "warning: Table late: future: the newest row is of 2203-01-01" in late


@pytest.mark.parametrize(
    ("again", "missing", "flaw"),
    [
        (3, 0, "repeats in 3 rows"),
        (0, 1, "is missing in 1 row"),
        (1, 2, "is missing in 2 rows and repeats in 1 row"),
    ],
)
def test_a_key_that_a_few_rows_repeat_or_lack_is_no_feature(folder: Path, again: int, missing: int, flaw: str) -> None:
    rows = [f",{n % 7}.5,{n % 5},{('yes', 'no')[n % 2]}\n" for n in range(300)]
    keyed = [f"{n}{row}" for n, row in enumerate(rows)]
    text = "".join([*keyed, *keyed[:again], *rows[:missing]])
    (folder / "houses.csv").write_text("house_id,area,rooms,sold\n" + text)
    told = _init("houses", "--from", "houses.csv", "--label", "sold", "--positive", "yes").output
    assert "from      area, rooms\n" in told and "key       made of each row's values" in told
    assert f"house_id: would tell rows apart, but it {flaw}: once these are gone, --key house_id" in told


def test_infinite_values_are_told_and_become_nulls(folder: Path) -> None:
    rows = "".join(f"{n},2024-01-{1 + n // 8:02}T10:00:00Z,{n % 7}.5,{n % 5},{n}.25\n" for n in range(200))
    rows = rows.replace("3,2024-01-01T10:00:00Z,3.5,", "3,2024-01-01T10:00:00Z,inf,").replace(",17.25", ",-inf")
    (folder / "houses.csv").write_text("house,sold at,Area,rooms,price\n" + rows)
    told = _init("houses", "--from", "houses.csv", "--label", "price", "--task", "regression").output
    assert "Area has 1 infinite value, price has 1 infinite value: features/staging/houses.sql gives nulls" in told
    staging = (folder / "houses" / "features" / "staging" / "houses.sql").read_text()
    assert 'if(isfinite("Area"), "Area", NULL) AS area' in staging and "NULL) AS price" in staging


def test_spellings_of_one_value_of_the_label_are_told(folder: Path) -> None:
    said = ["yes", "no", "Yes", "yes ", "no", "maybe"]
    lines = [f"{row},{row * 7 % 11},{said[row % 6]}" for row in range(600)]
    (folder / "asked.csv").write_text("\n".join(["number,size,answer", *lines]) + "\n")
    output = _init("asked", "--from", folder / "asked.csv", "--label", "answer", "--positive", "yes").output
    told = " ".join(output.split())
    assert "not the same value: 'Yes' in 100 rows, 'yes' in 100 rows, 'yes ' in 100 rows. Write them alike" in told


def test_a_table_without_times(folder: Path) -> None:
    _init("visits", "--from", _visits(folder), "--label", "stars", "--positive", ">= 3", "--time", "none")
    check_project(folder / "visits")
    assert "event_time: delivered_at" in (folder / "visits/project.yaml").read_text()
    assert "stars >= 3 AS label" in (folder / "visits/features/labels/stars.sql").read_text()


def test_a_project_is_not_there_before_it_is_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that one that is killed leaves none, which would exist already the next time."""
    write = init_from.write_files

    def write_unseen(target: Path, files: dict[str, str]) -> None:
        write(target, files)
        assert not (folder / "visits").exists()

    monkeypatch.setattr(init_from, "write_files", write_unseen)
    told = _init("visits", "--from", _visits(folder), "--label", "stars", "--positive", ">= 3").output
    assert Path(told.partition("\nreport ")[2].split()[0]).is_file()
    assert check_project(folder / "visits") and sorted(path.name for path in folder.iterdir()) == [
        "visits",
        "visits.csv",
    ]
    assert (folder / "visits").stat().st_mode & 0o055


def test_rows_that_are_alike_stay_in_one_part(folder: Path) -> None:
    for name, step, strategy in (("survey", 150, "group"), ("measured", 1500, "stratified")):
        lines = "".join(f"{n % step / 4},{n % 7},{n % 2}\n" for n in range(1500))
        (folder / f"{name}.csv").write_text("age,score,answer\n" + lines)
        output = _init(name, "--from", folder / f"{name}.csv", "--label", "answer").output
        assert check_project(folder / name).file.split.strategy == strategy
        assert ("450 rows are each equal to an earlier one" in output) == (strategy == "group")


def test_numbers_since_1970_are_the_time_when_they_are_named(folder: Path) -> None:
    lines = "".join(f"{1_700_000_000_000 + n * 10**7},{n * 10**9 + 17 * 10**17},{n % 7},{n % 2}\n" for n in range(90))
    (folder / "e.csv").write_text("no 1,fine,n,y\n" + lines)
    asked = ("--from", folder / "e.csv", "--label", "y")
    output = " ".join(_init("e", *asked, "--time", "no 1").output.split())
    assert "may be milliseconds since 1970: then give --time 'no 1' to `gatehouse init`" in output
    assert "decided no 1" in output
    assert check_project(folder / "e").file.source.tables["e"].times == {"no 1": "milliseconds"}
    _init("f", *asked, "--time", "fine")
    assert check_project(folder / "f").file.source.tables["e"].times == {"fine": "nanoseconds"}


def test_rows_of_one_person_stay_in_one_part(folder: Path) -> None:
    lines = "".join(f"{n // 4},u{n % 60},{n % 7 / 2},{n // 4 % 40},{n * 7 % 3 // 2}\n" for n in range(400))
    (folder / "trips.csv").write_text("individual,user_id,cost,age,chosen\n" + lines)
    asked = ("--from", folder / "trips.csv", "--label", "chosen")
    assert "individual, user_id: may name something" in _init("plain", *asked, "--group", "none").output
    assert check_project(folder / "plain").file.split.strategy != "group"
    output = _init("grouped", *asked, "--group", "individual", "--key", "none").output
    assert "divided   by individual" in output and "\nuser_id: may name something" in output
    project = check_project(folder / "grouped")
    assert project.file.split.strategy == "group" and project.file.split.columns == ("individual",)
    definitions = (folder / "grouped/features/definitions.py").read_text()
    assert "keeps=('individual',)" in definitions and '"individual":' not in definitions


def _wide(folder: Path, columns: int = 120) -> Path:
    """Whole numbers, any of which may name something, and one person whose age stands in the last column."""
    rows = ([f"p{n // 5}", *(hash((n, each)) % 51 for each in range(columns)), n // 5 % 7, n % 2] for n in range(500))
    head = ["person", *(f"c{each}" for each in range(columns)), "age", "y"]
    (folder / "table.csv").write_text("\n".join(",".join(map(str, row)) for row in (head, *rows)))
    return folder / "table.csv"


def _chicks(folder: Path) -> Path:
    """Weights of 50 chicks, each weighed up to twelve times on its diet, as the package river ships them."""
    return shutil.copy(files("river") / "datasets" / "chick-weights.csv", folder / "table.csv")


def _prices(folder: Path) -> Path:
    """Gold and oil by day, of the same package: a day's row is one thing."""
    return shutil.copy(files("river") / "datasets" / "trump_approval.csv.gz", folder / "table.csv.gz")


def _patients(folder: Path) -> Path:
    """Ages, pressures and more of 442 patients, as scikit-learn ships them: equal ages are other people."""
    data = load_diabetes(scaled=False)
    lines = (
        f"{row[0]:.0f},{row[2]:.1f},{row[3]:.0f},{target > 140:d}"
        for row, target in zip(data.data, data.target, strict=True)
    )
    (folder / "table.csv").write_text("\n".join(["age,bmi,bp,ill", *lines, ""]))
    return folder / "table.csv"


def _sales(folder: Path) -> Path:
    """A shop's name comes back in a thousand rows; and so does each amount, in other shops."""
    lines = (f"s{n % 60},{n // 4 * 37 % 9973},{n % 7},{n * 7 % 3 // 2}" for n in range(12_000))
    (folder / "table.csv").write_text("\n".join(["shop_id,amount,weekday,returned", *lines, ""]))
    return folder / "table.csv"


@pytest.mark.parametrize(
    ("table", "label", "named"),
    [
        (_wide, ("y",), "person"),
        (_chicks, ("diet", "--task", "multiclass"), "chick"),
        (_prices, ("gallup", "--task", "regression"), ""),
        (_patients, ("ill",), ""),
        (_sales, ("returned",), ""),
    ],
)
def test_a_column_is_called_a_name_only_where_rows_belong_together(
    folder: Path, table: Callable[[Path], Path], label: tuple[str, ...], named: str
) -> None:
    output = _init("tried", "--from", table(folder), "--label", *label, "--key", "none").output
    found = [line.partition(":")[0] for line in output.splitlines() if "may name something" in line]
    assert found == ([named] if named else [])


def test_parquet_with_a_key_and_the_time_of_the_outcome(folder: Path) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    days = [start + timedelta(days=n) for n in range(100)]
    table = pa.table(
        {
            "Order": [f"o{n}" for n in range(100)],
            "placed": days,
            "settled": [day + timedelta(days=9) for day in days],
            "from": [float(n % 13) for n in range(100)],
            "refund": [float(n % 3) for n in range(100)],
            "class": [n % 3 == 0 for n in range(100)],
        }
    )
    pq.write_table(table, folder / "orders.parquet")
    more = ("--label", "class", "--key", "Order", "--known", "settled", "--without", "refund")
    output = _init("orders", "--from", folder / "orders.parquet", *more).output
    assert "key       Order" in output and "left out  refund: as you said" in output
    check_project(folder / "orders")
    assert "settled AS known_at" in (folder / "orders/features/labels/class.sql").read_text()
    known = (folder / "orders/features/known/orders.sql").read_text()
    assert """CASE WHEN "settled" <= getvariable('as_of') THEN "class" END AS "class\"""" in known
    assert '"from": "numeric"' in (folder / "orders/features/definitions.py").read_text()


@pytest.mark.parametrize(
    ("label", "task", "policy", "strategy", "alarm"),
    [
        ("stars", "regression", ("rmse", {"r2": 0.99}), "random", 0.995),
        ("stars", "multiclass", ("log_loss", {"accuracy": 0.99}), "stratified", 0.995),
    ],
)
def test_numbers_and_classes(
    folder: Path, label: str, task: str, policy: tuple[str, dict[str, float]], strategy: str, alarm: float
) -> None:
    output = _init("visits", "--from", _visits(folder, prices=400), "--label", label, "--task", task, "--time", "none")
    assert "has two values" not in output.output and "few rows: train 216," in output.output
    project = check_project(folder / "visits")
    assert project.file.split.strategy == strategy and task_of(project.file.training).name == task
    assert (project.policy.must_beat_baseline, project.policy.leakage_alarm) == ((policy[0],), policy[1])
    assert project.file.features.leakage_alarm == alarm
    definitions = (folder / "visits/features/definitions.py").read_text()
    assert f'task="{task}"' in definitions and ("classes=" in definitions) == (task == "multiclass")
    assert "stars AS label" in (folder / "visits/features/labels/stars.sql").read_text()


@pytest.mark.parametrize(
    ("kind", "texts", "wanted", "condition"),
    [
        ("bool", ("false", "true"), "", ""),
        ("bool", ("false", "true"), "false", "= false"),
        ("string", ("<=50K", ">50K"), ">50K", "= '>50K'"),
        ("double", (), ">= 7", ">= 7"),
    ],
)
def test_the_condition_of_a_positive_row(kind: str, texts: tuple[str, ...], wanted: str, condition: str) -> None:
    columns = {name: Column(name, kind, 2 if texts else 9, 0, texts) for name in ("label", "other")}
    asked = Wanted(label="label", positive=wanted)
    assert chosen(asked, columns, 100, "at").positive == condition


@pytest.mark.parametrize(("kind", "texts", "wanted"), [("double", (), ">= nan"), ("bool", ("false", "true"), "maybe")])
def test_a_condition_that_is_none_is_refused(kind: str, texts: tuple[str, ...], wanted: str) -> None:
    columns = {name: Column(name, kind, 2 if texts else 9, 0, texts) for name in ("label", "other")}
    with pytest.raises(ConfigurationError, match="--positive: expected"):
        chosen(Wanted(label="label", positive=wanted), columns, 100, "at")


def test_names_that_yaml_and_python_read_otherwise_are_quoted(folder: Path) -> None:
    lines = "".join(f"{2000 + n},{('yes', 'no')[n % 2]},{n % 5},{('a', 'b')[n % 2]}\n" for n in range(60))
    (folder / "odd.csv").write_text("at,No,amount,Paid: in time\n" + lines)
    _init("odd", "--from", folder / "odd.csv", "--label", "Paid: in time", "--positive", "a", "--time", "none")
    project = check_project(folder / "odd")
    assert project.file.description == "Predicts Paid: in time = 'a'." and project.file.evaluation.slices == ("no",)


def test_names_in_any_script_stay_and_definitions_are_called_in_ascii(folder: Path) -> None:
    lines = "".join(
        f"{n},{n % 7}.5,{n * n % 11},{('лес', 'море')[n % 2]},{('да', 'нет')[n % 3 % 2]}\n" for n in range(300)
    )
    (folder / "uni.csv").write_text("идентификатор,Größe (㎝),日本,место,метка\n" + lines)
    _init("uni", "--from", folder / "uni.csv", "--label", "метка", "--positive", "да")
    project = check_project(folder / "uni")
    assert project.file.evaluation.slices == ("место",)
    definitions = (folder / "uni/features/definitions.py").read_text()
    assert [name for name in ("größe_cm", "日本", "место") if f'"{name}": ' not in definitions] == []
    assert 'Entity(name="row_key", type="int64")' in definitions and "Predicts метка = 'да'." in definitions
    assert '"идентификатор" AS row_key' in (folder / "uni/features/staging/uni.sql").read_text()
    assert "метка = 'да' AS label" in (folder / "uni/features/labels/outcome.sql").read_text()
    spec = with_a_short_stack(compile_pipeline, "training", project, folder / "compiled")
    assert list(breaches(read_spec(spec))) == [], "specs are ASCII"


def test_a_person_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_roles, "someone_is_there", lambda: True)
    output = _init("visits", "--from", _visits(folder), answers="stars\nbinary\n>= 3\n").output
    assert "Which column is to be predicted (country, bought)" in output
    assert "predicts  stars >= 3" in output


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([], r"--label: which column is to be predicted \(country, bought\)\? There is no terminal"),
        (
            ["--label", "stars"],
            r"--task: which task is it to predict stars \(binary, multiclass or regression\)\? There is no t",
        ),
        (["--label", "country", "--task", "regression"], r"expected a column of numbers, found country"),
        (["--label", "stars", "--task", "regression", "--positive", "3"], r"--positive: expected --task binary"),
        (["--label", "bougt"], r"--label: expected a column of the file .*found 'bougt' \(did you mean bought\?\)\.$"),
        (
            ["--label", "visited at"],
            r"--label: expected a column with two values at least, .* found visited at, a time",
        ),
        (["--label", "Price (EUR)"], r"found Price \(EUR\), which has one value in all rows\.$"),
        (["--label", "nothing"], r"found nothing, which has no value in any row\.$"),
        (["--label", "bought", "--without", "bought"], r"found bought, which --without leaves out\.$"),
        (
            ["--label", "bought", "--positive", "yes", *(f"--without={each}" for each in ("stars", "country"))],
            r"to predict bought from, found none beside key and times, as these are left out: Price \(EUR\): the same "
            r"value in all rows; country: as you said; stars: as you said; nothing: no value in any row\.$",
        ),
        (["--label", "bought", "--positive", "maybe"], r"--positive: expected no or yes, found 'maybe'"),
        (["--label", "stars", "--positive", ">= 30"], r"expected a condition that some rows fulfil.* 0 rows that do"),
        (["--label", "bought", "--positive", "yes", "--key", "stars"], r"found stars with 5 values in 400 rows"),
        (["--label", "bought", "--time", "stars"], r"--time: expected a column .*times: \{stars: milliseconds\}"),
        (["--label", "bought", "--positive", "yes", "--time", "country"], r"--time: expected a column of times"),
        (["--label", "bought", "--positive", "yes", "--known", "country"], r"--known: expected a column of times"),
        (
            ["--label", "bought", "--positive", "yes", "--group", "bought"],
            r"--group: expected .* no time, key or label",
        ),
        (["--label", "bought", "--positive", "yes", "--without", "contry"], r"did you mean country\?"),
    ],
)
def test_what_cannot_be_is_told_and_nothing_is_left(folder: Path, more: list[str], told: str) -> None:
    table = _visits(folder, prices=1)
    table.write_text(
        "".join(f"{line};{'nothing' * (not n)}\n" for n, line in enumerate(table.read_text().splitlines()))
    )
    result = _init("visits", "--from", table, *more, fails=True)
    with pytest.raises(Exception, match=told):
        raise result.exception or AssertionError
    assert not result.output  # The error stands alone.
    assert not (folder / "visits").exists()


def test_a_name_with_hyphens_is_one_that_feast_takes(folder: Path) -> None:
    _init("web-visits", "--from", _visits(folder), "--label", "bought", "--positive", "yes")
    assert "project: web_visits\n" in (folder / "web-visits/features/feature_store.yaml").read_text()
    check_project(create_project("my-returns", folder))


def test_flags_of_a_table_need_one(folder: Path) -> None:
    assert "expected --from FILE" in str(_init("visits", "--label", "bought", fails=True).exception)
