"""How methods fare by the share of steps that their trials took: until a goal is reached, and as a picture."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from gatehouse.reports.charts import Frame, axis_limits, drawn_axes, framed_svg

Course = list[tuple[float, float]]
"""The share of all steps that were taken when a trial succeeded, and the best value then; in this order."""

_SHARES = [index / 100 for index in range(101)]
_STYLE = """<style>text{font:12px system-ui,Segoe UI,Helvetica,Arial,sans-serif;fill:#5a6878}.title{font-weight:600}
.page{fill:#fff}.axis,.grid{stroke:#c9d2dc;fill:none}.l{fill:none;stroke-width:2}
.s0{stroke:#5a6878;stroke-dasharray:4 3}.s1{stroke:#0067b1}.s2{stroke:#c44e00}.s3{stroke:#008060}
@media (prefers-color-scheme:dark){.page{fill:#11161d}text{fill:#9fb0c3}.axis,.grid{stroke:#3a4552}}</style>"""


def _shares(methods: Mapping[str, Sequence[Course]], method: str) -> list[float]:
    """The share of all steps in which each seed reaches what its random search ended with; 2 where it does not."""
    goals = [course[-1][1] for course in methods["random"]]
    courses = zip(methods[method], goals, strict=True)
    return sorted(next((share for share, best in course if best <= goal), 2.0) for course, goal in courses)


def reached(methods: Mapping[str, Sequence[Course]], method: str) -> float:
    """The median of these shares."""
    return statistics.median(_shares(methods, method))


def print_courses(table: str, methods: Mapping[str, Sequence[Course]]) -> None:
    """Print a line for each method."""
    for method, courses in methods.items():
        shares, best = _shares(methods, method), statistics.median(course[-1][1] for course in courses)
        middle, between = statistics.median(shares), f"{shares[2]:.2f} to {shares[7]:.2f}"
        count = f"{sum(share <= 1 for share in shares)} of {len(shares)}"
        print(f"  {table:14} {method:22} {middle:8.2f}   {between} {count:>11} {best:12.4f}", flush=True)


def middle(courses: Sequence[Course]) -> list[tuple[float, float]]:
    """The median over seeds of the best value at each share, from where every seed has one."""
    points = []
    for share in _SHARES:
        now = [min((value for when, value in course if when <= share), default=None) for course in courses]
        values = [value for value in now if value is not None]
        if len(values) == len(courses):
            points.append((share, statistics.median(values)))
    return points


def draw(path: Path, tables: Mapping[str, Mapping[str, Sequence[Course]]], unit: str) -> None:
    """Write the picture.

    Args:
        path: Of the SVG.
        tables: By table and method, the course of each seed.
        unit: Of the values.
    """
    width, height, parts = 330, 300, [_STYLE, f'<rect class="page" width="{330 * len(tables)}" height="330" rx="8"/>']
    for index, (table, methods) in enumerate(tables.items()):
        lines = [middle(courses) for courses in methods.values()]
        values = [value for line in lines for share, value in line if share >= 0.2]
        y0, y1 = axis_limits(values, None)
        left = width * index
        frame = Frame(left + 62, 34, left + width - 14, height - 44, 0.0, 1.0, y0, y1)
        parts += drawn_axes(frame, "share of random search's steps", unit if index == 0 else "")
        parts.append(f'<text class="title" x="{left + 62}" y="24">{table}</text>')
        box = (frame.right - frame.left, frame.bottom - frame.top)
        inside = f'<rect x="{frame.left}" y="{frame.top}" width="{box[0]}" height="{box[1]}"/>'
        parts.append(f'<clipPath id="p{index}">{inside}</clipPath>')
        for style, line in enumerate(lines):
            drawn = " ".join(f"{frame.x(share):.1f},{frame.y(value):.1f}" for share, value in line)
            parts.append(f'<polyline clip-path="url(#p{index})" class="l s{style}" points="{drawn}"/>')
    for style, method in enumerate(next(iter(tables.values()))):
        x = 62 + style * 210
        parts.append(f'<line class="l s{style}" x1="{x}" x2="{x + 24}" y1="314" y2="314"/>')
        parts.append(f'<text x="{x + 30}" y="318">{method}</text>')
    path.write_text(framed_svg(width * len(tables), 330, f"Best {unit} so far", parts) + "\n")
