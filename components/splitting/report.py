"""The page about a split: its checks, parts with label rates and times, folds, and how far columns moved."""

import math

import numpy as np

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.reports.charts import Dot, bar_chart, dot_chart, histogram
from gatehouse.components.reports.format import percent
from gatehouse.components.reports.page import Marked, Report, Verdict
from gatehouse.components.splitting.checks import COULD_NOT_RUN, FAILED, PASSED, Check, Subject
from gatehouse.components.splitting.partition import PARTS, Rows

_SIGNS = {PASSED: "✓\u00a0passed", FAILED: "✕\u00a0failed", COULD_NOT_RUN: "?\u00a0could not run"}
_BINS = 60
_SHOWN, _SAID = 20, 4
_Z = 1.959964


def split_report(training_set: str, subject: Subject, checks: list[Check]) -> str:
    """The HTML report of a split.

    Args:
        training_set: Reference of what was divided.
        subject: The rows and their parts.
        checks: The outcomes.
    """
    page = Report(
        f"Split of {Reference.parse(training_set).name}",
        f"{subject.training_set.rows:,} rows, strategy {subject.spec.strategy}",
        _verdict(checks),
    )
    _add_checks(page, checks)
    _add_parts(page, subject)
    _add_folds(page, subject)
    _add_drift(page, subject)
    _add_single_features(page, subject)
    page.section("Inputs").facts({"training set": training_set} | _settings(subject))
    return page.html()


def _verdict(checks: list[Check]) -> Verdict:
    warned = [
        f"{one.name}: {text}" for one in checks if one.status == FAILED and one.severity != "note" for text in one.said
    ]
    unable = [one.name for one in checks if one.status == COULD_NOT_RUN]
    if warned:
        return Verdict("warn", "\n".join(warned))
    noted = [one.name for one in checks if one.status == FAILED]
    lines = ["Every check that counts and could run has passed."]
    lines += [f"Failed, and only noted: {', '.join(noted)}."] if noted else []
    lines += [f"Could not run: {', '.join(unable)}."] if unable else []
    return Verdict("pass", "\n".join(lines))


def _add_checks(page: Report, checks: list[Check]) -> None:
    page.section(
        "Checks",
        "A failed check ends the run (fail), is a warning (warn), or is only noted (note), where the strategy does not "
        "promise what it looks for. A check that could not run has not passed.",
    )
    rows = []
    for one in checks:
        mark = {PASSED: "good", COULD_NOT_RUN: "warn"}.get(one.status, "soft" if one.severity == "note" else "bad")
        meant = "note" if one.status == COULD_NOT_RUN and not one.required else one.severity
        rows.append([Marked(_SIGNS[one.status], mark), one.name, meant, "; ".join(_short(one.said))])
    page.table(["", "check", "severity", "found"], rows)


def _short(said: tuple[str, ...]) -> list[str]:
    return [*said[:_SAID], *([f"and {len(said) - _SAID} more, in checks.json"] if len(said) > _SAID else [])]


def _add_parts(page: Report, subject: Subject) -> None:
    total = max(1, subject.training_set.rows)
    rows = []
    for name in PARTS:
        part = subject.parts[name]
        rate, low, high = label_rate(subject, part)
        times = subject.decision[part] if subject.decision is not None else None
        span = ["", ""] if times is None else [_day(times.min()), _day(times.max())]
        rows.append([name, len(part), percent(len(part) / total), rate, low, high, *span])
    page.section("Parts", "Label rates with their 95 % intervals (Wilson 1927), as if rows were independent.")
    headers = ["part", "rows", "share", "label rate", "from", "to", "first decision", "last decision"]
    page.table(headers, rows, formats=dict.fromkeys(("label rate", "from", "to"), percent))
    if subject.partition.left_out:
        page.facts({f"in no part: {reason}": count for reason, count in subject.partition.left_out.items()})
    dots = [Dot(name, *label_rate(subject, subject.parts[name])) for name in PARTS]
    figures = [(dot_chart(dots, "label rate", size=(450, 0)), "Label rate of each part, with its interval.")]
    if subject.decision is not None:
        figures.append((_times(subject), "Rows by decision time, as shares of their part."))
    page.figures(*figures)


def label_rate(subject: Subject, rows: Rows) -> tuple[float, float, float]:
    """Share of positive labels, and the ends of its 95 % interval (Wilson 1927)."""
    count = len(rows)
    if not count:
        return math.nan, math.nan, math.nan
    rate = float((subject.labels[rows] == 1).mean())
    middle = (rate + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    half = _Z / (1 + _Z**2 / count) * math.sqrt(rate * (1 - rate) / count + _Z**2 / (4 * count**2))
    return tuple(round(value, 6) for value in (rate, middle - half, middle + half))  # type: ignore[return-value]  # three


def _times(subject: Subject) -> str:
    assert subject.decision is not None
    days = {name: subject.decision[subject.parts[name]].astype(np.int64) / 86_400e6 for name in PARTS}
    start = min(values.min() for values in days.values())
    edges = np.linspace(0.0, max(values.max() for values in days.values()) - start or 1.0, _BINS + 1)
    groups = []
    for name in PARTS:
        counts = np.histogram(days[name] - start, edges)[0]
        groups.append((name, (counts / max(1, counts.sum())).tolist()))
    return histogram(edges.tolist(), groups, "days since the first decision", "share of the part")


def _day(moment: np.datetime64) -> str:
    return str(moment.astype("datetime64[m]")).replace("T", " ")


def _add_folds(page: Report, subject: Subject) -> None:
    if not subject.partition.folds:
        return
    rows = []
    for number, fold in subject.partition.every_fold():
        cells: list[str | int | float] = [number]
        for name in ("train", "validation"):
            part = fold[name]
            times = subject.decision[part] if subject.decision is not None else None
            span = "" if times is None else f"{_day(times.min())} to {_day(times.max())}"
            cells += [len(part), label_rate(subject, part)[0], span]
        rows.append(cells)
    page.section(
        "Folds", "The last one's parts are those of the split. Its duplicates and its drift are checked below."
    )
    headers = ["fold", "train rows", "train label rate", "train decisions"]
    headers += ["validation rows", "validation label rate", "validation decisions"]
    page.table(headers, rows, formats=dict.fromkeys(("train label rate", "validation label rate"), percent))


def _add_drift(page: Report, subject: Subject) -> None:
    measured = {name: (one.psi(0, 1), one.psi(0, 2), one.psi(1, 2)) for name, one in subject.profiles().items()}
    if not measured:
        return
    bound = subject.spec.checks.psi
    ordered = sorted(measured.items(), key=lambda item: (-max(value or 0.0 for value in item[1]), item[0]))
    page.section(
        "Drift between the parts", f"Population stability index of each column; above {bound:g} it has drifted."
    )
    bars = [(name, max(value or 0.0 for value in values)) for name, values in ordered[:_SHOWN]]
    page.figure(bar_chart(bars, marker=bound), f"The {len(bars)} columns that moved most, between any two parts.")
    rows = [[name, *(_marked(value, bound) for value in values)] for name, values in ordered]
    page.table(["column", "train to validation", "train to test", "validation to test"], rows)


def _marked(value: float | None, bound: float) -> Marked:
    return Marked(value if value is None else round(value, 6), "warn" if value is not None and value > bound else "")


def _add_single_features(page: Report, subject: Subject) -> None:
    areas = {name: subject.profiles()[name].auc() for name in subject.training_set.features}
    known = sorted(
        ((name, area) for name, area in areas.items() if area is not None), key=lambda one: (-one[1], one[0])
    )
    if known:
        page.section(
            "What one feature tells alone",
            "ROC AUC on validation of the label rates that its bins or categories have in train.",
        )
        chart = bar_chart(known[:_SHOWN], marker=subject.spec.checks.single_feature_auc)
        page.figure(chart, "The features that tell most; the dashed line is where one is taken for a leak.")


def _settings(subject: Subject) -> dict[str, str]:
    chosen = subject.spec.model_dump(mode="json", exclude={"checks"})
    return {name: str(value) for name, value in chosen.items() if value not in (None, "", [], ())}
