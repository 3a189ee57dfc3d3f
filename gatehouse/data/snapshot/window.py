"""The part of a source that a run asks for: a span of event time."""

from datetime import UTC, datetime

from gatehouse.errors import ConfigurationError


def window_of(text: str) -> tuple[datetime, datetime] | None:
    """Start and end (exclusive) of a window `START/END` in ISO 8601; times without a zone are UTC.

    Raises:
        ConfigurationError: if it has another form, or ends before it starts.
    """
    if not text:
        return None
    try:
        start, end = (_utc(datetime.fromisoformat(part)) for part in text.split("/"))
    except ValueError:
        raise ConfigurationError(
            f"window: expected START/END in ISO 8601, e.g. 2013-01-01/2013-03-01, found {text!r}."
        ) from None
    if start >= end:
        raise ConfigurationError(f"window: expected a start before its end, found {text!r}.")
    return start, end


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
