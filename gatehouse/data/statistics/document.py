"""The file `statistics.json`: a versioned document, so that an artifact of any age can be a baseline.

    {"format": "gatehouse/statistics/1",
     "rank_error": 0.0015,
     "tables": {"flights": {"rows": 336776, "columns": {"dep_delay": {"type": "int64", "nulls": 8255, …}}}}}

Every column has `type` and `nulls`; all kinds but lists and the like have `distinct`, and `exact`, which says whether
`distinct`, quantiles, bins and listed values are exact or read out of sketches. Counts, extremes, moments and lengths
are exact always.

- Numbers: `min`, `max`, `sum`, `mean`, `std` (of a sample), `median`, `quantiles` by level, `zeros`, `not_finite`
  (doubles only; NaN and infinities have no part in anything else). `edges` are the deciles of the values other than
  zero, and `counts`, one more, the rows in (-inf, e1], (e1, e2], …, (en, inf), again without zeros: a column that is
  mostly zero would else have one bin. `histogram` has bars of equal width for the eye: `edges`, one less `counts`, and
  the rows `below` and `above`. `frequent` are the most frequent of exactly counted whole numbers.
- Texts: `min`, `max`, `min_length`, `max_length`, `mean_length` (in characters), `values` (the most frequent with their
  counts; none longer than 256 characters) and `other` rows. Truth values have `values` and `other`.
- Times: `min`, `max`, `median`, `quantiles` and `histogram`, in ISO 8601.
- A sensitive column has `type`, `nulls`, `distinct` and `exact` alone, and `sensitive`.
"""

from collections.abc import Collection, Mapping
from typing import Any

from gatehouse.data.statistics import Statistics
from gatehouse.errors import ConfigurationError

FORMAT = "gatehouse/statistics/1"
STATISTICS_FILE = "statistics.json"
REBINNED_FILE = "rebinned.json"
RANK_ERROR = 0.0015
_COUNTS = ("type", "nulls", "distinct", "exact")
ByColumn = Mapping[str, Mapping[str, Statistics]]


def document(rows: Mapping[str, int], columns: ByColumn) -> dict[str, Any]:
    """The document of some tables.

    Args:
        rows: Rows by table.
        columns: Statistics by table and column.
    """
    tables = {name: {"rows": rows[name], "columns": dict(found)} for name, found in columns.items()}
    return {"format": FORMAT, "rank_error": RANK_ERROR, "tables": tables}


def statistics_in(body: Any, where: str) -> dict[str, dict[str, Statistics]]:
    """Statistics by table and column from a document.

    Args:
        body: Its parsed JSON.
        where: What it was read from, for the message.

    Raises:
        ConfigurationError: if it is no such document, or one of another version.
    """
    found = body.get("format") if isinstance(body, dict) else None
    if found != FORMAT:
        raise ConfigurationError(
            f"{where} holds no statistics that can be compared with: expected format {FORMAT!r}, found {found!r}. "
            "Validate that snapshot again, and take the new reference as baseline."
        )
    return {name: table["columns"] for name, table in body["tables"].items()}


def without_values(found: ByColumn, sensitive: Mapping[str, Collection[str]]) -> dict[str, dict[str, Statistics]]:
    """The same statistics with no value of the columns that are sensitive now, even if they were not when measured.

    Args:
        found: Statistics by table and column.
        sensitive: Columns by table.
    """
    return {
        table: {
            column: {key: one[key] for key in _COUNTS if key in one} | {"sensitive": True}
            if column in sensitive.get(table, ())
            else one
            for column, one in columns.items()
        }
        for table, columns in found.items()
    }


def rows_in(body: Mapping[str, Any]) -> dict[str, int]:
    """Rows by table from a document that `statistics_in` has accepted."""
    return {name: table["rows"] for name, table in body["tables"].items()}
