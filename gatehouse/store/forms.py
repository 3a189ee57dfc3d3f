"""What the form of a run in KFP's UI shows in a field that nobody filled: what the field means, and how it is written.

The UI shows names and defaults, but no descriptions. So a default says what happens without a value, and gives an
example.
"""

WINDOW = "all, or START/END as 2013-01-01/2013-07-01"
SOURCE = "the project's, or a path as s3://bucket/folder"
RERUN = "none, or stages as train,evaluate"
BACKFILL = "none, or why rows of the earlier snapshot change"
SINCE = "all, or from a time as 2013-11-01T00:00:00Z"
UNTIL = "all, or before a time as 2013-12-01T00:00:00Z"
KEYS = "none, or a file of keys and times as s3://bucket/keys.csv"
PREDICTIONS = "none, or latest, a reference, or Parquet files"
_FORMS = (WINDOW, SOURCE, RERUN, BACKFILL, SINCE, UNTIL, KEYS, PREDICTIONS)
_UNFILLED = frozenset({"", *_FORMS, *(form.partition(",")[0] for form in _FORMS)})
FILLED_IN = frozenset({"source", "location", "window", "backfill", "since", "until", "keys", "log"})
"""Fields of requests that get a parameter of a run as a person filled it in; elsewhere `none` and `all` are names."""


def given(text: str) -> str:
    """The text that a person filled in; empty where the field still shows its form, or the word before its comma."""
    return "" if text in _UNFILLED else text
