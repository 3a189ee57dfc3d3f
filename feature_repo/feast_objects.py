"""The same definitions as Feast objects, so that Feast's own command line works in this folder."""

from pathlib import Path

from gatehouse.features.point_in_time.feast_definitions import feast_objects_in

globals().update(feast_objects_in(Path(__file__).parent))
