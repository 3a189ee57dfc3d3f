"""Rows from messages: what fits becomes a row, and what does not is told why."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from gatehouse.data.messages.values import DoesNotFit
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.declarations import Source
from gatehouse.online.streaming.pusher import RowReader
from gatehouse.online.streaming.stream import CLOCK_TOLERANCE, Message

NOON = datetime(2013, 1, 9, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SCHEMA = pa.schema(
    {
        "ride": pa.int64(),
        "seats": pa.uint8(),
        "fare": pa.float64(),
        "note": pa.string(),
        "paid": pa.bool_(),
        "tip": pa.float32(),
        "left": pa.timestamp("s", "UTC"),
        "ended": pa.timestamp("us", "UTC"),
        "booked": pa.timestamp("ns", "UTC"),
    }
)
READER = RowReader(Source(table="rides", event_time="ended", lead=HOUR), SCHEMA, ("ride",))


def read(payload: Any) -> dict[str, Any]:
    return READER.read(Message("", (1,), NOON, payload), NOON)


def test_a_row_is_read_from_json_and_from_fields_of_text() -> None:
    ended = NOON.isoformat()
    typed = {"ride": 1, "seats": 255, "fare": 2.5, "note": "\U0001f697", "paid": True, "ended": ended, "more": []}
    fields = {"ride": "1", "seats": "255", "fare": "2.5", "note": "\U0001f697", "paid": "true", "ended": ended}
    expected = {**typed, "ended": NOON, "booked": None, "tip": None, "left": None}
    expected.pop("more")
    assert read(json.dumps(typed).encode()) == read({key: value.encode() for key, value in fields.items()}) == expected


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "the message has no value"),
        (b"[1]", "expected a JSON object, found an array"),
        (b'{"ride": 1%s}' % (b"0" * 4300), "found text that is not one (a number has more than 4,300 digits)"),
        (b'{"ride": 1, "ride": 2}', "a key occurs twice"),
        (b'{"ride": 1, "fare": NaN}', "NaN is not JSON"),
        (b'{"ride": 1, "fare": 1e999}', "column fare: expected a number that a double holds, found 'inf'"),
        (b'{"ride": 1, "fare": 1%s}' % (b"0" * 400), "column fare: expected a number that a double holds"),
        ({"ride": b"1" * 5000}, "column ride: expected a whole number of 64 bits"),
        ({"ride": b"1", "fare": b"NaN"}, "column fare: expected a finite number of 64 bits, found 'NaN'"),
        ({"ride": b"1", "note": b"\xed\xa0\xbd"}, "expected text in UTF-8"),
        (rb'{"ride": 1, "note": "\ud83d"}', "column note: expected text in UTF-8"),
        (b'{"ride": 1, "seats": 256}', "column seats: expected a whole number of 8 bits, found '256'"),
        (b'{"ride": true}', "column ride: expected a whole number"),
        (b'{"ride": null}', "column ride: expected a value"),
        (b'{"ride": 1, "ended": "2013-01-09 12:00"}', "column ended: expected a time in ISO 8601 with its zone"),
        (b'{"ride": 1, "ended": "0001-01-01T00:00:00+05:00"}', "a time in ISO 8601 that is in the years 1 to 9999"),
        (b'{"ride": 1, "ended": "0001-01-02T00:00:00Z"}', "column ended: expected a time from 1900 on and until 2013"),
        (b'{"ride": 1, "ended": "9999-12-31T23:00:00Z"}', "column ended: expected a time from 1900 on and until 2013"),
        (b'{"ride": 1, "tip": 1e300}', "column tip: expected a finite number of 32 bits"),
        (b'{"ride": 1, "tip": 16777217}', "column tip: expected a number that 32 bits hold"),
        (b'{"ride": 1, "left": "2013-01-09T12:00:00.5Z"}', "column left: expected a time in whole s"),
        (b'{"ride": 1, "booked": "9999-12-31T23:00:00Z"}', "column booked: expected a time in the years 1678 to 2261"),
    ],
)
def test_what_does_not_fit_is_told_why(payload: Any, reason: str) -> None:
    with pytest.raises(DoesNotFit) as misfit:
        read(payload)
    assert reason in str(misfit.value)


def test_an_event_may_be_as_far_ahead_of_its_arrival_as_its_table_says() -> None:
    latest = NOON + HOUR + CLOCK_TOLERANCE
    assert read(json.dumps({"ride": 1, "ended": latest.isoformat()}).encode())["ended"] == latest
    with pytest.raises(DoesNotFit, match="as it arrived 2013-01-09T12:00:00"):
        read(json.dumps({"ride": 1, "ended": (latest + timedelta(microseconds=1)).isoformat()}).encode())


def test_a_table_with_a_column_of_another_type_cannot_be_streamed() -> None:
    with pytest.raises(ConfigurationError, match="its column day is date32"):
        RowReader(Source(table="rides", event_time="day"), pa.schema({"day": pa.date32()}), ())
