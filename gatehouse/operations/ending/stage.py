"""The last task of every run, which KFP starts however the run ends: it records the end and reports it."""

import os

from pydantic import Field

from gatehouse.operations.alerting.notice import Form, When
from gatehouse.operations.ending.outcome import record_end, run_outcome
from gatehouse.store.run import REPORT, RUN_ID
from gatehouse.store.stage import Effects, Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore


class EndRequest(StageModel):
    """Which run ended, and KFP's status of it.

    Attributes:
        project: The project.
        pipeline: The pipeline that ran.
        said: KFP's state of the tasks before, a word of `states`.
        when: Which ends are sent to the webhook: `fail` for runs that did not succeed, `warn` for these and for runs
            with warnings, `always`, or `never`.
        form: Format of the webhook: `generic`, `slack` or `teams`.
        owners: Owner of each stage, by stage name; under "" the owner of all other stages.
    """

    project: str
    pipeline: str
    said: str = ""
    when: When = "never"
    form: Form = "generic"
    owners: dict[str, str] = Field({})


class EndResult(StageModel):
    """The outcome of the run, the failed stage, and whether the webhook accepted the notice, or why not."""

    state: str
    failed_stage: str
    told: bool
    why: str


@stage(
    REPORT,
    title="Report the end",
    effects=Effects(
        reads="the run's record",
        writes="the run's end, the webhook",
        why="Says how this run ended, which nobody knows before; an end is recorded once and told once.",
    ),
    resources=Resources(cpu="500m", memory="512M", minutes=5),
)
def report_end(request: EndRequest, store: ArtifactStore) -> EndResult:
    """Record the end of the run that this process is part of, and post it to the webhook if `when` asks for it.

    KFP's status is compared with the run's own record: if a stage failed, the run failed. A failing webhook is reported
    in the result and raises no error.
    """
    run = os.environ.get(RUN_ID, "")
    outcome = run_outcome(store, run, request.said)
    about = {"project": request.project, "pipeline": request.pipeline}
    told, why = False, f"{outcome.state} is not told when {request.when} is asked for"
    if run:
        record_end(store, run, outcome, "report_end", **about)
        from gatehouse.operations.ending.telling import is_wanted, tell_end

        if is_wanted(request.when, outcome):
            told, why = tell_end(store, run, outcome, about, request.owners, request.form)
    return EndResult(state=outcome.state, failed_stage=outcome.stage, told=told, why=why)
