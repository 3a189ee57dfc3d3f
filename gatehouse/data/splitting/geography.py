"""Divides the Earth's surface into cells, finds what lies near other parts' cells, and near other parts' rows.

The Earth is a sphere of 6371.0088 km (the mean radius of IUGG). Bands of latitude of equal height are cut into cells
that are about as wide as high, so cells are fewer towards the poles, and whole around the globe.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gatehouse.data.splitting.stable_hash import Flags, Hashes, mix

RADIUS_KM = 6371.0088
_AT_ONCE = 1 << 18
_SLACK = 1e-9  # In radians, a few millimetres: more than rounding can lose.

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Grid:
    """Cells about `cell_km` high and wide; a cell is a band from south and a place in it from longitude 0."""

    cell_km: float

    @property
    def bands(self) -> int:
        """Number of bands from pole to pole; each is at least `cell_km` high, unless the Earth is not."""
        return max(1, int(np.pi * RADIUS_KM / self.cell_km))

    def places(self, band: Numbers) -> Numbers:
        """Number of cells of each band, shape (bands,)."""
        middle = (band + 0.5) * np.pi / self.bands - np.pi / 2
        around = 2 * np.pi * RADIUS_KM * np.cos(middle)
        return np.maximum(1, np.rint(around / self.cell_km)).astype(np.int64)

    def cells(self, latitude: Floats, longitude: Floats) -> tuple[Numbers, Numbers]:
        """Band and place of each point, given in degrees; shape (points,)."""
        band = np.clip(np.floor((latitude + 90) * self.bands / 180), 0, self.bands - 1).astype(np.int64)
        places = self.places(band)
        place = np.floor(np.mod(longitude, 360) * places / 360).astype(np.int64)
        return band, np.minimum(place, places - 1)

    def hashes(self, band: Numbers, place: Numbers, start: int) -> Hashes:
        """Hash of each cell, given by band and place, shape (cells,); seeded with `start`."""
        state = mix(np.full(len(band), start, np.uint64))
        return mix(mix(state ^ band.astype(np.uint64)) ^ place.astype(np.uint64))


def near_other_part(
    grid: Grid, latitude: Floats, longitude: Floats, buffer_km: float, start: int, part_of: Callable[[Hashes], Codes]
) -> Flags:
    """Whether each point is closer than the buffer to a cell of another part.

    Only the eight or so cells around a point can be: the buffer is less than half a cell.

    Latitudes and longitudes are in degrees, shape (points,); `part_of` gives the part of a cell from its hash.
    """
    found = np.zeros(len(latitude), np.bool_)
    for begin in range(0, len(latitude), _AT_ONCE):
        chunk = slice(begin, begin + _AT_ONCE)
        angle = buffer_km / RADIUS_KM
        edge = begin + np.flatnonzero(_near_edge(grid, latitude[chunk], longitude[chunk], angle))
        found[edge] = _near(grid, latitude[edge], longitude[edge], angle, start, part_of)
    return found


def _near_edge(grid: Grid, latitude: Floats, longitude: Floats, angle: float) -> Flags:
    """Which points are about as near as the angle to an edge of their own cell; no others can be near another cell.

    The angle to a meridian that is x apart is asin(cos(latitude) sin(x)), beyond 90 degrees that to the pole.
    """
    band, place = grid.cells(latitude, longitude)
    height, width = np.pi / grid.bands, 2 * np.pi / grid.places(band)
    up = np.radians(latitude + 90) - band * height
    along = np.radians(np.mod(longitude, 360)) - place * width
    apart = np.clip(np.minimum(along, width - along), 0, np.pi / 2)
    across = np.arcsin(np.clip(np.cos(np.radians(latitude)) * np.sin(apart), -1, 1))
    return np.asarray(np.minimum(np.minimum(up, height - up), across) < angle + _SLACK)


def _near(
    grid: Grid, latitude: Floats, longitude: Floats, angle: float, start: int, part_of: Callable[[Hashes], Codes]
) -> Flags:
    band, place = grid.cells(latitude, longitude)
    own = part_of(grid.hashes(band, place, start))
    near = np.zeros(len(latitude), np.bool_)
    # Half the longitudes that a circle of this angle spans; all of them where it holds a pole.
    polar = np.abs(np.radians(latitude)) + angle >= np.pi / 2
    sine = np.sin(angle) / np.maximum(np.cos(np.radians(latitude)), 1e-300)
    spread = np.where(polar, 180.0, np.degrees(np.arcsin(np.minimum(sine, 1.0))))
    for step in (-1, 0, 1):
        other = band + step
        places = grid.places(np.clip(other, 0, grid.bands - 1))
        width = 360 / places
        first = np.floor((np.mod(longitude, 360) - spread) / width).astype(np.int64)
        last = np.floor((np.mod(longitude, 360) + spread) / width).astype(np.int64)
        count = np.minimum(last - first + 1, places)
        inside = (other >= 0) & (other < grid.bands)
        for number in range(int(count[inside].max(initial=0))):
            asked = np.flatnonzero(inside & (number < count) & ~near)
            cell = (first[asked] + number) % places[asked]
            foreign = part_of(grid.hashes(other[asked], cell, start)) != own[asked]
            asked, cell = asked[foreign], cell[foreign]
            box = (other[asked], cell, width[asked])
            near[asked] = _angle_to_cell(latitude[asked], longitude[asked], box, grid.bands) < angle
    return near


def _angle_to_cell(latitude: Floats, longitude: Floats, box: tuple[Numbers, Numbers, Floats], bands: int) -> Floats:
    """Least angle between each point and a cell; 0 inside it.

    At every latitude of the cell its nearest point is on the meridian nearest to the point. On that meridian the cosine
    of the angle is A sin(x) + B cos(x), greatest at atan2(A, B), else at an end.
    """
    band, place, width = box
    west = place * width
    into = np.mod(np.mod(longitude, 360) - west, 360)
    apart = np.where(into <= width, 0.0, np.minimum(into - width, 360 - into))
    at, turn = np.radians(latitude), np.radians(apart)
    south, north = band * np.pi / bands - np.pi / 2, (band + 1) * np.pi / bands - np.pi / 2
    best = np.clip(np.arctan2(np.sin(at), np.cos(at) * np.cos(turn)), south, north)
    least: Floats = np.min([haversine(at, end, turn) for end in (south, north, best)], axis=0)
    return least


def haversine(latitude: Floats, other: Floats, turn: Floats) -> Floats:
    """Angle between points at two latitudes whose longitudes are `turn` apart (Sinnott 1984).

    All are in radians, of one shape (points,), and so is the result.
    """
    half = np.sin((latitude - other) / 2) ** 2 + np.cos(latitude) * np.cos(other) * np.sin(turn / 2) ** 2
    angle: Floats = 2 * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0)))
    return angle


def near_pairs(points: tuple[Floats, Floats], others: tuple[Floats, Floats], distance_km: float) -> int:
    """How many points are closer than a distance to one of some others.

    The distance is compared as a chord through the Earth, between points in space.
    """
    from scipy.spatial import KDTree

    if not len(points[0]) or not len(others[0]):
        return 0
    chord = 2 * np.sin(min(distance_km / RADIUS_KM, np.pi) / 2)
    apart, _ = KDTree(_in_space(*others)).query(_in_space(*points), distance_upper_bound=np.nextafter(chord, np.inf))
    return int((apart < chord).sum())


def _in_space(latitude: Floats, longitude: Floats) -> Floats:
    at, around = np.radians(latitude), np.radians(longitude)
    return np.stack([np.cos(at) * np.cos(around), np.cos(at) * np.sin(around), np.sin(at)], axis=1)
