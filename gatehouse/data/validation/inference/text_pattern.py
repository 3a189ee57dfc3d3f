"""Finds the one pattern that texts of an identifier share, such as `[A-Z]{3}` or `[0-9]{4}-[A-Z0-9]{2}`."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

_CLASSES = {"A": "A-Z", "a": "a-z", "9": "0-9"}
_WIDEST_RANGE = 3
_LONGEST = 64
_MOST_RUNS = 12
# A run of characters: the classes in it, or the one character itself, and how many there are.
_Run = tuple[str, int]


def shared_pattern(texts: Iterable[str]) -> str:
    """A regular expression (RE2) that matches all `texts`; empty where they have no common form.

    Runs of capital letters, small letters and digits are told apart where all texts have the same runs; else the
    classes between two punctuation marks are taken together. Lengths that differ by more than 3 are no form: such are
    words and not identifiers.
    """
    found = list(texts)
    if not found or any(not 2 <= len(each) <= _LONGEST or not each.isascii() for each in found):
        return ""
    if not all(each.isprintable() and " " not in each for each in found):
        return ""
    shapes = [re.sub("[0-9]", "9", re.sub("[a-z]", "a", re.sub("[A-Z]", "A", each))) for each in found]
    for runs in ([_runs(each) for each in shapes], [_words(each) for each in shapes]):
        pattern = _pattern(runs)
        if pattern:
            return pattern
    return ""


def _runs(shape: str) -> list[_Run]:
    return [(character, len(list(run))) for character, run in groupby(shape)]


def _words(shape: str) -> list[_Run]:
    """Letters and digits taken together, marked with a NUL, apart from the punctuation."""
    words = re.findall(r"[Aa9]+|[^Aa9]+", shape)
    return [("\0" + word if word[0] in _CLASSES else word, len(word)) for word in words]


def _pattern(texts: Sequence[Sequence[_Run]]) -> str:
    first = texts[0]
    if len(first) > _MOST_RUNS or any(len(each) != len(first) for each in texts):
        return ""
    parts = [_part([each[place] for each in texts]) for place in range(len(first))]
    return "".join(parts) if all(parts) and any("[" in part for part in parts) else ""


def _part(runs: Sequence[_Run]) -> str:
    """The pattern of the runs at one place; empty where they differ in more than length."""
    wholes = {whole for whole, _ in runs}
    lengths = [length for _, length in runs]
    least, most = min(lengths), max(lengths)
    joined = all(whole.startswith("\0") for whole in wholes)
    if not joined and len(wholes) > 1:
        return ""
    classes = sorted(set("".join(wholes)) & _CLASSES.keys()) if joined else [*wholes]
    if not joined and classes[0] not in _CLASSES:
        return re.escape(classes[0]) * (1 if len(classes[0]) > 1 else least) if least == most else ""
    if most - least > _WIDEST_RANGE:
        return ""
    times = "" if least == most == 1 else f"{{{least}}}" if least == most else f"{{{least},{most}}}"
    # The order in which classes are usually written.
    return f"[{''.join(_CLASSES[each] for each in 'Aa9' if each in classes)}]{times}"
