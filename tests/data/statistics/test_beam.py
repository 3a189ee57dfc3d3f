"""Statistics on Apache Beam: what the runner does with parts, their order and their places changes no byte."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.data.statistics import columns
from gatehouse.data.statistics.columns import plans_of
from gatehouse.data.statistics.readout import read_out
from gatehouse.data.statistics.stage import MeasureRequest, measure
from gatehouse.data.validation.spec import StatisticsSpec
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import publish


def _tables(rows: int) -> dict[str, pa.Table]:
    generator = np.random.default_rng(7)
    reals = generator.normal(size=rows)
    return {
        "t": pa.table(
            {
                "real": pa.array(reals, mask=reals > 2),
                "whole": generator.integers(0, 50, rows),
                "text": [f"{number % 900:03d}" for number in range(rows)],
                "truth": reals > 0,
                "secret": [f"secret-{number}" for number in range(rows)],
            }
        ),
        "u": pa.table({"time": pa.array(np.arange(rows), pa.timestamp("us", tz="UTC")), "none": [None] * rows}),
    }


def _measured(store: ArtifactStore, snapshot: str, engine: str, baseline: str = "", *options: str) -> str:
    request = MeasureRequest(
        name="small",
        datasets=store.manifest(snapshot).derived_from,
        sensitive={"t": ("secret",)},
        baseline=baseline,
        statistics=StatisticsSpec.model_validate({"engine": engine, "options": options}),
    )
    return measure(request, store, force="again").statistics


@pytest.mark.parametrize("most", [columns.MOST_VALUES, 64], ids=["counted", "sketched"])
def test_beam_gives_the_bytes_of_the_process(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(columns, "MOST_VALUES", most)
    baseline = _measured(store, publish(store, _tables(700)), "in_process")
    snapshot = publish(store, _tables(1900), rows_per_file=300)
    assert _measured(store, snapshot, "in_process", baseline) == _measured(store, snapshot, "beam", baseline)


def test_beam_on_several_processes_gives_the_bytes_of_one(store: ArtifactStore) -> None:
    snapshot = publish(store, _tables(1900), rows_per_file=300)
    spread = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    assert _measured(store, snapshot, "in_process") == _measured(store, snapshot, "beam", "", *spread)


def test_results_travel_through_the_temporary_location_and_leave_nothing(store: ArtifactStore, tmp_path: Path) -> None:
    place = tmp_path / "shared"
    place.mkdir()
    snapshot = publish(store, _tables(100))
    on_beam = _measured(store, snapshot, "beam", "", f"--temp_location={place}")
    assert on_beam == _measured(store, snapshot, "in_process")
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("seed", range(5))
def test_accumulators_in_any_order_and_grouping_merge_to_the_same(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(columns, "MOST_VALUES", 64)
    table = _tables(2100)["t"].select(["real"])
    dataset = store.manifest(publish(store, {"t": table}, rows_per_file=300)).derived_from["t"]
    from gatehouse.data.statistics.beam import MeasureFile, MergeInOrder

    measuring = MeasureFile(store.address, {"t": plans_of(table.schema, frozenset(), {})})
    names = [entry.path for entry in store.manifest(dataset).files]

    def merged(order: list[int], groups: int) -> object:
        merging, accumulators = MergeInOrder(), [MergeInOrder().create_accumulator() for _ in range(groups)]
        for place, number in enumerate(order):
            ((_, element),) = measuring.process(("t", number, dataset, names[number]))
            accumulators[place % groups] = merging.add_input(accumulators[place % groups], element)
        return read_out(merging.extract_output(merging.merge_accumulators(accumulators)))

    shuffled = random.Random(seed).sample(range(len(names)), len(names))
    assert merged(shuffled, 1 + seed) == merged(list(range(len(names))), 1)
