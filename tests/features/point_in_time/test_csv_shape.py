"""A CSV file of entity rows that cannot be read says which line is wrong."""

import gzip
from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.point_in_time.entity_file import read_entity_rows

HEADER = b"customer_id,amount,event_timestamp\n"
ROW = b"c01,1,2024-05-01T00:00:00Z\n"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEADER + b"c01,1\n" * 5, "line 2: expected 3 fields as in the header, found 2."),
        (HEADER + ROW * 5 + b"c01,1\n", "line 7: expected 3 fields as in the header, found 2."),
        (HEADER + ROW.replace(b"\n", b",x\n") + ROW, "line 2: expected 3 fields as in the header, found 4."),
        (b"", "expected a header and rows, found an empty file."),
        (HEADER + ROW + ROW.replace(b"c01", b"Zo\xeb"), "line 3: expected text in UTF-8, found the byte 0xeb. Write"),
    ],
)
def test_the_line_that_is_wrong_is_named(tmp_path: Path, content: bytes, said: str, packed: bool) -> None:
    path = tmp_path / ("rows.csv.gz" if packed else "rows.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(ConfigurationError) as refused:
        read_entity_rows(path, {"customer_id": "string"})
    assert str(refused.value).startswith(f"{path.name}: {said}")


def test_the_delimiter_is_that_of_the_header_and_no_line_is_passed_over(tmp_path: Path) -> None:
    for delimiter in (b",", b";", b"\t", b"|"):
        (tmp_path / "rows.csv").write_bytes(b"\n" + (HEADER + b'c01,"1",NA\n').replace(b",", delimiter))
        assert read_entity_rows(tmp_path / "rows.csv", {"customer_id": "string"}).to_pylist() == [
            {"customer_id": "c01", "amount": "1", "event_timestamp": "NA"}
        ]
    (tmp_path / "rows.csv").write_bytes(b"exported\n" + HEADER + ROW)
    with pytest.raises(ConfigurationError, match=r"rows\.csv: line 2"):
        read_entity_rows(tmp_path / "rows.csv", {"customer_id": "string"})
