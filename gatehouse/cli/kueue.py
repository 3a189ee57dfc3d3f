"""`gatehouse kueue`: several teams on one cluster, as Kueue's objects and as a simulated week."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from gatehouse.cli.output import JsonOption, print_json, print_table
from gatehouse.errors import ConfigurationError
from gatehouse.launchers.kueue.spec import Kueue
from gatehouse.project.platforms import Platform, load_platform

app = typer.Typer(no_args_is_help=True, help="Several teams on one cluster: Kueue's objects, and a simulated week.")
_MOST_LOAD = 10.0
"""Upper limit: ten weeks of work in one week. Above it, queues only grow, and the simulation takes minutes."""
ProfileArgument = Annotated[Path, typer.Argument(help="A platform profile with a section `kueue`.")]


@app.command("manifests")
def print_manifests(profile: ProfileArgument) -> None:
    """Print Kueue's objects for the teams of a profile, to be applied with kubectl."""
    import yaml

    from gatehouse.launchers.kueue.manifests import manifests

    platform, kueue = _teams(profile)
    objects = manifests(kueue, platform.queue)
    typer.echo(yaml.safe_dump_all(objects, sort_keys=False, explicit_start=True), nl=False)


@app.command("simulate")
def simulate_week(
    profile: ProfileArgument,
    load: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=_MOST_LOAD,
            help="Work of each team, as a share of what its own quota can do in a week; at most 10.",
        ),
    ] = 0.4,
    seed: Annotated[int, typer.Option(help="Of the made-up jobs.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Let a made-up week of jobs pass through the queues, and through two other ways to share the cluster."""
    from gatehouse.launchers.kueue.comparison import compared, team_weeks, utilisation
    from gatehouse.launchers.kueue.week import WEEK, synthetic_week

    _, kueue = _teams(profile)
    resources = sorted({name for team in kueue.teams for held in team.quotas.values() for name in held})
    rows: list[dict[str, Any]] = []
    in_use: dict[str, dict[str, float]] = {}
    for way, simulated in compared(kueue, synthetic_week(kueue, load, seed)).items():
        in_use[way] = {name: utilisation(simulated, name, WEEK) for name in resources}
        rows += [{"shared": way, **asdict(one)} for one in team_weeks(simulated)]
    if as_json:
        print_json({"weeks": rows, "utilisation": in_use})
        return
    table = Table("shared", "team", box=None, pad_edge=False)
    for name in ("jobs", "median wait", "95 % wait", "longest wait", "ended for others", "done again"):
        table.add_column(name, justify="right")
    for row in rows:
        waits = [f"{row[name] / 60:.1f} h" for name in ("median_wait", "late_wait", "longest_wait")]
        table.add_row(row["shared"], row["team"], str(row["jobs"]), *waits, str(row["ended"]), f"{row['lost']:.1%}")
    print_table(table)
    for way, parts in in_use.items():
        typer.echo(f"in use, {way}: {', '.join(f'{name} {part:.0%}' for name, part in parts.items())}")


def _teams(profile: Path) -> tuple[Platform, Kueue]:
    platform = load_platform(profile)
    if platform.kueue is None:
        raise ConfigurationError(f"{profile} has no section kueue: expected the teams that share the cluster.")
    return platform, platform.kueue
