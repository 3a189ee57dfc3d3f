"""The page about a split: its checks, parts with the level of labels and times, folds, and how far columns moved."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gatehouse.data.splitting.divide import PARTS
from gatehouse.reports.charts import histogram
from gatehouse.reports.elements import table
from gatehouse.reports.format import percent
from gatehouse.reports.page import Marked, Report, Verdict
from gatehouse.reports.row_charts import Dot, bar_chart, dot_chart
from gatehouse.store.manifest import Manifest
from gatehouse.store.store import ArtifactStore

Json = Mapping[str, Any]

_SIGNS = {
    "passed": ("✓\u00a0passed", "good"),
    "failed": ("✕\u00a0failed", "bad"),
    "noted": ("✕\u00a0noted", "soft"),
    "could not run": ("?\u00a0could not run", "warn"),
}
_SHOWN, _SAID = 20, 4


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a split, as HTML."""
    manifest, found = store.manifest(reference), store.read_json(reference, "checks.json")
    drawn = Report(
        f"Split of {manifest.name}",
        f"{found['rows']:,} rows, strategy {manifest.configuration['strategy']}",
        _verdict(found["checks"]),
    )
    _add_checks(drawn, found["checks"])
    _add_parts(drawn, found)
    _add_folds(drawn, found["folds"], found["level"])
    _add_drift(drawn, found["columns"], found["thresholds"]["psi"])
    drawn.section("Inputs").facts(_inputs(manifest))
    return drawn.html()


def _verdict(checks: Sequence[Json]) -> Verdict:
    def told(status: str) -> tuple[str, ...]:
        return tuple(f"{one['name']}: {text}" for one in checks if one["status"] == status for text in one["said"])

    noted = [one["name"] for one in checks if one["status"] == "noted"]
    also = f" Noted only: {', '.join(noted)}." if noted else ""
    if warned := told("failed"):
        todo = "`split.checks` has the limits and the severity of each check."
        text = f"The rows are divided, and checks found what may leak.{also}"
        return Verdict("warn", text, warned, unchecked=told("could not run"), todo=todo)
    text = f"Every check that counts and could run has passed.{also}"
    return Verdict("pass", text, unchecked=told("could not run"))


def _add_checks(drawn: Report, checks: Sequence[Json]) -> None:
    drawn.section(
        "Checks",
        "A check that found something ends the run (fail), is a warning (warn), or is only noted (note), where the "
        "strategy does not promise what it looks for. A check that could not run has not passed.",
    )
    rows = []
    for one in checks:
        could_not_run = one["status"] == "could not run"
        meant = "note" if could_not_run and not one["required"] else one["severity"]
        rows.append([Marked(*_SIGNS[one["status"]]), one["name"], meant, "; ".join(_short(one["said"]))])
    drawn.table(["", "check", "severity", "found"], rows)


def _short(said: Sequence[str]) -> list[str]:
    return [*said[:_SAID], *([f"and {len(said) - _SAID} more, in checks.json"] if len(said) > _SAID else [])]


def _add_parts(drawn: Report, found: Json) -> None:
    parts = {name: found["parts"][name] for name in PARTS}
    total = max(1, found["rows"])
    rows = [
        [name, part["rows"], part["rows"] / total, *_level(part), part.get("first", ""), part.get("last", "")]
        for name, part in parts.items()
    ]
    title, shares = found["level"]["title"], found["level"]["is_share"]
    drawn.section("Parts", f"The {title} of each part has its 95 % interval, as if rows were independent.")
    headers = ["part", "rows", "share", title, "from", "to", "first decision", "last decision"]
    drawn.table(headers, rows, formats=dict.fromkeys(("share", *((title, "from", "to") if shares else ())), percent))
    if found["left_out"]:
        drawn.facts({f"in no part: {reason}": count for reason, count in found["left_out"].items()})
    dots = [Dot(name, *_level(part)) for name, part in parts.items()]
    figures = [(dot_chart(dots, title), f"The {title} of each part, with its interval.")]
    if "decisions" in found:
        decided = [(name, found["decisions"]["shares"][name]) for name in parts]
        first = min(datetime.fromisoformat(part["first"]) for part in parts.values() if "first" in part)
        edges = [(first.replace(tzinfo=UTC) + timedelta(days=day)).timestamp() for day in found["decisions"]["days"]]
        drawing = histogram(edges, decided, "decision", "share of the part", times=True)
        figures.append((drawing, "Rows by decision time, as shares of their part."))
    drawn.figures(*figures)


def _level(part: Json) -> tuple[float, float, float]:
    return part["level"], part["low"], part["high"]


def _add_folds(drawn: Report, folds: Sequence[Json], level: Json) -> None:
    if not folds:
        return
    rows = []
    for number, fold in enumerate(folds):
        cells: list[str | int | float] = [number]
        for name in ("train", "validation"):
            part = fold[name]
            span = f"{part['first']} to {part['last']}" if "first" in part else ""
            cells += [part["rows"], part["level"], span]
        rows.append(cells)
    drawn.section(
        "Folds", "The last one's parts are those of the split. Its duplicates and its drift are checked below."
    )
    titles = [f"{part}: {level['title']}" for part in ("train", "validation")]
    headers = ["fold", "train rows", titles[0], "train decisions", "validation rows", titles[1], "validation decisions"]
    drawn.table(headers, rows, formats=dict.fromkeys(titles if level["is_share"] else (), percent))


def _add_drift(drawn: Report, columns: Mapping[str, Json], bound: float) -> None:
    if not columns:
        return
    title = "Drift between the parts"
    measured = {name: [value for value in one["psi"] if value is not None] for name, one in columns.items()}
    most = {name: max(values) for name, values in measured.items() if values}
    if not most:
        drawn.section(title, "Not measured: no two parts have rows enough to be compared.")
        return
    ordered = sorted(columns, key=lambda name: (-most.get(name, -1.0), name))
    drawn.section(title, f"Population stability index of each column; above {bound:g} it has drifted.")
    bars = [(name, most[name]) for name in ordered[:_SHOWN] if name in most]
    drawn.figure(bar_chart(bars, marker=bound), f"The {len(bars)} columns that moved most, between any two parts.")
    rows = [[name, *(_marked(value, bound) for value in columns[name]["psi"])] for name in ordered]
    headers = ["column", "train to validation", "train to test", "validation to test"]
    first = max(_SHOWN, sum(value > bound for value in most.values()))
    drawn.table(headers, rows[:first])
    if rest := rows[first:]:
        drawn.folded(f"{len(rest):,} columns that moved less", table(headers, rest, label="Columns that moved less"))


def _marked(value: float | None, bound: float) -> Marked:
    return Marked(value, "warn" if value is not None and value > bound else "")


def _inputs(manifest: Manifest) -> dict[str, str]:
    settings = {name: value for name, value in manifest.configuration.items() if name != "checks"}
    chosen = {name: str(value) for name, value in settings.items() if value not in (None, "", [], {})}
    return {"training set": manifest.derived_from["training_set"]} | chosen
