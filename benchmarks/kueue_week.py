"""A week of three teams on one cluster: what Kueue's policy does, beside quotas alone and beside one queue for all.

The teams are those of the example's profile. `--loads` are tried one after the other; of the first, docs/images/
kueue-week.svg is drawn. Ends with 1 where a limit is missed.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from gatehouse.launchers.kueue.comparison import TeamWeek, compared, team_weeks, utilisation
from gatehouse.launchers.kueue.simulation import Simulated
from gatehouse.launchers.kueue.week import DAY, WEEK, synthetic_week
from gatehouse.project.platforms import load_platform
from gatehouse.reports.axes import Frame, drawn_axes
from gatehouse.reports.charts import framed_svg

ROOT = Path(__file__).resolve().parent.parent
PROFILE = ROOT / "pipelines" / "projects" / "flights" / "platforms" / "cluster.yaml"
PICTURE = ROOT / "docs" / "images" / "kueue-week.svg"
SCARCE = "nvidia.com/gpu"
WIDTH, HEIGHT, LEFT = 860, 210, 46
_STYLE = """<style>text{font:12px system-ui,Segoe UI,Helvetica,Arial,sans-serif;fill:#5a6878}.title{font-weight:600}
.page{fill:#fff}.axis,.grid{stroke:#c9d2dc;fill:none}.a{fill:#0067b1}.b{fill:#c44e00}.c{fill:#008060}
.whole{stroke:#5a6878;stroke-dasharray:4 3}
@media (prefers-color-scheme:dark){.page{fill:#11161d}text{fill:#9fb0c3}.axis,.grid{stroke:#3a4552}}</style>"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", default="0.4", help="work of each team, as a share of its own quota")
    parser.add_argument("--seeds", type=int, default=3, help="how many weeks of each load")
    options = parser.parse_args()
    kueue = load_platform(PROFILE).kueue
    assert kueue is not None
    missed = []
    for load in map(float, options.loads.split(",")):
        for seed in range(1, options.seeds + 1):
            weeks = compared(kueue, synthetic_week(kueue, load, seed))
            if seed == 1 and load == float(options.loads.split(",")[0]):
                PICTURE.write_text(picture(list(weeks.items())[:2]))
            print(f"\nload {load:g}, week {seed}")
            for way, simulated in weeks.items():
                print(
                    f"{way}: {utilisation(simulated, SCARCE, WEEK):.0%} of GPUs in use, the last job ends after "
                    f"{simulated.until / DAY:.1f} days"
                )
                for one in team_weeks(simulated):
                    print(f"  {line(one)}")
            missed += misses(weeks, load)
    print("\n".join(missed) or "\nevery limit was held")
    return 1 if missed else 0


def line(one: TeamWeek) -> str:
    waits = " / ".join(f"{wait / 60:.1f}" for wait in (one.median_wait, one.late_wait, one.longest_wait))
    return (
        f"{one.team:<10} {one.jobs:>4} jobs, waits in hours (median / 95 % / longest) {waits}, "
        f"{one.ended} ended for others, {one.lost:.1%} done again, {one.unfinished} unfinished"
    )


def misses(weeks: dict[str, Simulated], load: float) -> Iterator[str]:
    """No job is left over, and no team waits longer than with its quota alone, by more than an hour in 95 %."""
    shared, alone = (team_weeks(weeks[way]) for way in ("as in the profile", "quotas without borrowing"))
    for one, other in zip(shared, alone, strict=True):
        if one.unfinished:
            yield f"load {load:g}: {one.unfinished} jobs of {one.team} never ended"
        if one.late_wait > other.late_wait + 60:
            yield f"load {load:g}: {one.team} waits {one.late_wait / 60:.1f} h, alone {other.late_wait / 60:.1f} h"


def picture(weeks: list[tuple[str, Simulated]]) -> str:
    """GPUs in use by team, one above the other, over the week, for each way to share."""
    parts, height = [f'<rect class="page" width="{WIDTH}" height="{HEIGHT * len(weeks)}" rx="8"/>'], HEIGHT * len(weeks)
    for number, (way, simulated) in enumerate(weeks):
        top = number * HEIGHT
        whole = sum(amount for (_, name), amount in simulated.capacity.items() if name == SCARCE) / 1000
        frame = Frame(LEFT, top + 34, WIDTH - 14, top + HEIGHT - 40, 0, 7, 0, whole)
        parts += drawn_axes(frame, "day", "GPUs in use")
        teams = sorted({team for _, team, _, _ in simulated.usage})
        below = [0.0] * WIDTH
        for team, style in zip(teams, "abc", strict=True):
            above = [low + high for low, high in zip(below, _levels(simulated, team), strict=True)]
            parts.append(f'<path class="{style}" d="{_area(frame, below, above)}"/>')
            below = above
        parts.append(f'<text class="title" x="{LEFT}" y="{top + 22}">{way}</text>')
        for at, (team, style) in enumerate(zip(teams, "abc", strict=True)):
            x = WIDTH - 300 + at * 100
            parts.append(f'<rect class="{style}" x="{x}" y="{top + 13}" width="10" height="10"/>')
            parts.append(f'<text x="{x + 15}" y="{top + 22}">{team}</text>')
    return framed_svg(WIDTH, height, "GPUs in use by team over a week", [_STYLE, *parts])


def _levels(simulated: Simulated, team: str) -> list[float]:
    """Mean number of GPUs of a team in each of as many parts of the week as the picture is wide."""
    step, levels, held, since = WEEK / WIDTH, [0.0] * WIDTH, 0.0, 0.0
    changes = [
        (moment, amount / 1000) for moment, one, (_, name), amount in simulated.usage if (one, name) == (team, SCARCE)
    ]
    for moment, amount in [*changes, (float(WEEK), 0.0)]:
        while since < min(moment, WEEK):
            at = int(since / step + 1e-9)
            until = min(moment, (at + 1) * step)
            levels[min(at, WIDTH - 1)] += held * (until - since) / step
            since = until
        held = amount
    return levels


def _area(frame: Frame, below: list[float], above: list[float]) -> str:
    def points(values: list[float]) -> list[str]:
        return [f"{frame.x(7 * at / WIDTH):.1f} {frame.y(value):.1f}" for at, value in enumerate(values)]

    return "M" + "L".join([*points(above), *reversed(points(below))]) + "Z"


if __name__ == "__main__":
    sys.exit(main())
