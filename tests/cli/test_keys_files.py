"""Keys files by the real command: no value is guessed, rounded or read by the other rows."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.feature_place import NOON, Place, ask


@pytest.mark.parametrize("second", ["02/02/2024", "01/13/2024", "2024-01-13"])
def test_a_time_is_read_by_itself_and_not_by_the_other_rows(place: Place, tmp_path: Path, second: str) -> None:
    rows = ask(tmp_path, "00007,01/02/2024,x", f"00700,{second},y")
    said = place.fails("retrieve", rows, tmp_path / "out.csv", "--view", "trips")
    assert said.startswith("rows.csv: event_timestamp in row 1: ") and "01/02/2024" in said
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("key", ["1.7", "-0.5", "0x1", "1e3", "nan", "true", "9223372036854775808", "1.0", "+1", "1_0"])
@pytest.mark.parametrize("online", [(), ("--online",)])
def test_a_key_that_is_no_whole_number_is_no_other_key(
    place: Place, tmp_path: Path, key: str, online: tuple[str, ...]
) -> None:
    definitions = place.project / "repo/definitions.py"
    definitions.write_text(definitions.read_text().replace('name="driver"', 'name="driver", type="int64"'))
    rows = ask(tmp_path, "1,2013-06-01T12:10:00Z,x", f"{key},2013-06-01T12:10:00Z,y")
    said = place.fails("retrieve", rows, tmp_path / "out.csv", *online)
    assert said.startswith("rows.csv: driver in row 2: ") and repr(key) in said
    times = pa.array([NOON, NOON], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"driver": [2.0, 1.7], "event_timestamp": times}), tmp_path / "keys.parquet")
    said = place.fails("retrieve", tmp_path / "keys.parquet", tmp_path / "out.csv", *online)
    assert said.startswith("keys.parquet: driver in row 2: ") and "1.7" in said
