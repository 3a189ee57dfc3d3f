"""The operations dashboard: success, failures and cost of pipelines and stages, and the gate's decisions."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gatehouse.operations.metrics.table import Row
from gatehouse.operations.metrics.totals import GOOD, Totals, gate_outcomes, totals
from gatehouse.reports.charts import STYLES, Series, line_chart
from gatehouse.reports.elements import Marked
from gatehouse.reports.format import Html, duration, escape, percent
from gatehouse.reports.page import Report
from gatehouse.reports.row_charts import bar_chart

NOT_MEASURED = "not measured"
_FAILURES, _MARKED, _LEAST_COST = 20, 60, 0.0001
_STAGE_COLUMNS = ("stage", "tasks", "success", "from memo", "retries", "median", "longest", "waited")


def page(rows: Sequence[Row], champions: Mapping[str, float], currency: str, days: float) -> str:
    """The dashboard as one self-contained HTML file.

    Args:
        rows: Rows of the operations table.
        champions: Age in seconds of each model's champion.
        currency: Currency of the prices.
        days: How many days back the rows reach.
    """
    runs, tasks = [row for row in rows if not row.stage], [row for row in rows if row.stage]
    made = totals(rows)
    report = Report(
        f"Operations of {', '.join(sorted({row.project for row in rows})) or 'this store'}",
        f"{len(runs):,} runs that ended in the last {days:g} days",
    )
    report.tiles(_tiles(runs, champions, made))
    if not runs:
        return report.section("Runs", "No run has ended in this time.").html()
    pipelines = [one for one in made if not one.stage]
    report.section("Pipelines", "Durations are medians of the runs that ended well.")
    _add_measured(
        report,
        ["pipeline", "runs", "success", "last", "ended", "duration", "waited", f"cost ({currency})", "data to model"],
        [_pipeline(one) for one in pipelines],
    )
    report.section("Runs over time").figures(
        *((chart, "How long each run took, by when it began.") for chart in _durations(runs)),
        (_ends(runs), "Runs by how they ended."),
    )
    failed = [row for row in reversed(tasks) if row.state not in (*GOOD, "tolerated")][:_FAILURES]
    report.section("Failures", "" if failed else "No stage failed in this time.", str(len(failed)))
    if failed:
        report.table(
            ["ended", "run", "pipeline", "stage", "state", "error", "attempts"],
            [
                [
                    _moment(row.began + row.seconds),
                    _unbroken(row.run),
                    row.pipeline,
                    row.stage,
                    row.state,
                    row.error,
                    row.attempts,
                ]
                for row in failed
            ],
        )
    stages = [one for one in made if one.stage]
    report.section("Stages", "Durations are of the tasks that worked; what came from the memo is counted beside them.")
    for pipeline in pipelines:
        report.note(pipeline.name)
        _add_measured(
            report,
            [*_STAGE_COLUMNS, "GPU", f"cost ({currency})"],
            [_stage(one) for one in stages if one.name == pipeline.name],
        )
    _add_data(report, stages, rows)
    return report.html()


def _tiles(runs: Sequence[Row], champions: Mapping[str, float], made: Sequence[Totals]) -> dict[str, Any]:
    good = sum(row.state == "succeeded" for row in runs)
    ended = [row for row in runs if row.state != "unknown"]
    share = good / len(ended) if ended else None
    ready = next((one.data_to_model_seconds for one in made if one.data_to_model_seconds is not None), None)
    ages = {f"champion {model}": span(age) for model, age in champions.items()} or {"champion": "none yet"}
    mark = "good" if share == 1 else "bad" if share is not None and share < 0.8 else ""
    return {
        "runs": len(runs),
        "ended well": Marked(percent(share), mark) if share is not None else NOT_MEASURED,
        "failed or stopped": len(ended) - good,
        "from data to an approved model": span(ready),
        **{f"age of the {name}": age for name, age in ages.items()},
    }


def _pipeline(one: Totals) -> list[Any]:
    state = Marked(one.last_state, "" if one.last_state in GOOD else "bad")
    return [
        *(_unbroken(one.name), one.runs, _unbroken(percent(one.success)), state, _moment(one.last_ended)),
        *(span(one.median_seconds), span(one.queue_seconds), _money(one.cost), span(one.data_to_model_seconds)),
    ]


def _stage(one: Totals) -> list[Any]:
    return [
        *(one.stage, one.runs, _unbroken(percent(one.success)), one.memo, one.retries),
        *(span(one.median_seconds), span(one.longest_seconds), span(one.queue_seconds)),
        NOT_MEASURED if one.gpu_percent is None else _unbroken(percent(one.gpu_percent / 100)),
        _money(one.cost),
    ]


def _add_measured(report: Report, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table without the columns that have no values; a line below names these columns."""
    missing = [at for at in range(len(headers)) if all(row[at] == NOT_MEASURED for row in rows)]
    kept = [at for at in range(len(headers)) if at not in missing]
    report.table([headers[at] for at in kept], [[row[at] for at in kept] for row in rows])
    if missing:
        report.note(f"Not measured: {', '.join(headers[at] for at in missing)}.")


def _add_data(report: Report, stages: Sequence[Totals], rows: Sequence[Row]) -> None:
    seen = [one for one in stages if one.rows_in is not None]
    report.section("Data", "What the last task of each stage took in, and how old its newest row was.")
    report.table(
        ["stage", "pipeline", "rows in", "rejected", "age of the data"],
        [
            [one.stage, _unbroken(one.name), one.rows_in, _whole(one.rows_rejected), _hours(one.data_age_hours)]
            for one in seen
        ],
    )
    decided = gate_outcomes(rows)
    report.section("Gate", "" if decided else "No candidate was judged in this time.")
    if decided:
        report.figure(bar_chart([(name, float(count)) for name, count in decided.items()]), "Decisions on candidates.")


def _durations(runs: Sequence[Row]) -> Iterator[Html]:
    """Charts of runs over time, each with as many pipelines as there are distinct markers."""
    by_pipeline: dict[str, list[tuple[float, float]]] = {}
    for row in runs:
        by_pipeline.setdefault(f"{row.project}-{row.pipeline}", []).append((row.began, row.seconds))
    series = [Series(name, points, marked=len(points) <= _MARKED) for name, points in sorted(by_pipeline.items())]
    for first in range(0, len(series), STYLES):
        yield line_chart(series[first : first + STYLES], "began", "seconds", times=True)


def _ends(runs: Sequence[Row]) -> Html:
    counted = Counter((f"{row.project}-{row.pipeline} {row.state}", row.state) for row in runs)
    bad = {name for name, state in counted if state != "succeeded"}
    return bar_chart([(name, float(count)) for (name, _), count in sorted(counted.items())], bad=bad)


def _moment(seconds: float) -> Html:
    return _unbroken(time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds)))


def _unbroken(text: str) -> Html:
    """A table cell that is not wrapped: on a phone the table scrolls."""
    return Html(f'<span class="distinct">{escape(text)}</span>')


def span(seconds: float | None) -> str:
    """A span of time, to the tenth of a second where it is short."""
    if seconds is None:
        return NOT_MEASURED
    return f"{seconds:.1f} s" if abs(seconds) < 60 else duration(seconds)


def _hours(hours: float | None) -> str:
    return NOT_MEASURED if hours is None else duration(3600 * hours)


def _money(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return "under 0.0001" if 0 < value < _LEAST_COST else f"{value:,.4f}"


def _whole(value: int | None) -> Any:
    return NOT_MEASURED if value is None else value
