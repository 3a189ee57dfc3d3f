"""Cron expressions of KFP (robfig/cron, version 1): six fields, seconds first, and descriptors such as @daily.

KFP also accepts five fields, but reads them as all fields except the day of the week: `30 4 * * 1` then starts 30
seconds past minute 4 of every hour in January. So five fields are refused here.
"""

import re
from collections.abc import Iterator
from datetime import datetime

_DESCRIPTORS = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_FIELD = re.compile(r"[0-9A-Z*?,/-]+", re.IGNORECASE)


def require_cron(expression: str) -> None:
    """Check an expression. Raises ValueError if KFP would not read it, or it names a day that no year has."""
    next(times_after(expression, datetime(2024, 1, 1)))


def times_after(expression: str, moment: datetime) -> Iterator[datetime]:
    """The times of an expression after a moment, in the moment's time zone. Raises ValueError as `require_cron`."""
    from cronsim import CronSim, CronSimError

    fields = _DESCRIPTORS.get(expression, expression).split()
    if len(fields) != 6:
        descriptors = ", ".join(_DESCRIPTORS)
        more = f"; put the seconds before it: 0 {expression}" if len(fields) == 5 else ""
        raise ValueError(f"expected six fields, seconds first, or one of {descriptors}, found {expression!r}{more}")
    # cronsim also reads `L`, `#` and 7 for Sunday, which KFP does not.
    days = re.sub(r"/\d+", "", fields[5])
    if not all(map(_FIELD.fullmatch, fields)) or re.search(r"7|L\b", days, re.IGNORECASE) or "L" in fields[3].upper():
        raise ValueError(f"expected fields such as 0, MON-FRI, */15 or 1,15, found {expression!r}")
    try:
        return iter(CronSim(" ".join(field.replace("?", "*") for field in fields), moment))
    except CronSimError as error:
        raise ValueError(f"{error} in {expression!r}") from error
