"""Times and intervals in parameters and options, in ISO 8601."""

from datetime import UTC, datetime

from gatehouse.errors import ConfigurationError


def zoned(name: str, text: str) -> datetime:
    """The time in `text`, which has a zone. Raises ConfigurationError."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = datetime.min
    if time.tzinfo is None:
        raise ConfigurationError(f"{name}: expected a time with its zone, e.g. 2013-11-01T00:00:00Z, found {text!r}.")
    return time


def in_utc(name: str, text: str) -> datetime:
    """The time in `text`, in UTC; a time without a zone is UTC. Raises ConfigurationError."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{name}: expected a time such as 2013-01-31T14:00:00Z, found {text!r}.") from None
    return time.replace(tzinfo=time.tzinfo or UTC).astimezone(UTC)


def interval(name: str, text: str) -> tuple[datetime, datetime]:
    """Start and end (exclusive) in `START/END`, in UTC. Raises ConfigurationError."""
    bounds = text.split("/")
    if len(bounds) != 2:
        raise ConfigurationError(f"{name}: expected START/END, e.g. 2013-01-01/2013-03-01, found {text!r}.")
    start, end = (in_utc(name, bound) for bound in bounds)
    if start >= end:
        raise ConfigurationError(f"{name}: expected a start before its end, found {text!r}.")
    return start, end
