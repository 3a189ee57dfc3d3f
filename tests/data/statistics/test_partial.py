"""Measuring whole tables: threads, files and row groups change nothing, and what was measured is not measured again."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.data.statistics import columns, partial, partial_pieces
from gatehouse.data.statistics.partial import MeasuredTable, measured_files, merged_table, plans_of
from gatehouse.data.statistics.partial_pieces import packed, unpacked
from gatehouse.data.statistics.stage import MeasureRequest, measure
from gatehouse.data.validation.contract import CONTRACT_FILE
from gatehouse.data.validation.stage import ValidateRequest, validate
from gatehouse.errors import ConfigurationError
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import publish


def _table(rows: int) -> pa.Table:
    generator = np.random.default_rng(7)
    reals = generator.normal(size=rows)
    texts = pa.array([f"{number % 700:03d}" for number in range(rows)])
    columns = {"b": pa.array(reals, mask=reals > 2), "a": generator.integers(0, 90, rows), "text": texts}
    return pa.table(columns | {"coded": texts.dictionary_encode(), "list": [[1], None] * (rows // 2)})


def _files(folder: Path, rows: int, rows_per_file: int, group: int) -> list[Path]:
    whole, paths = _table(rows), []
    for start in range(0, rows, rows_per_file):
        paths.append(folder / f"{rows_per_file}-{group}-{start:06d}.parquet")
        pq.write_table(whole.slice(start, rows_per_file), paths[-1], row_group_size=group)
    return paths


def measure_table(files: list[Path], sensitive: frozenset[str], baseline: Any, threads: int = 0) -> MeasuredTable:
    plans = plans_of(files[0], sensitive, baseline) if files else []
    return merged_table(measured_files(files, plans, threads))


@pytest.mark.parametrize("most", [columns.MOST_VALUES, 64], ids=["counted", "sketched"])
def test_any_number_of_threads_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(columns, "MOST_VALUES", most)
    files = _files(tmp_path, 4000, 1500, 200)
    baseline = measure_table(files[:1], frozenset(), {}).statistics
    results = [measure_table(files, frozenset({"a"}), baseline, threads) for threads in (1, 2, 5, 2, 5)]
    written = {canonical_json([table.rows, table.statistics, table.rebinned]) for table in results}
    assert len(written) == 1


@pytest.mark.parametrize("most", [columns.MOST_VALUES, 64], ids=["counted", "sketched"])
def test_partials_of_a_piece_merge_as_those_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(columns, "MOST_VALUES", most)
    files = _files(tmp_path, 4000, 500, 200)
    baseline = measure_table(files[:1], frozenset(), {}).statistics
    plans = plans_of(files[0], (), baseline)

    def sent(file: list[partial.Partial]) -> list[partial.Partial]:
        rows = packed(file)
        return [unpacked(rows.slice(number, 1), plan) for number, plan in enumerate(plans)]

    merged = merged_table(map(sent, measured_files(files, plans)))
    assert merged == measure_table(files, frozenset(), baseline)


def test_files_and_row_groups_do_not_change_what_is_counted(tmp_path: Path) -> None:
    (whole,) = _files(tmp_path, 4000, 4000, 4000)
    expected = measure_table([whole], frozenset(), {})
    assert expected.rows == 4000
    assert list(expected.statistics) == ["b", "a", "text", "coded", "list"]
    assert expected.statistics["list"] == {"type": "list<element: int64>", "nulls": 2000}
    assert measure_table(_files(tmp_path, 4000, 700, 130), frozenset(), {}) == expected


def test_a_row_group_is_read_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = _files(tmp_path, 4000, 4000, 4000)
    expected = measure_table([whole], frozenset(), {})
    for limit in ("_ROWS", "_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(partial, limit, 300)
            assert measure_table([whole], frozenset(), {}) == expected


def test_empty_files_and_files_without_row_groups_count_no_row(tmp_path: Path) -> None:
    files = _files(tmp_path, 1000, 500, 500)
    expected = measure_table(files, frozenset(), {})
    pq.write_table(_table(0), tmp_path / "empty.parquet")
    with pq.ParquetWriter(tmp_path / "bare.parquet", _table(0).schema):
        pass
    bare, empty = tmp_path / "bare.parquet", tmp_path / "empty.parquet"
    assert measure_table([files[0], bare, empty, files[1], bare], frozenset(), {}) == expected
    assert measure_table([bare], frozenset(), {}).statistics["b"]["nulls"] == 0
    assert measure_table([], frozenset(), {}).rows == 0


def test_a_column_is_found_by_its_whole_name(tmp_path: Path) -> None:
    columns = {"a.b": [1, 2], "a": ["x", "y"], 'q"': [True, None], "s": [{"a": 1}, None]}
    pq.write_table(pa.table(columns), tmp_path / "named.parquet")
    results = measure_table([tmp_path / "named.parquet"], frozenset(), {}).statistics
    assert {name: (table["type"], table["nulls"]) for name, table in results.items()} == {
        "a.b": ("int64", 0),
        "a": ("string", 0),
        'q"': ("bool", 1),
        "s": ("struct<a: int64>", 1),
    }


def test_what_is_not_installed_is_named(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "gatehouse.data.statistics.partial_pieces"
    monkeypatch.setitem(sys.modules, missing, None)
    request = MeasureRequest(
        name="small", datasets=store.manifest(publish(store, {"t": pa.table({"a": [1]})})).derived_from
    )
    with pytest.raises(ConfigurationError, match=f"the package {missing} is not installed"):
        measure(request, store)


def test_a_changed_contract_is_judged_without_measuring_again(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = publish(store, {"t": pa.table({"a": [1, 2, 3]})})

    def judged(**rules: int) -> str:
        contract = {"version": 1, "tables": {"t": {"columns": {"a": {"type": "int64"} | rules}}}}
        reference = store.publish("config", "contract", {CONTRACT_FILE: json.dumps(contract)})
        result = validate(ValidateRequest(snapshot=snapshot, contract=str(reference)), store)
        return store.manifest(result.validation).derived_from["statistics"]

    first = judged(max=3)
    monkeypatch.setattr(partial_pieces, "measured_tables", None)
    assert judged(max=2) == first


def test_statistics_of_another_version_are_refused_as_a_baseline(store: ArtifactStore) -> None:
    snapshot = publish(store, {"t": pa.table({"a": [1]})})
    old = store.publish("validations", "old", {"statistics.json": '{"t":{"a":{"type":"int64","nulls":0}}}'})
    datasets = store.manifest(snapshot).derived_from
    with pytest.raises(ConfigurationError, match="Validate that snapshot again"):
        measure(MeasureRequest(name="small", datasets=datasets, baseline=str(old)), store)


def test_validations_that_judged_the_same_statistics_are_one_baseline(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = publish(store, {"t": pa.table({"a": [1, 2, 3]})})

    def judged(most: int, baseline: str = "") -> str:
        contract = {"version": 1, "tables": {"t": {"columns": {"a": {"type": "int64", "max": most}}}}}
        reference = store.publish("config", "contract", {CONTRACT_FILE: json.dumps(contract)})
        request = ValidateRequest(snapshot=snapshot, contract=str(reference), baseline=baseline)
        return validate(request, store).validation

    strict, mild = judged(2), judged(3)
    assert strict != mild
    compared = judged(3, baseline=strict)
    monkeypatch.setattr(partial_pieces, "measured_tables", None)
    again = judged(3, baseline=mild)
    assert store.manifest(again).derived_from["statistics"] == store.manifest(compared).derived_from["statistics"]
