"""The same definitions as Feast objects, so that Feast's own command line works in this folder."""

from pathlib import Path

from gatehouse.features.definitions.repository import read_repository
from gatehouse.features.point_in_time.feast_definitions import feast_objects

globals().update(feast_objects(read_repository(Path(__file__).parent)))
