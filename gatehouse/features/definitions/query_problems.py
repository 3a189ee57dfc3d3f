"""Finds problems in the text of a query: it is no query, more than one, or gives other rows at each run."""

import re
from collections.abc import Iterator

from gatehouse.features.definitions.sql_text import without_texts

_CHANCE = re.compile(
    r"\b(now|random|setseed|uuid|gen_random_uuid|uuidv4|uuidv7|today|get_current_timestamp|get_current_time|"
    r"transaction_timestamp|current_localtime|current_localtimestamp)\s*\(|"
    r"\b(current_timestamp|current_date|current_time|localtimestamp|localtime)\b",
    re.IGNORECASE,
)


def query_problems(file: str, query: str) -> Iterator[str]:
    """Problems in the text of a query, each with its line.

    Args:
        file: Its path in the repository, such as views/orders.sql.
        query: Its text.
    """
    bare = without_texts(query)
    if not bare.strip(" \t\r\n;"):
        yield f"{file}: expected a query, one SELECT, found {'no text' if not query.strip() else 'none'}. Write it."
        return
    if (end := bare.find(";")) >= 0:
        rest = bare[end:].strip(" \t\r\n;")
        found = "a second statement after ';'; keep one" if rest else "';' at its end; remove it"
        yield f"{file}:{_line(bare, end)}: expected one SELECT, as it stands inside of another query; found {found}."
    for each in _CHANCE.finditer(bare):
        name = (each[1] or each[2]).lower()
        cure = "take a hash of the row's key" if name in _RANDOM else "read getvariable('as_of')"
        yield f"{file}:{_line(bare, each.start())}: expected the same rows at every run, found {name}; {cure}."


_RANDOM = ("random", "setseed", "uuid", "gen_random_uuid", "uuidv4", "uuidv7")


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
