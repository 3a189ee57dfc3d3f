"""The summary of a run for KFP's UI: every stage with its outcome."""

import os

from gatehouse.operations.ending.outcome import ENDED, run_outcome, seconds_of
from gatehouse.operations.ending.stage import EndResult
from gatehouse.reports.format import duration
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.store import ArtifactStore

_WORDS = {"hit": "from memo", "tolerated": "failed, and let pass"}
_GISTS = ("decision", "verdict", "summary")


def summary_of(store: ArtifactStore, result: EndResult) -> str:
    """The end of the run that this process is part of, as Markdown.

    Args:
        store: Holds the run's record.
        result: The result of the stage that reports the end.
    """
    run = os.environ.get(RUN_ID, "")
    outcome = run_outcome(store, run)
    lines = [f"# Run {result.state}{f' in {result.failed_stage}' if result.failed_stage else ''}", ""]
    if outcome.message:
        lines += [f"**{_plain(outcome.error)}**", "", *(f"    {line}" for line in outcome.message.splitlines()), ""]
    lines += ["| stage | attempt | end | time | result |", "| --- | --- | --- | --- | --- |"]
    ended = [event for _, event in events(store, run) if event.event in ENDED and ":" not in event.stage]
    for event in sorted(ended, key=lambda event: float(event.body["at"])):
        outcome_text = event.body.get("error") or next(
            (event.body["result"][name] for name in _GISTS if event.body.get("result", {}).get(name)), ""
        )
        lines.append(
            f"| {event.stage} | {event.attempt} | {_WORDS.get(event.event, event.event)} "
            f"| {duration(seconds_of(event))} | {_plain(str(outcome_text))} |"
        )
    lines += [f"\n- warning in {stage}: {_plain(message)}" for stage, message in outcome.warnings]
    lines.append(f"\n{'The webhook was told.' if result.told else f'Nobody was told: {result.why}.'}")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text on one line, with the special characters of Markdown and HTML escaped."""
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
