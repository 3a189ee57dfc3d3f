"""The numbers of a column that are NaN or infinite, told with the first row and with what to do."""

from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.store.hidden_values import unless_hidden


def told_not_finite(name: str, wrong: npt.NDArray[np.int64], rows: str, key: str, first: Any, value: float) -> str:
    """One sentence on a feature with such numbers, and the query that gives nulls instead.

    Args:
        name: Of the feature.
        wrong: Numbers of the rows that have them, shape (some,).
        rows: Of which rows, as "the first 1,500 rows".
        key: Name of the column that says which row it is.
        first: Its value in the first of them.
        value: The feature there.
    """
    shown = unless_hidden(f"first {key} {first}: {value}")
    column = '"' + name.replace('"', '""') + '"'
    return (
        f"{name}: NaN or infinite in {len(wrong):,} of {rows}, {shown}. Give a null where nothing is known: "
        f"if(isfinite({column}), {column}, NULL) AS {column}"
    )
