"""How a source may write times: the units of numbers since 1970, and formats as `strptime` knows them."""

import re
from functools import cache

EPOCHS = {"seconds": 6, "milliseconds": 3, "microseconds": 0, "nanoseconds": -3}
"""Units of numbers since 1970; a microsecond is ten to the power of minus so many of them."""
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMES = "january|february|march|april|may|june|july|august|september|october|november|december"
_DIRECTIVES = {
    "%Y": r"(?P<Y>\d{4})",
    "%y": r"(?P<y>\d{2})",
    "%m": r"(?P<m>\d{1,2})",
    "%d": r"(?P<d>\d{1,2})",
    "%b": rf"(?i:(?P<b>{'|'.join(MONTHS)}))",
    "%B": rf"(?i:(?P<b>{_NAMES}))",
    "%H": r"(?P<H>\d{1,2})",
    "%I": r"(?P<I>\d{1,2})",
    "%p": r"(?i:(?P<p>[ap])m)",
    "%M": r"(?P<M>\d{1,2})",
    "%S": r"(?P<S>\d{1,2})",
    "%f": r"(?P<f>\d{1,6})",
    "%z": r"(?P<z>Z|[+-]\d{2}:?\d{2})",
    "%%": "%",
}


def format_problem(form: str) -> str:
    """Why a text is no format of times; empty where it is one."""
    expected = f"expected {', '.join(EPOCHS)} or a format such as %d.%m.%Y %H:%M, found {form!r}"
    unknown = [piece for piece in _pieces(form) if piece[0] == "%" and piece not in _DIRECTIVES]
    if unknown:
        return f"{expected}, which has {', '.join(unknown)}: known are {' '.join(_DIRECTIVES)}"
    groups = re.findall(r"\?P<(\w)>", _pattern(form))
    if len(set(groups)) < len(groups):
        return f"{expected}, which states a part of the time twice"
    if not ({"Y", "y"} & set(groups) and {"m", "b"} & set(groups) and "d" in groups):
        return f"{expected}, which states no year, month and day"
    if ("I" in groups) != ("p" in groups):
        return f"{expected}: %I and %p, hour and half of the day, go together"
    return ""


@cache
def format_pattern(form: str) -> str:
    """A format as a regular expression with a group, named as its directive, for each part of a time."""
    return f"^{_pattern(form)}$"


def _pattern(form: str) -> str:
    return "".join(_DIRECTIVES.get(piece) or re.escape(piece) for piece in _pieces(form))


def _pieces(form: str) -> list[str]:
    return re.findall(r"%.|[^%]+|%$", form)
