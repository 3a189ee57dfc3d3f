"""JSON lines: values exactly as they are, whatever stands beside them, and a bad row is named or set aside alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.files import FileTable
from gatehouse.data.sources.json_rows import read_json_lines
from gatehouse.errors import DeliveryError, SourceError
from tests.data.snapshot.conftest import Events

REJECT = {"on_invalid": "reject", "reject_limit": 1.0}


def _rows(text: str, kind: str, **more: Any) -> Raw:
    spec = FileTable.model_validate({"member": "t.jsonl", "columns": {"v": kind, "w": "string"}} | more)
    lines = text.encode().split(b"\n")
    return read_json_lines(lines, spec, name="t", place=lambda number: f"t.jsonl, line {number + 1}")


def _read(values: list[str], kind: str = "int64", **more: Any) -> Raw:
    return _rows("".join(f'{{"v": {value}, "w": "x"}}\n' for value in values), kind, **more)


def test_a_whole_number_that_a_double_would_round_is_refused_whatever_stands_beside_it() -> None:
    for beside in ("1", "0.5"):
        with pytest.raises(SourceError, match="line 1, column v: expected double"):
            _read(["9007199254740993", beside], "double")
    assert _read(["9007199254740992", "1e300", "0.5"], "double").table["v"].to_pylist() == [2.0**53, 1e300, 0.5]


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-9, 9).map(float), st.none()), max_size=20))
@settings(max_examples=100, deadline=None)
def test_any_whole_numbers_come_back(values: list[float | None]) -> None:
    rows = _read([json.dumps(value) for value in values]).table["v"].to_pylist()
    assert rows == values


ODD = ['"x"', "1.5", "true", "[1]", "{", "9223372036854775808", "1e19"]


@pytest.mark.parametrize("odd", ODD)
def test_a_row_that_does_not_fit_is_named_or_set_aside_alone(odd: str) -> None:
    text = f'{{"v": 1, "w": "a"}}\n\n{{"v": {odd}}}\n{{"v": 3, "w": "c"}}\n'
    with pytest.raises(SourceError, match=r"Table t: t\.jsonl, line 3,"):
        _rows(text, "int64")
    raw = _rows(text, "int64", **REJECT)
    assert raw.table.to_pylist() == [{"v": 1, "w": "a"}, {"v": 3, "w": "c"}]
    assert raw.rejected is not None and raw.rejected["place"].to_pylist() == ["t.jsonl, line 3"]


@pytest.mark.parametrize("line", ['{"v": "secret", "w": "secret"}', '{"v": "secret"'])
def test_sensitive_values_are_in_no_rejected_row(line: str) -> None:
    raw = _rows(line, "int64", sensitive=["w"], **REJECT)
    assert raw.rejected is not None and "secret" not in str(raw.rejected.to_pylist())


def _lines(start: int, stop: int, value: Any, **more: Any) -> str:
    return "".join(
        json.dumps({"id": i, "at": f"2024-01-01T{i // 60:02d}:{i % 60:02d}:00Z", "value": value(i)} | more) + "\n"
        for i in range(start, stop)
    )


def test_whole_numbers_in_a_column_of_doubles_are_no_other_type(events: Events) -> None:
    events.table = {"member": "e.jsonl"}
    file = Path(events.folder / "e.jsonl")
    file.write_text(_lines(0, 100, lambda i: i + 0.5))
    events.take()
    file.write_text(_lines(0, 100, lambda i: i + 0.5) + _lines(100, 200, int))
    assert events.take().warnings == ()


def test_a_text_in_place_of_a_number_is_another_type(events: Events) -> None:
    events.table = {
        "member": "e.jsonl",
        "columns": {"id": "int64", "at": "timestamp"},
        "guards": {"new_column": "warn"},
    }
    file = Path(events.folder / "e.jsonl")
    file.write_text(_lines(0, 100, int))
    events.take()
    file.write_text(_lines(0, 100, int) + _lines(100, 200, str))
    with pytest.raises(DeliveryError, match=r"retyped_column: value \(was number, is text\)"):
        events.take()
