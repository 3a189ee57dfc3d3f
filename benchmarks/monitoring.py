"""False alarms and delay of drift checks on rows whose days depend on each other, and their speed.

Rows come in days, each with a level of its own in every feature, as weather has; two features follow a season of a
year. The reference is January to September. `undrifted` are two weeks from the same year that nothing happened to: an
alarm is false. `planted` shifts three features by a standard deviation from one day on: the delay is the number of days
until one of them alarms. `--follow` makes a day like the one before.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import ks_2samp

from gatehouse.monitoring.checks import data_drift
from gatehouse.monitoring.decision import MOVED
from gatehouse.monitoring.rows import Rows
from gatehouse.monitoring.spec import DataDriftSpec, SignificanceSpec

PLAIN, SEASONAL, SHIFTED = 10, 2, 3
_LEVEL, _OF_DAYS = 0.01, 0.5
_START = np.datetime64("2013-01-01", "us")
NAMES = [f"plain_{number}" for number in range(PLAIN)] + [f"seasonal_{number}" for number in range(SEASONAL)]
Judge = Callable[[pa.Table, pa.Table], set[str]]


def rows_of(
    first_day: int, days: int, rows: int, random: np.random.Generator, shifted: bool = False, follow: float = 0.0
) -> pa.Table:
    """Days of rows; half of the variance of a feature is that of its days, `follow` the correlation of neighbours."""
    day = np.repeat(np.arange(days), rows)
    table: dict[str, Any] = {"decision_time": pa.array(_START + (first_day + day) * np.timedelta64(86_400, "s"))}
    for number, name in enumerate(NAMES):
        level = _levels(days, follow, random)[day]
        values = level + random.normal(scale=np.sqrt(1 - _OF_DAYS), size=days * rows)
        if name.startswith("seasonal"):
            values += 2 * np.sin(2 * np.pi * (first_day + day) / 365)
        table[name] = values + (1.0 if shifted and number < SHIFTED else 0.0)
    return pa.table(table)


def _levels(days: int, follow: float, random: np.random.Generator) -> Any:
    levels = random.normal(scale=np.sqrt(_OF_DAYS), size=days)
    for number in range(1, days):
        levels[number] = follow * levels[number - 1] + np.sqrt(1 - follow**2) * levels[number]
    return levels


def gatehouse_judge(spec: DataDriftSpec, min_rows: int) -> Judge:
    """The features that drifted, as the stage `monitor` finds them."""

    def judge(reference: pa.Table, current: pa.Table) -> set[str]:
        manifest: Any = SimpleNamespace(details={"numeric": NAMES, "categorical": []})
        watched = Rows(manifest, reference, reference, current, current, False, {})
        return {finding.name for finding in data_drift(spec, watched, min_rows, {}) if finding.state == MOVED}

    return judge


def by_row(reference: pa.Table, current: pa.Table) -> set[str]:
    """Kolmogorov and Smirnov's test of single rows, with Bonferroni's correction."""
    tested = {name: ks_2samp(reference[name].to_numpy(), current[name].to_numpy(), method="asymp") for name in NAMES}
    return {name for name, result in tested.items() if result.pvalue * len(NAMES) < _LEVEL}


def judges(min_rows: int) -> dict[str, Judge]:
    """What is compared, by name."""
    alone = {"seasonal_margin": 0.0, "significance": None}
    single = SignificanceSpec(unit="")
    return {
        "ours": gatehouse_judge(DataDriftSpec(), min_rows),
        "ours, Benjamini-Hochberg": gatehouse_judge(
            DataDriftSpec(significance=SignificanceSpec(correction="benjamini_hochberg")), min_rows
        ),
        "PSI above 0.25 alone": gatehouse_judge(DataDriftSpec(**alone), min_rows),
        "PSI and KS by row": gatehouse_judge(DataDriftSpec(seasonal_margin=0.0, significance=single), min_rows),
        "KS by row": by_row,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--rows", type=int, default=100, help="of a day")
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--speed-rows", type=int, default=1_000_000)
    parser.add_argument("--follow", type=float, default=0.0, help="correlation of a day with the one before")
    options = parser.parse_args()
    random = np.random.default_rng(7)
    rows = partial(rows_of, rows=options.rows, random=random, follow=options.follow)
    reference = rows(0, 273)
    undrifted = [rows(int(random.integers(0, 259)), options.days) for _ in range(options.draws)]
    planted = [rows(120, options.days, shifted=True) for _ in range(options.draws)]
    print(f"{'':28} false alarms   of features   found   delay, days")
    for name, judge in judges(options.rows).items():
        _print(name, _measured(judge, reference, undrifted, planted, options))
    _speed(options)


def _print(name: str, figures: tuple[float, float, float, float]) -> None:
    false, share, seen, delay = figures
    print(f"{name:28} {false:12.0%} {share:13.1%} {seen:7.0%} {delay:12.1f}", flush=True)


def _days(options: Any) -> list[int]:
    """How many days have passed whenever somebody looks."""
    return [day for day in (1, 2, 3, 5, 7, 10, 14, 21, 28) if day <= options.days]


def _measured(
    judge: Judge, reference: pa.Table, undrifted: list[pa.Table], planted: list[pa.Table], options: Any
) -> tuple[float, float, float, float]:
    """Share of undrifted windows with an alarm, and of their features; share of drifts found, and the median delay."""
    alarms = [judge(reference, table) for table in undrifted]
    shifted = set(NAMES[:SHIFTED])
    delays = []
    for table in planted:
        seen = (day for day in _days(options) if judge(reference, table.slice(0, day * options.rows)) & shifted)
        delays.append(next(seen, np.inf))
    share = float(np.mean([len(names) / len(NAMES) for names in alarms]))
    seen = float(np.mean(np.isfinite(delays)))
    return float(np.mean([bool(names) for names in alarms])), share, seen, float(np.median(delays))


def _speed(options: Any) -> None:
    """Seconds for the rows of a year against a tenth of them."""
    random = np.random.default_rng(1)
    per_day = options.speed_rows // 273
    reference, current = (rows_of(first, days, per_day, random) for first, days in ((0, 273), (280, 27)))
    began = time.perf_counter()
    judges(per_day)["ours"](reference, current)
    took = time.perf_counter() - began
    print(f"\n{reference.num_rows:,} rows against {current.num_rows:,}, {len(NAMES)} numbers: ours {took:.1f} s")


if __name__ == "__main__":
    main()
