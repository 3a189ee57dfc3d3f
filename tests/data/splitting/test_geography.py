"""Cells of the Earth: they cover it once, and what is near them is what a search by hand finds."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gatehouse.data.splitting.divide import PAIRS, by_threshold, divide
from gatehouse.data.splitting.geography import RADIUS_KM, Grid, near_other_part, near_pairs
from gatehouse.data.splitting.spec import Fractions
from tests.data.splitting.conftest import opened, spec_of

degrees = st.tuples(
    st.one_of(st.floats(-90, 90), st.floats(88, 90), st.floats(-90, -89), st.sampled_from([90.0, -90.0, 0.0])),
    st.one_of(st.floats(-180, 180), st.floats(179, 181), st.sampled_from([-180.0, 180.0, 0.0, 360.0])),
)


def _km(one: Any, other: Any) -> float:
    """Haversine, one pair at a time."""
    first, second = math.radians(one[0]), math.radians(other[0])
    turn = math.radians(one[1] - other[1])
    half = math.sin((first - second) / 2) ** 2 + math.cos(first) * math.cos(second) * math.sin(turn / 2) ** 2
    return 2 * RADIUS_KM * math.asin(min(1.0, math.sqrt(half)))


def _columns(points: list[tuple[float, float]]) -> tuple[Any, Any]:
    return np.array([point[0] for point in points]), np.array([point[1] for point in points])


# Shrinking a failure would walk the borders of thousands of cells, for minutes.
@settings(max_examples=12, deadline=None, phases=[Phase.reuse, Phase.generate])
@given(
    special=st.lists(degrees, max_size=3),
    seed=st.integers(0, 2**32 - 1),
    cell_km=st.sampled_from([2000.0, 3000.0, 5000.0]),
    share=st.floats(0.05, 0.49),
)
def test_the_buffer_is_what_a_search_along_every_cell_finds(
    special: list[tuple[float, float]], seed: int, cell_km: float, share: float
) -> None:
    """A cell's border is walked in small steps; points within a step's error of the buffer are not judged."""
    generator = np.random.default_rng(seed)
    spread = zip(np.degrees(np.arcsin(generator.uniform(-1, 1, 20))), generator.uniform(-180, 180, 20), strict=True)
    points = [*special, *spread]
    grid, buffer_km, start = Grid(cell_km), share * cell_km, 11
    part_of = partial(by_threshold, fractions=Fractions(train=0.5, validation=0.25, test=0.25))
    latitude, longitude = _columns(points)
    found = near_other_part(grid, latitude, longitude, buffer_km, start, part_of)
    band, place = grid.cells(latitude, longitude)
    own = part_of(grid.hashes(band, place, start))
    cells = [(row, column) for row in range(grid.bands) for column in range(int(grid.places(np.array([row]))[0]))]
    foreign = part_of(grid.hashes(*(np.array(each) for each in zip(*cells, strict=True)), start))
    for number, point in enumerate(points):
        others = [cell for cell, part in zip(cells, foreign, strict=True) if part != own[number]]
        nearest = min((_km_to_cell(grid, point, cell) for cell in others), default=math.inf)
        if abs(nearest - buffer_km) > 2.0:
            assert found[number] == (nearest < buffer_km)


def _km_to_cell(grid: Grid, point: tuple[float, float], cell: tuple[int, int]) -> float:
    """Least distance to the border of a cell, in steps of a 500th of its sides."""
    band, place = cell
    steps = np.linspace(0, 1, 501)
    south, height = band * 180 / grid.bands - 90, 180 / grid.bands
    width = 360 / int(grid.places(np.array([band]))[0])
    west = place * width
    sides = [(np.full(501, south + step * height), west + steps * width) for step in (0.0, 1.0)]
    sides += [(south + steps * height, np.full(501, west + step * width)) for step in (0.0, 1.0)]
    at, around = (np.radians(np.concatenate(each)) for each in zip(*sides, strict=True))
    half = np.sin((at - math.radians(point[0])) / 2) ** 2
    half += np.cos(at) * math.cos(math.radians(point[0])) * np.sin((around - math.radians(point[1])) / 2) ** 2
    return float(2 * RADIUS_KM * np.arcsin(np.sqrt(np.clip(half, 0, 1))).min())


@settings(max_examples=60, deadline=None)
@given(points=st.lists(degrees, max_size=40), others=st.lists(degrees, max_size=40), distance=st.floats(0.1, 15_000))
def test_near_pairs_are_those_of_all_pairs(
    points: list[tuple[float, float]], others: list[tuple[float, float]], distance: float
) -> None:
    sharp = [distance - 1e-6 < _km(one, other) < distance + 1e-6 for one in points for other in others]
    if not any(sharp):
        expected = sum(any(_km(one, other) < distance for other in others) for one in points)
        assert near_pairs(_columns(points), _columns(others), distance) == expected


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), centre=degrees)
def test_no_two_parts_have_rows_closer_than_the_buffer(
    tmp_path_factory: pytest.TempPathFactory, seed: int, centre: tuple[float, float]
) -> None:
    generator = np.random.default_rng(seed)
    latitude = np.clip(centre[0] + generator.normal(0, 2, 300), -90, 90)
    longitude = (centre[1] + generator.normal(0, 2, 300) + 180) % 360 - 180
    columns = {"key": list(range(300)), "latitude": latitude, "longitude": longitude, "label": [0, 1] * 150}
    spec = spec_of(strategy="geographic", cell_km=60, buffer_km=15, seed=seed)
    training_set = opened(tmp_path_factory.mktemp("places"), columns)
    partition = divide(spec, training_set)
    points = list(zip(latitude, longitude, strict=True))
    for one, other in PAIRS:
        for left in partition.parts[one]:
            assert all(_km(points[left], points[right]) >= 15 for right in partition.parts[other])
    assert sum(len(part) for part in partition.parts.values()) + sum(partition.left_out.values()) == 300


def test_places_off_the_earth_are_refused(tmp_path: Any) -> None:
    columns = {"key": [1, 2, 3], "latitude": [91.0, 0.0, None], "longitude": [0.0, 361.0, 0.0], "label": [0, 1, 0]}
    problems = divide(spec_of(strategy="geographic"), opened(tmp_path, columns)).problems
    assert problems[0] == "1 row with a latitude outside -90 to 90 degrees, the first 91"
    assert problems[1] == "1 row with a longitude outside -180 to 360 degrees, the first 361"
    assert problems[2].startswith("1 row without a place in latitude and longitude")
