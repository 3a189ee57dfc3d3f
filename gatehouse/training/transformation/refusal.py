"""Says which settings of single columns do not fit the columns of a training set."""

from collections.abc import Sequence

from gatehouse.training.transformation.spec import NumericSpec, TransformationSpec


def misplaced_settings(spec: TransformationSpec, numeric: Sequence[str], categorical: Sequence[str]) -> str:
    """The message for settings of `columns` that name no feature, or one of the other kind."""
    problems = []
    for name in spec.misplaced(numeric, categorical):
        if name not in (*numeric, *categorical):
            features = ", ".join((*numeric, *categorical))
            problems.append(f"columns.{name}: expected a feature, found none of that name among {features}")
        else:
            kinds = ("numeric", "categorical")
            found, other = kinds if isinstance(spec.columns[name], NumericSpec) else kinds[::-1]
            problems.append(f"columns.{name}: expected settings of a {other} feature, found those of a {found} one")
    return "The transformation has problems:" + "".join(f"\n  - {text}" for text in problems)
