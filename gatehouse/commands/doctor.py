"""`gatehouse doctor`: whether a place gives what the pipelines of a project need, and what to do where it does not."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gatehouse.commands.kfp import PlatformOption, profile_of
from gatehouse.commands.output import JsonOption, print_json, print_table
from gatehouse.commands.place import project_folder

app = typer.Typer(no_args_is_help=True, help="Whether a place gives what the pipelines of a project need.")
_SIGNS = {"passed": ("✓", "green"), "failed": ("✗", "red"), "not checked": ("-", "yellow")}


@app.callback()
def doctor() -> None:
    """Look at a place before pipelines run there."""


@app.command("cluster")
def cluster(
    project: Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")] = None,
    platform: PlatformOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look at what a cluster must have: KFP, Kubernetes, images, rights, secrets, store, MLflow, Model Registry.

    Nothing is changed there but one small object in the store, which is removed again. Ends with 0 only where nothing
    failed and nothing that is needed was left unchecked.
    """
    from gatehouse.checking import check_project
    from gatehouse.doctor.cluster import examine

    checked = check_project(project_folder(project))
    findings = list(examine(checked, profile_of(checked, platform)))
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        table = Table("", "check", "found", "what to do", box=None, pad_edge=False)
        for finding in findings:
            sign, color = _SIGNS[finding.outcome]
            todo = "" if finding.well else finding.advice
            table.add_row(Text(sign, style=color), Text(finding.check), Text(finding.found), Text(todo))
        print_table(table)
    sys.exit(0 if all(finding.well for finding in findings) else 1)
