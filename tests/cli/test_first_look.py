"""`gatehouse data try`: one command from a file to a contract and a report, with files that packages ship."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from gatehouse.api.projects import declared
from gatehouse.cli.data import app
from gatehouse.data.snapshot.sniffing import sniff
from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _try(file: Path | str, store: ArtifactStore, *more: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["try", str(file), "--store", store.address, "--no-open", *more])
    assert result.exit_code == code, result.output
    return result


def _source(file: str, *nulls: str, time_zone: str = "") -> dict[str, Any]:
    return declared(sniff(Path(file), nulls), Path(file).resolve(), "t", time_zone)


def test_from_a_file_to_a_report(tmp_path: Path, store: ArtifactStore) -> None:
    cells = (f"{n},5;{'x' if n == 301 else n % 2}" if n % 100 else ";NA" for n in range(600))
    lines = "".join(f"{n};{1_700_000_000 + n};{cell}\n" for n, cell in enumerate(cells))
    (tmp_path / "Web visits.csv").write_text("id;timestamp;price;bought\n" + lines + lines.splitlines()[7])
    output = _try(tmp_path / "Web visits.csv", store).output
    assert "601 rows, separated by ';', UTF-8, decimal comma, missing values are empty cells, NA" in output
    assert re.search(r"price +double +6 *\n", output) and "1 row repeat an earlier row" in output
    assert "seconds since 1970; orders the rows in time" in output
    assert "1 value of another type will be rejected" in output and "600 rows, 1 rejected" in output
    assert [Path(page).is_file() for page in re.findall(r"/\S+\.html", output)] == [True, True]
    # The folder of a project that is made next has the file's name: no folder may stand in its place.
    assert f"gatehouse init web-visits --from '{tmp_path / 'Web visits.csv'}'" in output
    assert [path.name for path in tmp_path.iterdir() if path.is_dir() and path != Path(store.address)] == []


def test_a_column_that_looks_personal_is_shown_in_no_row_that_is_rejected(store: ArtifactStore) -> None:
    lines = "".join(f"2024-01-{1 + n:02d},{n},anna{n}@example.org\n" for n in range(20))
    Path("t.csv").write_text(f"day,n,email\n{lines}2024-02-01,bella@example.org,2\n2024-02-02,3,eve@x.org,4\n")
    output = _try("t.csv", store).output
    assert "its name looks personal: sensitive" in output and "20 rows, 2 rejected" in output
    rejected = CliRunner().invoke(app, ["rejected", "--store", store.address]).output
    assert "int64" in rejected and "@" not in rejected
    assert _source("t.csv")["tables"]["t"]["sensitive"] == ["email"]


@pytest.mark.parametrize("moved", [10, 60])
def test_a_personal_value_that_moved_into_a_column_of_numbers_is_shown_nowhere(
    store: ArtifactStore, moved: int
) -> None:
    cells = ("bella@example.org" if n % (600 // moved) == 0 else n for n in range(600))
    lines = "".join(f"{n},anna{n}@example.org,{cell}\n" for n, cell in enumerate(cells))
    Path("t.csv").write_text("id,email,amount\n" + lines)
    output, few = _try("t.csv", store).output, moved == 10
    assert ("10 values of another type will be rejected" in output) == few
    assert ("text, because 60 values are not int64; sensitive" in output) != few
    assert _source("t.csv")["tables"]["t"]["sensitive"] == (["email"] if few else ["amount", "email"])
    files = [path for path in Path(store.address).rglob("*") if path.is_file()]
    pages = [path.read_bytes() for path in files if path.suffix != ".parquet"]
    assert any(b"amount" in page for page in pages)
    assert not any(b"@example.org" in page for page in [output.encode(), *pages])
    rows = [row for path in files if path.suffix == ".parquet" for row in pq.read_table(path).to_pylist()]
    assert not any("bella" in str(row) for row in rows if few or "raw" in row)


def test_the_snapshot_is_the_one_that_a_run_takes(store: ArtifactStore) -> None:
    Path("t.csv").write_text("z,day,n\n1,2024-01-01,1\n2,2024-01-02,2\n3,2024-01-02\n")
    output = _try("t.csv", store).output
    assert "1 row with more or fewer cells than the header will be rejected" in output
    spec = parse_source(json.loads(canonical_json(_source("t.csv"))))
    assert snapshot(SnapshotRequest(source=spec, force="again"), store).snapshot in output
