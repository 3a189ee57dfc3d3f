"""Keeps what a contract calls sensitive out of the rows that were set aside."""

import json
import re

import pyarrow as pa

HIDDEN = "***"
_REASON = re.compile(r"(column (?P<column>.+?): .*?, found ).*", re.DOTALL)


def redacted(rejected: pa.Table, sensitive: tuple[str, ...]) -> pa.Table:
    """Rejected rows without the values of sensitive columns, in their reason and where their raw text is JSON."""
    if not sensitive:
        return rejected
    reasons = [_reason(text, sensitive) for text in rejected["reason"].to_pylist()]
    raw = [_raw(text, sensitive) for text in rejected["raw"].to_pylist()]
    columns = {"row": rejected["row"], "reason": pa.array(reasons, pa.string()), "raw": pa.array(raw, pa.string())}
    return pa.table(columns)


def _reason(text: str, sensitive: tuple[str, ...]) -> str:
    found = _REASON.search(text)
    if found is None or found["column"] not in sensitive:
        return text
    return text[: found.start()] + found[1] + "a value that is not shown"


def _raw(text: str, sensitive: tuple[str, ...]) -> str:
    try:
        row = json.loads(text)
    except ValueError:
        return text
    if not isinstance(row, dict):
        return text
    return json.dumps({key: HIDDEN if key in sensitive else value for key, value in row.items()}, ensure_ascii=False)
