"""Cron expressions, against the cases of the library that KFP reads them with (robfig/cron 1.2.0, its own tests)."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gatehouse.configuration.schedule import Schedule, require_cron, times_after

NEXT = [
    ("2012-07-09 14:45:00", "0 0/15 * * * *", "2012-07-09 15:00:00"),
    ("2012-07-09 14:59:59", "0 0/15 * * * *", "2012-07-09 15:00:00"),
    ("2012-07-09 15:45:00", "0 20-35/15 * * * *", "2012-07-09 16:20:00"),
    ("2012-07-09 23:46:00", "0 */15 * * * *", "2012-07-10 00:00:00"),
    ("2012-07-09 23:35:51", "15/35 20-35/15 * * * *", "2012-07-10 00:20:15"),
    ("2012-07-09 23:35:51", "15/35 20-35/15 1/2 * * *", "2012-07-10 01:20:15"),
    ("2012-07-09 23:35:51", "15/35 20-35/15 1/2 */2 * *", "2012-07-11 01:20:15"),
    ("2012-07-09 23:35:51", "15/35 20-35/15 * 9-20 Jul *", "2012-07-10 00:20:15"),
    ("2012-07-09 23:35:00", "0 0 0 9 Apr-Oct ?", "2012-08-09 00:00:00"),
    ("2012-07-09 23:35:00", "0 0 0 */5 Apr,Aug,Oct Mon", "2012-08-06 00:00:00"),
    ("2012-07-09 23:35:00", "0 0 0 */5 Oct Mon", "2012-10-01 00:00:00"),
    ("2012-07-09 23:35:00", "0 0 0 * Feb Mon", "2013-02-04 00:00:00"),
    ("2012-07-09 23:35:00", "0 0 0 * Feb Mon/2", "2013-02-01 00:00:00"),
    ("2012-12-31 23:59:45", "0 * * * * *", "2013-01-01 00:00:00"),
    ("2012-07-09 23:35:00", "0 0 0 29 Feb ?", "2016-02-29 00:00:00"),
    ("2012-07-14 00:00:00", "0 0 0 1,15 * Sun", "2012-07-15 00:00:00"),
    ("2012-07-09 00:00:00", "0 0 0 1,15 * Tue", "2012-07-10 00:00:00"),
    ("2012-07-09 00:00:00", "@weekly", "2012-07-15 00:00:00"),
    ("2012-07-09 00:00:00", "@monthly", "2012-08-01 00:00:00"),
]


@pytest.mark.parametrize(("moment", "expression", "following"), NEXT)
def test_the_next_time_is_that_of_the_library(moment: str, expression: str, following: str) -> None:
    due = next(times_after(expression, datetime.fromisoformat(moment).replace(tzinfo=UTC)))
    assert due == datetime.fromisoformat(following).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "expression",
    [
        *("0 4 * * 1", "* * * * * * *", "", "60 0 4 * * 1", "0 0 24 * * 1", "0 0 4 0 * ?", "0 0 4 ? jan-foo ?"),
        *("0 0 4 ? * 7", "0 */0 4 * * 1", "0 5-3 4 * * 1", "0 5--5 4 * * 1", "0 -5 4 * * 1", "0 , 4 * * 1"),
        *("@every 1h", "@fortnightly", "0 0 0 30 2 *", "0 0 0 L * *", "0 0 0 * * 5L", "0 0 0 * * 1#2"),
    ],
)
def test_what_kfp_does_not_read_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"expected|Bad"):
        require_cron(expression)


def test_clocks_that_change_skip_and_repeat_no_hour() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    before = datetime(2026, 3, 28, 12, tzinfo=berlin)
    assert next(times_after("0 30 4 * * *", before)).astimezone(UTC) == datetime(2026, 3, 29, 2, 30, tzinfo=UTC)
    night = datetime(2026, 3, 28, 23, 30, tzinfo=UTC).astimezone(berlin)
    following = times_after("@hourly", night)
    assert [next(following).astimezone(UTC).hour for _ in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("cron", "zone", "times"),
    [
        ("0 30 2 * * *", "Europe/Berlin", ["2026-03-29 02:30:00", "2026-10-25 02:30:00"]),
        ("0 0 3 * * *", "Europe/Berlin", []),
        ("0 0 2 * * *", "Europe/Berlin", ["2026-03-29 02:00:00", "2026-10-25 02:00:00"]),
        ("0 30 2 * * MON", "Europe/Berlin", []),
        ("0 30 * * * *", "Europe/Berlin", []),
        ("0 30 2 * * *", "UTC", []),
        ("@daily", "America/Havana", ["2026-03-08 00:00:00", "2026-11-01 00:00:00"]),
        ("0 45 1 * * *", "Australia/Lord_Howe", ["2026-04-05 01:45:00"]),
    ],
)
def test_times_that_clocks_skip_or_show_twice_are_said(cron: str, zone: str, times: list[str]) -> None:
    said = list(Schedule(cron=cron, time_zone=zone).changing_clocks(datetime(2026, 1, 1, 0, 10, tzinfo=UTC)))
    assert [line.split(" at ")[1].split(" in ")[0] for line in said] == times
    assert all(("skip" in line) == ("-03-" in line) for line in said)
