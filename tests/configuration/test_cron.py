"""Cron expressions, against the cases of the library that KFP reads them with (robfig/cron 1.2.0, its own tests)."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from gatehouse.configuration.cron import Cron

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
REFUSED = [
    ("0 4 * * 1", "found 5; put the seconds before it: 0 0 4"),
    ("* * * * * * *", "found 7"),
    ("", "found 0"),
    ("60 0 4 * * 1", "second: found 60 to 60.*it takes 0 to 59"),
    ("0 0 24 * * 1", "hour: found 24 to 24.*it takes 0 to 23"),
    ("0 0 4 0 * ?", "day of the month: found 0 to 0"),
    ("0 0 4 ? jan-foo ?", "month: expected a number, found 'foo'.*jan to dec"),
    ("0 0 4 ? * 7", "day of the week: found 7 to 7.*sun to sat"),
    ("0 */0 4 * * 1", "minute: expected a step above 0"),
    ("0 5-3 4 * * 1", "minute: found 5 to 3"),
    ("0 5--5 4 * * 1", "minute: expected low-high/step"),
    ("0 */2/3 4 * * 1", "minute: expected low-high/step"),
    ("0 -5 4 * * 1", "minute: expected a number"),
    ("0 , 4 * * 1", "minute: expected a value"),
    ("99 0 99 * * 1", "second: .*; hour: "),
    ("@every 1h", "interval"),
    ("@fortnightly", "@daily"),
    ("0 0 0 30 2 *", "no such day"),
]


@pytest.mark.parametrize(("moment", "expression", "following"), NEXT)
def test_the_next_time_is_that_of_the_library(moment: str, expression: str, following: str) -> None:
    found = Cron.parse(expression).following(datetime.fromisoformat(moment).replace(tzinfo=UTC))
    assert found == datetime.fromisoformat(following).replace(tzinfo=UTC)


@pytest.mark.parametrize(("expression", "why"), REFUSED)
def test_what_is_wrong_is_said_field_by_field(expression: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Cron.parse(expression)


def test_five_fields_mean_something_else_to_kfp() -> None:
    """KFP takes them, as all but the day of the week; so they are refused here."""
    found = Cron.parse("30 4 * * 1", fields=(5, 6)).following(datetime(2012, 7, 9, tzinfo=UTC))
    assert found == datetime(2013, 1, 1, 0, 4, 30, tzinfo=UTC)


def test_clocks_that_change_skip_and_repeat_no_hour() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    nightly = Cron.parse("0 30 4 * * *")
    before = datetime(2026, 3, 28, 12, tzinfo=berlin)
    assert nightly.following(before).astimezone(UTC) == datetime(2026, 3, 29, 2, 30, tzinfo=UTC)
    hourly = Cron.parse("@hourly")
    night = datetime(2026, 3, 28, 23, 30, tzinfo=UTC).astimezone(berlin)
    until = datetime(2026, 3, 29, 3, 30, tzinfo=UTC)
    assert [each.astimezone(UTC).hour for each in hourly.between(night, until)] == [0, 1, 2, 3]
