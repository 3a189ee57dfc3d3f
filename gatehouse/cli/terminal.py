"""Shows a run in the terminal: its steps live, or as plain lines where the output is no terminal, then a summary."""

import re
import textwrap
import time
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from gatehouse.kfp.local_run import LocalRun
from gatehouse.reports.advice import advised
from gatehouse.reports.format import work_in_words
from gatehouse.runtime.plural import counted
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.run import Event
from gatehouse.store.store import ArtifactStore

_MOST_TABLES = 5
_METRICS_PER_LINE = 4
_MARKS = {"finished": ("✓", "green"), "hit": ("=", "cyan"), "failed": ("✗", "bold red"), "stopped": ("■", "yellow")}
_NEWS = {"trial": ("  {}", "dim"), "warned": ("  warning: {}", "yellow")}
_LONGEST_VERDICT, _LONGEST_CAUSE = 120, 100
_DIGEST = re.compile(r"(sha256-[0-9a-f]{12})[0-9a-f]{52}")


class Screen:
    """Shows a run while it goes on (`update`) and its results (`summarise`)."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        plain = (
            False if Console().is_jupyter else None
        )  # A notebook calls itself a terminal, and cannot move the cursor.
        self._console = Console(highlight=False, markup=False, force_jupyter=False, force_terminal=plain)
        self._live: Live | None = None
        self._printed: set[str] = set()
        self._events_seen = 0
        self._spinner = Spinner("dots", style="yellow")
        self._began = time.monotonic()

    def __enter__(self) -> "Screen":
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=8, transient=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def update(self, run: LocalRun) -> None:
        """Show the run as it stands; trials that ended and warnings have a line each, above the live steps."""
        news = [event for event in run.events[self._events_seen :] if event.event in _NEWS]
        self._events_seen = len(run.events)
        for event in sorted(news, key=lambda event: float(event.body["at"])):
            line, style = _NEWS[event.event]
            self._print(Text(line.format(event.body["message"]), style=style))
        if self._live:
            self._live.update(self._steps(run))
            return
        for task in run.plan:
            ended = run.latest(task.stage)
            if ended and ended.event in _MARKS and task.stage not in self._printed:
                self._printed.add(task.stage)
                mark, style = _mark(ended)
                gists = _gist(ended, run.objective), work_in_words(ended.body)
                gist, warnings = "; ".join(filter(None, gists)), ended.body.get("result", {}).get("warnings") or ()
                duration = (f"{_duration(ended, run):>12}  ", "dim")
                line_of_task = Text.assemble((f"{mark} ", style), f"{task.title:<44}", duration, gist)
                if warnings:
                    line_of_task.append(f"{', ' * bool(gist)}{counted(len(warnings), 'warning')}", style="yellow")
                self._print(line_of_task)

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)

    def _steps(self, run: LocalRun) -> RenderableType:
        head = Text(f"run {run.run}", style="dim")
        if not run.plan:
            return Group(head, Text("  building the pipeline …"))
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
        for task in run.plan:
            event = run.latest(task.stage)
            if event is None:
                table.add_row(Text("·", style="dim"), Text(task.title, style="dim"), "", "")
            elif event.event in _MARKS:
                mark, style = _mark(event)
                table.add_row(Text(mark, style=style), task.title, _duration(event, run), _gist(event, run.objective))
            else:
                inside = f"{task.stage}:"
                parts = [part for part in run.events if part.stage.startswith(inside) and part.event in _MARKS]
                elapsed = f"{time.time() - event.body['at']:.0f} s"
                table.add_row(self._spinner, task.title, elapsed, f"{len(parts)} done" if parts else "")
        return Group(head, table)

    def summarise(self, run: LocalRun) -> None:
        """Print references, verdicts, metrics, decision and reports of the run; or the cause of the failure."""
        self._console.print()
        if run.failure is not None:
            stage = run.failure.get("stage")
            failed = next((f"{task.title} failed" for task in run.plan if task.stage == stage), "error")
            self._print(Text.assemble((f"{failed}: ", "bold red"), _cause(run.failure)))
            self._print_reports(run)
        elif run.exit_code:
            state = "stopped by a signal" if run.exit_code > 128 else "failed"
            again = " Run again: finished stages come from the memo."
            self._print(Text.assemble((f"The run was {state}.", "bold red"), again))
        else:
            from gatehouse.tracking.mlflow_client import tracking_of
            from gatehouse.tracking.place import URI

            rows = summary(run)
            width = max((len(name) for name, _ in rows), default=0) + 1
            for name, value in rows:
                self._print(Text.assemble((f"{name:<{width}}", "dim"), value.replace("\n", "\n" + " " * width)))
            for task in run.plan:
                for message in run.result(task.stage).get("alarms", ()):
                    self._print(Text(f"alarm in {task.stage}: {message}", style="bold red"))
            if tracking_of(self._store) is None:
                untracked = f"MLflow has nothing of this run: the store is remote, and {URI} is not set."
                self._print(Text(untracked, style="yellow"))
            self._print_reports(run)
        for task in run.plan:
            for message in run.result(task.stage).get("warnings", ()):
                self._print(Text(f"warning in {task.stage}: {message}", style="yellow"))
        for event in run.events:
            if event.event == "warned":
                self._print(Text(f"warning in {event.stage}: {event.body.get('message', '')}", style="yellow"))
        took = f"{time.monotonic() - self._began:.1f} s"
        self._print(Text(f"run {run.run}, {took}; log {run.log}", style="dim"))

    def _print_reports(self, run: LocalRun) -> None:
        from gatehouse.reports.contents import has_page, rendered

        try:
            results = [value for task in run.plan for value in run.result(task.stage).values()]
            for reference in dict.fromkeys(references_in(results)):
                if has_page(reference):
                    self._print(Text.assemble((f"{'report':<16}", "dim"), str(rendered(self._store, reference))))
        except Exception as error:  # A page that cannot be drawn must not make the run fail.
            self._print(Text(f"The reports could not be drawn: {type(error).__name__}: {error}", style="yellow"))


def summary(run: LocalRun) -> list[tuple[str, str]]:
    """Name and value of everything worth reading at the end of a run, in the order of the pipeline.

    These are references, the metrics of a stage that judges, then decisions and verdicts other than pass, with their
    reasons.
    """
    rows: dict[str, str] = {}
    verdicts: dict[str, tuple[str, list[str]]] = {}
    for task in run.plan:
        result = run.result(task.stage)
        for field, value in result.items():
            title = field.replace("_", " ")
            if task.stage == "resolve" and title in rows:
                continue  # The data of the champion are not those of the candidate.
            if isinstance(value, str) and references_in([value]):
                rows[title] = Reference.parse(value).short  # Of the parent's and the new tables, the new.
            elif field == "rejected" and value:
                rows |= {f"rejected {table}": Reference.parse(reference).short for table, reference in value.items()}
            elif field.endswith("metrics") and "verdict" in result and value:
                rows[title] = _metrics(value, run.objective)
        reasons = [str(reason) for reason in result.get("reasons", ())]
        if result.get("verdict") in ("refused", "inconclusive"):
            reasons = advised(reasons)
        if "decision" in result:
            verdicts.pop("evaluate", None)  # The decision about the candidate has the same reasons.
            verdicts["decision"] = (_decision(result), reasons)
        elif result.get("verdict", "pass") != "pass" and reasons:
            verdicts[task.stage.replace("_", " ")] = (str(result["verdict"]), reasons)
    lines = list(rows.items())
    for name, (verdict, reasons) in verdicts.items():
        lines += [(name, verdict), *(("", f"- {reason}") for reason in reasons)]
    return lines


def figure(value: float) -> str:
    """A metric with four decimals, or as a power of ten if it is too large for decimals: 0.2500, 6.697e+14."""
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.3e}"


def _metrics(metrics: dict[str, float], objective: str, most: int | None = None) -> str:
    """Metrics with the objective of the gate first."""
    ordered = sorted(metrics, key=lambda name: name != objective)
    texts = [f"{name} {figure(metrics[name])}" for name in ordered[:most]]
    starts = range(0, len(texts), _METRICS_PER_LINE)
    return "\n".join("  ".join(texts[start : start + _METRICS_PER_LINE]) for start in starts)


def _decision(result: dict[str, Any]) -> str:
    aliases = result.get("aliases") or ()
    alias = f" as {', '.join(aliases)}" if aliases else ""
    version = f", version {result['version']}{alias}" if result.get("version") else ""
    if version and result["decision"] in ("refused", "inconclusive"):
        version = f"; an earlier run registered the same model{version}"
    alarms = result.get("alarms") or ()
    ringing = f"; {counted(len(alarms), 'alarm')}" if alarms else ""
    return f"{result['decision']}{version}{ringing}"


def _mark(event: Event) -> tuple[str, str]:
    """The sign and style of a stage that has ended; a stage that judges has the sign of its verdict."""
    result = event.body.get("result", {})
    verdict = str(result.get("verdict", "pass"))
    if event.event not in ("finished", "hit") or (verdict == "pass" and result.get("decision") != "refused"):
        return _MARKS[event.event]
    return _MARKS["failed"] if verdict == "fail" else ("!", "yellow")


def _duration(event: Event, run: LocalRun) -> str:
    parts = [part for part in run.events if part.stage.startswith(f"{event.stage}:")]
    from_memo = event.event == "hit" or (
        not event.body.get("memo", True)
        and any(part.event == "hit" for part in parts)
        and all(part.event in ("started", "hit") for part in parts)
    )
    return "from memo" if from_memo else f"{event.body['seconds']:.1f} s"


def _gist(event: Event, objective: str) -> str:
    """One line about the result of a stage."""
    if event.event in ("failed", "stopped"):
        cause = _DIGEST.sub(r"\1", _cause(event.body).partition("\n")[0])
        return textwrap.shorten(cause, _LONGEST_CAUSE, placeholder=" …")
    result = event.body.get("result", {})
    if "decision" in result:
        return _decision(result)
    if "verdict" in result:
        verdict = str(result["verdict"])
        if verdict != "pass" and result.get("reasons"):
            return textwrap.shorten(f"{verdict}: {'; '.join(result['reasons'])}", _LONGEST_VERDICT, placeholder=" …")
        if not result.get("metrics"):
            return verdict
        facts = [_metrics(result["metrics"], objective, 2), *filter(None, [result.get("summary")])]
        return f"{verdict}: {'; '.join(facts)}"
    if "summary" in result:
        return str(result["summary"])
    rows = result.get("rows")
    if isinstance(rows, dict):
        rejected = result.get("rejected_rows") or {}
        if len(rows) > _MOST_TABLES:
            aside = f", {sum(rejected.values()):,} rejected" if rejected else ""
            return f"{len(rows)} tables, {counted(sum(rows.values()), 'row')}{aside}"
        aside_of = {name: f" ({count:,} rejected)" for name, count in rejected.items()}
        return " ".join(f"{name} {count:,}{aside_of.get(name, '')}" for name, count in rows.items())
    if isinstance(rows, int):
        aside = ", ".join(f"{count:,} {reason}" for reason, count in (result.get("set_aside") or {}).items())
        return f"{counted(rows, 'row')}{f'; set aside: {aside}' if aside else ''}"
    references = references_in(list(result.values()))
    return references[0].short if references else ""


def _cause(body: dict[str, Any]) -> str:
    """Why something failed; an unexpected error says little without the name of its class."""
    name, message = str(body.get("error", "")), str(body.get("message", ""))
    return f"{name}: {message}" if body.get("unexpected") else message or name
