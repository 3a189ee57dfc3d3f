"""The last task of every run, which KFP starts however the run ends: it records the end and posts it."""

import os

from pydantic import Field

from gatehouse.operations.alerting.notice import Form, When, is_wanted
from gatehouse.operations.ending.outcome import ENDED, record_end, run_outcome, seconds_of
from gatehouse.reports.format import duration
from gatehouse.store.run import REPORT, RUN_ID, events
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

_WORDS = {"hit": "from memo", "tolerated": "failed, and let pass"}


class EndRequest(StageModel):
    """The run that ended, and who hears of it. `kfp_state` is KFP's state of the earlier tasks.

    `owners` are by stage name; under "" is the owner of all other stages.
    """

    project: str
    pipeline: str
    kfp_state: str = ""
    when: When = "never"
    form: Form = "generic"
    owners: dict[str, str] = Field({})


class EndResult(StageModel):
    """The outcome of the run, the failed stage, whether the webhook accepted the notice, and its answer."""

    state: str
    failed_stage: str
    posted: bool
    why: str


@stage(
    REPORT,
    title="Report the end",
    effects=Effects(
        reads="the run's record",
        writes="the run's end, the webhook",
        why="Only the run itself shows how it ended; an end is recorded once and posted once.",
    ),
)
def report_end(request: EndRequest, store: ArtifactStore) -> EndResult:
    """Record the end of the run that this process is part of, and post it to the webhook if `when` asks for it.

    KFP's state is compared with the run's own record: if a stage failed, the run failed. A failing webhook is reported
    in the result and raises no error.
    """
    run = os.environ.get(RUN_ID, "")
    outcome = run_outcome(store, run, request.kfp_state)
    about = {"project": request.project, "pipeline": request.pipeline}
    delivered, why = False, f"{outcome.state} is not posted when alerts are for {request.when}"
    if run:
        record_end(store, run, outcome, "report_end", **about)
        if is_wanted(request.when, failure=outcome.state != "succeeded", warning=outcome.warns):
            from gatehouse.operations.ending.notice import post_end

            delivery = post_end(store, run, outcome, about, request.owners, request.form)
            delivered, why = delivery.delivered, delivery.why
    return EndResult(state=outcome.state, failed_stage=outcome.stage, posted=delivered, why=why)


def summary_of(store: ArtifactStore, result: EndResult) -> str:
    """The end of the run that this process is part of as Markdown, for KFP's UI: every stage with its outcome."""
    run = os.environ.get(RUN_ID, "")
    outcome = run_outcome(store, run)
    lines = [f"# Run {result.state}{f' in {result.failed_stage}' if result.failed_stage else ''}", ""]
    if outcome.message:
        lines += [f"**{_escaped(outcome.error)}**", "", *(f"    {line}" for line in outcome.message.splitlines()), ""]
    lines += ["| stage | attempt | end | time | result |", "| --- | --- | --- | --- | --- |"]
    ended = [event for _, event in events(store, run) if event.event in ENDED and ":" not in event.stage]
    for event in sorted(ended, key=lambda event: float(event.body["at"])):
        values = event.body.get("result", {})
        gist = event.body.get("error") or values.get("decision") or values.get("verdict") or values.get("summary", "")
        lines.append(
            f"| {event.stage} | {event.attempt} | {_WORDS.get(event.event, event.event)} "
            f"| {duration(seconds_of(event))} | {_escaped(str(gist))} |"
        )
    lines += [f"\n- warning in {stage}: {_escaped(message)}" for stage, message in outcome.warnings]
    lines.append(f"\n{'The notice was posted.' if result.posted else f'The notice was not posted: {result.why}.'}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Text on one line, with the special characters of Markdown and HTML escaped."""
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
