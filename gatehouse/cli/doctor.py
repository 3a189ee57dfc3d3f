"""`gatehouse doctor`: checks whether a cluster has what a project's pipelines need, and says what to do if not."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from gatehouse.cli.kfp import Place, PlatformOption, profile_of
from gatehouse.cli.output import JsonOption, print_json, print_rows
from gatehouse.kfp.submission import Submission
from gatehouse.kfp_api.connection import KfpError
from gatehouse.operations.diagnosing_stage import failed, passed
from gatehouse.operations.ending_stage import outcome_in_kfp
from gatehouse.project.place import project_folder
from gatehouse.store.store import ArtifactStore

app = typer.Typer(no_args_is_help=True, help="Whether a place gives what the pipelines of a project need.")
_SIGNS = {"passed": ("✓", "green"), "failed": ("✗", "red"), "not checked": ("-", "yellow")}


@app.callback()
def doctor() -> None:
    """Look at a place before pipelines run there."""


@app.command("cluster")
def cluster(
    project: Annotated[Path | None, typer.Argument(help="Folder of the project; default: this one.")] = None,
    platform: PlatformOption = None,
    run: Annotated[bool, typer.Option("--run", help="Then run a pipeline whose job kills its own worker.")] = False,
    timeout: Annotated[float, typer.Option(help="With --run: minutes for the pipeline at most.")] = 60,
    as_json: JsonOption = False,
) -> None:
    """Look at what a cluster must have: KFP, Kubernetes, images, rights, secrets, store, MLflow, Model Registry.

    Nothing is changed there but one small object in the store, which is removed again. With --run a pipeline of two
    tasks looks at the same from pods. Ends with 0 only where nothing failed and nothing that is needed was left
    unchecked.
    """
    from gatehouse.kfp.doctor.cluster import examine
    from gatehouse.project.checking import check_project

    checked = check_project(project_folder(project))
    findings = list(examine(checked, profile_of(checked, platform)))
    if run:
        place = Place.of(project, platform)
        upload = place.compiled(["diagnosis"], cache=False)["diagnosis"]
        account, plugins = place.platform.service_account, place.platform.plugins_input
        submitted = Submission(upload, {}, place.experiment, account, plugins).again(place.api).send(place.api)
        page = place.page_of(submitted)
        try:
            ended = place.api.wait(submitted.id, timeout * 60)
            outcome = outcome_in_kfp(ArtifactStore.open(place.platform.store), ended.id, ended.state)
        except KfpError as error:
            diagnosis = failed("pods", " ".join(str(error).split())[:400], f"See {page}.")
        else:
            diagnosis = passed("pods", "they reach what they need, and a job came back after a killed worker")
            if outcome.state != "succeeded":
                why = f"the run {ended.name} {outcome.state}: {outcome.message}"
                diagnosis = failed("pods", why, f"Its tasks say more: {page}.")
        # The first task checks from its pod what cannot be seen from here, such as the store.
        if diagnosis.well:
            findings = [item for item in findings if item.check != "store" or item.outcome != "not checked"]
        findings.append(diagnosis)
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        rows = []
        for finding in findings:
            sign, color = _SIGNS[finding.outcome]
            advice = "" if finding.well else finding.advice
            rows.append((Text(sign, style=color), finding.check, finding.observed, advice))
        print_rows(("", "check", "found", "what to do"), rows)
    sys.exit(0 if all(finding.well for finding in findings) else 1)
