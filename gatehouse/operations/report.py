"""The operations dashboard: success, failures and cost of pipelines and stages, and the gate's decisions."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.operations.metrics.table import Row
from gatehouse.operations.metrics.totals import GOOD, Totals, gate_outcomes, totals
from gatehouse.reports.axes import Axis
from gatehouse.reports.charts import STYLES, Series
from gatehouse.reports.format import duration, percent
from gatehouse.reports.page import Cell, render

NOT_MEASURED = "not measured"
_FAILURES, _DOTTED = 20, 60


def page(rows: Sequence[Row], champions: Mapping[str, float], currency: str, days: float) -> str:
    """The dashboard of rows of the last `days` as HTML, with the age in seconds of each model's champion."""
    runs, tasks = [row for row in rows if not row.stage], [row for row in rows if row.stage]
    made = totals(rows)
    pipelines, stages = [total for total in made if not total.stage], [total for total in made if total.stage]
    failed = [row for row in reversed(tasks) if row.state not in (*GOOD, "tolerated")][:_FAILURES]
    states = Counter((f"{row.project}-{row.pipeline} {row.state}", row.state) for row in runs)
    began = [row.began for row in runs]
    return render(
        "operations.html",
        f"Operations of {', '.join(sorted({row.project for row in rows})) or 'this store'}",
        f"{len(runs):,} runs that ended in the last {days:g} days",
        runs=len(runs),
        tiles=_tiles(runs, champions, made),
        pipelines=pipelines,
        durations=_durations(runs),
        began=Axis.of("began", began, times=True),
        ends=[(name, float(count)) for (name, _), count in sorted(states.items())],
        bad_ends={name for name, state in states if state != "succeeded"},
        failed=failed,
        stages={pipeline.name: [total for total in stages if total.name == pipeline.name] for pipeline in pipelines},
        data=[total for total in stages if total.rows_in is not None],
        decisions=[(name, float(count)) for name, count in gate_outcomes(rows).items()],
        currency=currency,
        good=GOOD,
        span=span,
        moment_of=lambda seconds: time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds)),
    )


def _tiles(runs: Sequence[Row], champions: Mapping[str, float], made: Sequence[Totals]) -> dict[str, Any]:
    ended = [row for row in runs if row.state != "unknown"]
    good = sum(row.state == "succeeded" for row in runs)
    share = good / len(ended) if ended else None
    ready = next((total.data_to_model_seconds for total in made if total.data_to_model_seconds is not None), None)
    mark = "good" if share == 1 else "bad" if share is not None and share < 0.8 else ""
    ages = {f"age of the champion {model}": span(age) for model, age in champions.items()}
    return {
        "runs": len(runs),
        "ended well": NOT_MEASURED if share is None else Cell(percent(share), mark),
        "failed or stopped": len(ended) - good,
        "from data to an approved model": span(ready),
        **(ages or {"age of the champion": "none yet"}),
    }


def _durations(runs: Sequence[Row]) -> list[list[Series]]:
    """Start and duration of the runs by pipeline, as many pipelines per chart as there are styles."""
    by_pipeline: dict[str, list[tuple[float, float]]] = {}
    for row in runs:
        by_pipeline.setdefault(f"{row.project}-{row.pipeline}", []).append((row.began, row.seconds))
    series = [
        Series(name, points, dots=points if len(points) <= _DOTTED else ())
        for name, points in sorted(by_pipeline.items())
    ]
    return [series[first : first + STYLES] for first in range(0, len(series), STYLES)]


def span(seconds: float | None) -> str:
    """A span of time, to the tenth of a second if it is short."""
    if seconds is None:
        return NOT_MEASURED
    return f"{seconds:.1f} s" if abs(seconds) < 60 else duration(seconds)
