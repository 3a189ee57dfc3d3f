"""Writes a count with its noun, in messages and in what artifacts hold."""


def counted(count: int, what: str) -> str:
    """A number with a noun, with a plural s except for one: `1 row`, `3,000 rows`."""
    return f"{count:,} {what}{'s' * (count != 1)}"
