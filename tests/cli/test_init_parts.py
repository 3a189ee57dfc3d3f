"""A project made of a table: test has as many of few rows as the gate wants to judge, and features their digits."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gatehouse.cli import init_from
from gatehouse.cli.main import _register, app
from gatehouse.data.splitting.spec import Fractions, RandomSplit, TimeSplit
from gatehouse.evaluation.rules.enough_rows import LEAST_TEST_ROWS
from gatehouse.project.checking import check_project


@pytest.mark.parametrize(
    ("rows", "test"), [(240, 0.15), (250, 0.4), (400, 0.31), (833, 0.15), (9_000, 0.15), (0, 0.15)]
)
def test_the_test_part_has_the_rows_that_the_gate_wants_if_it_can(rows: int, test: float) -> None:
    shares = init_from.shares_of(rows)
    assert (shares.test, shares.validation) == (test, 0.15)
    assert shares.test * rows >= LEAST_TEST_ROWS or rows < 2.5 * LEAST_TEST_ROWS


@pytest.mark.parametrize("time", ["at", "none"])
def test_few_rows_are_divided_so_that_the_gate_can_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: str
) -> None:
    monkeypatch.chdir(tmp_path)
    _register("init")
    lines = "".join(f"2024-{n // 28 % 12 + 1:02}-{n % 28 + 1:02},{n % 17},{n * n % 5}\n" for n in range(400))
    Path("few.csv").write_text(f"at,x,y\n{lines}")
    words = ["init", "few", "--from", "few.csv", "--label", "y", "--task", "regression", "--time", time]
    told = CliRunner().invoke(app, words, catch_exceptions=False).output
    split = check_project(tmp_path / "few").file.split
    assert "validation" in told and "The gate lets no model pass" not in told
    if isinstance(split, RandomSplit):
        assert split.fractions == Fractions(train=0.54, validation=0.15, test=0.31)
    else:
        assert isinstance(split, TimeSplit) and time == "at"
        test = re.search(r"test (\d+)", told)
        assert test and int(test[1]) >= LEAST_TEST_ROWS


def test_whole_numbers_that_32_bits_do_not_tell_apart_are_doubles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _register("init")
    lines = (f"{n},2024-01-{1 + n % 28:02},{17031081000 + 7 * (n % 60)},{n % 9},{n % 2}\n" for n in range(300))
    Path("shops.csv").write_text(f"id,at,tract,size,y\n{''.join(lines)}")
    words = ["init", "shops", "--from", "shops.csv", "--label", "y", "--positive", "1"]
    CliRunner().invoke(app, words, catch_exceptions=False)
    text = Path("shops/features/definitions.py").read_text()
    assert '"tract": "double"' in text and '"size": "numeric"' in text
