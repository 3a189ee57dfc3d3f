"""`gatehouse data try`: one command from a file to a contract and a report, with files that packages ship."""

import re
from importlib import resources
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from gatehouse.cli.data import app
from gatehouse.data.snapshot.deliveries import delivered_tables
from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
from gatehouse.data.sources.catalog import parse_source, parse_source_json
from gatehouse.data.validation.contract import parse_contract
from gatehouse.reports.rendering import rendered
from gatehouse.store.canonical import canonical_json
from gatehouse.store.records import remove_record
from gatehouse.store.store import ArtifactStore


def _try(file: Path, store: ArtifactStore, *more: str, code: int = 0) -> Result:
    arguments = ["try", str(file), "--store", store.address, "--no-open", *more]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result


def test_from_a_file_to_a_report(tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = (f"{n},5;{'x' if n == 301 else n % 2}" if n % 100 else ";NA" for n in range(600))
    lines = "".join(f"{n};{1_700_000_000 + n};{each}\n" for n, each in enumerate(cells))
    (tmp_path / "Web visits.csv").write_text("id;timestamp;price;bought\n" + lines + lines.splitlines()[7])
    output = _try(tmp_path / "Web visits.csv", store).output
    assert "601 rows, separated by ';', UTF-8, decimal comma, missing values are empty cells, NA" in output
    assert re.search(r"price +double +6 *\n", output) and "\n1 row is equal to an earlier one in all columns" in output
    assert "seconds since 1970; orders the rows in time" in output
    assert "1 value of another type, its row is rejected (such as 'x')" in output
    assert "600 rows, 1 rejected" in output and "pass: inferred from these rows" in output
    pages = output.split("report ", 1)[1].splitlines()[0].split(", ")
    assert [Path(page.strip()).is_file() for page in pages] == [True, True]
    # The folder of a project that is made next has the file's name: no folder may stand in its place.
    assert f"gatehouse init web-visits --from '{tmp_path / 'Web visits.csv'}'" in output
    assert [path.name for path in tmp_path.iterdir() if path.is_dir() and path != Path(store.address)] == []
    folder = tmp_path / "written"
    _try(tmp_path / "Web visits.csv", store, "--out", str(folder))
    source = parse_source(yaml.safe_load((folder / "source.yaml").read_text())["source"])
    assert source.tables["web_visits"].event_time == "timestamp"
    assert (
        parse_contract((folder / "contract.yaml").read_text()).tables["web_visits"].columns["bought"].type.value
        == "int64"
    )


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_pages_and_the_contract_have_the_order_of_the_file(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    columns = {"zone": list(range(400)), "created": list(range(1_700_000_000, 1_700_000_400)), "amount": [1] * 400}
    rows = pa.table(columns)
    rows = pa.concat_tables([rows, rows.slice(7, 2)])
    if name == "t.csv":
        pa.csv.write_csv(rows, name)
    else:
        pq.write_table(rows, name)
    output = _try(tmp_path / name, store, "--out", "written").output
    contract = (tmp_path / "written" / "contract.yaml").read_text()
    assert list(parse_contract(contract).tables["t"].columns) == ["zone", "created", "amount"]
    page = Path(output.split("report ", 1)[1].splitlines()[0].split(", ")[0].strip()).read_text()
    cards = [card.split("</summary>")[0] for card in page.split('<details class="card')[1:]]
    assert [next(each for each in columns if each in card) for card in cards] == list(columns)
    assert "Written in the source as numbers: seconds since 1970." in page.split('<details class="card')[2]
    assert "2 rows are each equal to an earlier one in all columns" in page
    [snapshot] = store.references("snapshots")
    listed = rendered(store, snapshot).read_text()
    assert listed.index("zone</") < listed.index("created</") < listed.index("amount</")
    assert "numbers: seconds since 1970" in listed
    # A copy of the artifacts alone has no record of the delivery: then columns stand in the order of the dataset.
    assert [*delivered_tables(store, snapshot)["t"].columns] == list(columns)
    for key in list(store.objects.list("sources")):
        remove_record(store.objects, key)
    assert [*delivered_tables(store, snapshot)["t"].columns] == sorted(columns)


def test_the_zone_of_times_can_be_named_and_corrected_before_the_first_run(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "".join(f"2024-01-{1 + n:02d} 08:00:00,{n}\n" for n in range(20))
    (tmp_path / "t.csv").write_text(f"day,n\n{lines}")
    assert "UTC is assumed, unless --time-zone names another" in _try(tmp_path / "t.csv", store).output
    _try(tmp_path / "t.csv", store, "--out", "t", "--time-zone", "Europe/Rome")
    source = yaml.safe_load((tmp_path / "t/source.yaml").read_text())["source"]
    assert source["time_zone"] == "Europe/Rome"
    spec = parse_source_json(canonical_json(source | {"time_zone": "Europe/Lisbon"}))
    assert snapshot(SnapshotRequest(source=spec), store).warnings == ()
    (tmp_path / "t.csv").write_text("day,n\n" + lines.replace(" 08:00:00", "T08:00:00Z"))
    told = str(_try(tmp_path / "t.csv", store, "--time-zone", "Europe/Rome", code=1).exception)
    assert told == "--time-zone: expected a column of times that state no zone, found none in t.csv."


def test_a_column_that_looks_personal_is_shown_in_no_row_that_is_set_aside(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "".join(f"2024-01-{1 + n:02d},{n},anna{n}@example.org\n" for n in range(20))
    (tmp_path / "t.csv").write_text(f"day,n,email\n{lines}2024-02-01,bella@example.org,2\n2024-02-02,3,eve@x.org,4\n")
    output = _try(tmp_path / "t.csv", store, "--out", "t").output
    assert "its name looks personal: sensitive" in output and "20 rows, 2 rejected" in output
    told = CliRunner().invoke(app, ["rejected", "--store", store.address]).output
    assert "expected int64 or a null" in told and "@" not in told
    source = yaml.safe_load((tmp_path / "t" / "source.yaml").read_text())["source"]
    assert source["tables"]["t"]["sensitive"] == ["email"]


@pytest.mark.parametrize("moved", [10, 60])
def test_a_personal_value_that_moved_into_a_column_of_numbers_is_shown_nowhere(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = ("bella@example.org" if n % (600 // moved) == 0 else n for n in range(600))
    lines = "".join(f"{n},anna{n}@example.org,{cell}\n" for n, cell in enumerate(cells))
    (tmp_path / "t.csv").write_text("id,email,amount\n" + lines)
    output = _try(tmp_path / "t.csv", store, "--out", "made").output
    few = moved == 10
    assert ("10 values of another type, their rows are rejected (all are one text)" in output) == few
    assert ("text, as 60 of 600 values are no int64 (all are one text); sensitive" in output) != few
    source = yaml.safe_load((tmp_path / "made" / "source.yaml").read_text())["source"]
    assert source["tables"]["t"]["sensitive"] == (["email"] if few else ["amount", "email"])
    pages = [
        path.read_bytes() for path in Path(store.address).rglob("*") if path.suffix != ".parquet" and path.is_file()
    ]
    rejected = [row for path in Path(store.address).rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert any(b"amount" in page for page in pages) and not any(
        b"@example.org" in page for page in [output.encode(), *pages]
    )
    assert not any("bella" in str(row) for row in rejected if few or "raw" in row)


def test_a_word_among_numbers_is_told_and_may_be_a_missing_value(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "".join(f"{n},{'not there' if n % 40 == 0 else n}{',9' if n % 50 == 7 else ''}\n" for n in range(600))
    (tmp_path / "t.csv").write_text("id,x\n" + lines)
    output = _try(tmp_path / "t.csv", store).output
    assert "15 values of another type, their rows are rejected (all are 'not there')" in output
    assert "means a missing value: --nulls 'not there', which is `nulls: ['', NA, not there]` in the source" in output
    assert "27 of 600 rows (4.5%) do not fit and are rejected: the source needs reject_limit: 0.0675" in output
    output = _try(tmp_path / "t.csv", store, "--nulls", "not there", "--out", "made").output
    assert "x       int64       15" in output and "12 of 600 rows (2.0%) do not fit" in output
    source = yaml.safe_load((tmp_path / "made" / "source.yaml").read_text())["source"]
    assert source["nulls"] == ["", "NA", "not there"] and source["tables"]["t"]["reject_limit"] == 0.03


def test_numbers_with_signs_in_them_are_told(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("price;tax;n\n" + "".join(f"${n:,.2f};{n % 30}%;{n}\n" for n in range(600, 1600)))
    output = _try(tmp_path / "t.csv", store).output
    assert "numbers with a currency and commas between thousands stay text" in output
    assert "price, tax: numbers with signs in them are not read as numbers. Remove the signs from the file" in output
    assert "CAST(regexp_replace(\"price\", '[^0-9.-]', '', 'g') AS DOUBLE)" in output


@pytest.mark.parametrize(
    ("delimiter", "sign", "advice"),
    [
        (";", ",", 'set decimal: "," in the source, and declare the column as double'),
        (",", ",", "write points in their place in the file"),
        (";", ".", "declare the column as double"),
    ],
)
def test_an_ambiguous_number_is_told_with_what_to_do(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, delimiter: str, sign: str, advice: str
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = (f"{n * 7:,}".replace(",", sign) for n in range(600))
    lines = "".join(f'{n}{delimiter}"{cell}"\n' for n, cell in enumerate(cells))
    (tmp_path / "t.csv").write_text(f"id{delimiter}price\n{lines}")
    output = _try(tmp_path / "t.csv", store).output
    assert "may stand between thousands or before decimals, the file does not tell which" in output
    assert f"If before decimals, {advice}." in output and "numbers with signs in them are not read" not in output


def test_blanks_around_a_name_are_seen(tmp_path: Path, store: ArtifactStore) -> None:
    (tmp_path / "t.csv").write_text("id, price \n1,2\n2,3\n")
    assert re.search(r"^' price ' +int64", _try(tmp_path / "t.csv", store).output, re.MULTILINE)


def test_a_time_of_the_future_is_told(tmp_path: Path, store: ArtifactStore) -> None:
    (tmp_path / "t.csv").write_text("id,at\n1,2024-01-01T00:00:00Z\n2,2203-01-01T00:00:00Z\n")
    assert "warning: Table t: future: the newest row is of 2203-01-01" in _try(tmp_path / "t.csv", store).output


def test_a_name_in_brackets_is_shown_as_it_is(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"{'t' * 39}_of.csv"
    file.write_text("day,flow [l/s],[/bold]\n2024-01-01,1,2\n2024-01-02,2,3\n")
    output = _try(file, store).output
    assert "flow [l/s]" in output and "[/bold]" in output
    assert f"gatehouse init {'t' * 39} --from" in output, "a name that a project may have"


def test_files_that_are_there_are_not_written_over(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text("day,n\n2024-01-01,1\n2024-01-02,2\n")
    out = ("--out", str(tmp_path / "made"))
    _try(tmp_path / "t.csv", store, *out)
    (tmp_path / "made" / "contract.yaml").write_text("mine")
    assert "is there already" in str(_try(tmp_path / "t.csv", store, *out, code=1).exception)
    assert (tmp_path / "made" / "contract.yaml").read_text() == "mine"
    _try(tmp_path / "t.csv", store, *out, "--force")
    assert (tmp_path / "made" / "contract.yaml").read_text() != "mine"


def test_a_file_that_a_package_ships(tmp_path: Path, store: ArtifactStore) -> None:
    file = Path(str(resources.files("sklearn.datasets") / "data" / "linnerud_exercise.csv"))
    output = _try(file, store, "--out", str(tmp_path / "made")).output
    assert "20 rows, separated by" in output and "No column is read as a time" in output


def test_a_file_that_cannot_be_read_leaves_no_folder(tmp_path: Path, store: ArtifactStore) -> None:
    lines = "".join(f"2024-01-01,{n}\n" for n in range(9)) + '2024-01-01,"open\n'
    (tmp_path / "t.csv").write_text("day,n\n" + lines)
    _try(tmp_path / "t.csv", store, "--out", str(tmp_path / "made"), code=1)
    assert not (tmp_path / "made").exists()


def test_the_snapshot_is_the_one_that_a_run_takes(tmp_path: Path, store: ArtifactStore) -> None:
    (tmp_path / "t.csv").write_text("z,day,n\n1,2024-01-01,1\n2,2024-01-02,2\n")
    output = _try(tmp_path / "t.csv", store, "--out", str(tmp_path / "made")).output
    source = parse_source(yaml.safe_load((tmp_path / "made" / "source.yaml").read_text())["source"])
    slice_of_run = parse_source_json(canonical_json(source.model_dump(mode="json")))
    assert snapshot(SnapshotRequest(source=slice_of_run, force="again"), store).snapshot in output


def test_empty_lines_of_a_file_of_one_column_are_told(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("\nv\n1\n\n2\n\n\n3\n\n")
    output = _try(tmp_path / "t.csv", store).output
    assert (
        '3 empty lines between the rows: an empty line is no row. If it stands for a missing value, write ""' in output
    )
    (tmp_path / "t.csv").write_text('v\n1\n""\n3\n\n')
    output = _try(tmp_path / "t.csv", store).output
    assert "3 rows" in output and "empty line" not in output


def test_rows_of_another_width_are_told(tmp_path: Path, store: ArtifactStore) -> None:
    (tmp_path / "t.csv").write_text("z,day,n\n1,2024-01-01,1\n2,2024-01-02\n")
    output = _try(tmp_path / "t.csv", store, "--out", str(tmp_path / "made")).output
    assert "1 row has more or fewer cells than the header, it is rejected" in output and "1 row, 1 rejected" in output
