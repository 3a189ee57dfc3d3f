"""Keeps values of rows out of errors where columns of the data are sensitive.

Code that reads rows need not know which columns are sensitive: its stage, or another caller, says so for all of it.
"""

import contextvars
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

from gatehouse.errors import GatehouseError, HiddenValueError, is_interruption

_NO_ROW_READ = ("BinderException", "CatalogException", "ParserException", "SyntaxException")
"""DuckDB's errors before it reads a row: they quote the query alone."""
_OF_VALUES = (ValueError, TypeError, LookupError, ArithmeticError)
_READING_ROWS = ("_duckdb", "duckdb", "pyarrow", "pandas", "numpy", "pydantic", "feast")
_columns: contextvars.ContextVar[Callable[[], Collection[str]]] = contextvars.ContextVar(
    "gatehouse_hidden_columns", default=tuple
)


@contextmanager
def hiding(columns: Callable[[], Collection[str]]) -> Iterator[None]:
    """In this context errors show no value of a row, if `columns` gives any; it is called when there is an error.

    A thread that is started here does not inherit this.
    """
    token = _columns.set(columns)
    try:
        yield
    finally:
        _columns.reset(token)


def hidden_columns() -> list[str]:
    """The columns because of which no value is shown here, for a process that is started to read the same rows."""
    return sorted(_columns.get()())


def unless_hidden(message: str) -> str:
    """The part of a message that quotes values; or instead, that they are not shown, and why."""
    columns = ", ".join(hidden_columns())
    return f"not shown, as columns are sensitive ({columns})" if columns else message


def error_words(error: Exception) -> str:
    """A library's error in one line; only its kind where it may quote a row that must not be shown."""
    kind = type(error).__name__
    message = " ".join(str(error).split())
    shown = kind in _NO_ROW_READ or not hidden_columns()
    return message if shown else f"{kind}, whose words are {unless_hidden(message)}"


def without_values(error: Exception) -> Exception:
    """The error that a stage may end with: the same, unless values are hidden and a library's words may quote them.

    An error of ours loses only the errors that caused it, because tracebacks print those too.
    """
    chain: list[BaseException] = [error]
    while below := chain[-1].__cause__ or (None if chain[-1].__suppress_context__ else chain[-1].__context__):
        chain.append(below)
    if not any(map(_may_quote, chain)) or not hidden_columns():
        return error
    if not _may_quote(error):
        error.__cause__ = None  # This also keeps the context from being printed.
        return error
    frame = next(reversed(extract_tb(error.__traceback__)), None)
    place = f", raised at {Path(frame.filename).name}:{frame.lineno}" if frame else ""
    return HiddenValueError(f"{error_words(error)}{place}").with_traceback(error.__traceback__)


def _may_quote(error: BaseException) -> bool:
    if isinstance(error, GatehouseError) or (isinstance(error, Exception) and is_interruption(error)):
        return False
    package = type(error).__module__.partition(".")[0]
    return type(error).__name__ not in _NO_ROW_READ and (package in _READING_ROWS or isinstance(error, _OF_VALUES))
