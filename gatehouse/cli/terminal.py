"""What a person sees of a run: the steps live, then a summary. Plain lines where the output is no terminal."""

import itertools
import re
import textwrap
import time
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from gatehouse.kfp.local_run import LocalRun, PlannedTask
from gatehouse.reports.advice import advised
from gatehouse.runtime.counting import counted
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.run import Event
from gatehouse.store.store import ArtifactStore

_MANY_TABLES = 5
_ON_A_LINE = 4
_MARKS = {"finished": ("✓", "green"), "hit": ("=", "cyan"), "failed": ("✗", "bold red"), "stopped": ("■", "yellow")}
_NEWS = {"trial": ("  {}", "dim"), "warned": ("  warning: {}", "yellow")}
_LONGEST, _LONGEST_CAUSE = 120, 100
_DIGEST = re.compile(r"(sha256-[0-9a-f]{12})[0-9a-f]{52}")


class Screen:
    """Shows a run while it goes on (`update`) and what came of it (`summarise`)."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._console = Console(highlight=False, markup=False)
        self._live: Live | None = None
        self._told: set[str] = set()
        self._heard = 0
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
        """Show the run as it stands."""
        self._tell_news(run)
        if self._live:
            self._live.update(self._steps(run))
            return
        for task in run.plan:
            event = run.latest(task.stage)
            if event and event.event in _MARKS and task.stage not in self._told:
                self._told.add(task.stage)
                self._console.print(self._line(run, task, event), soft_wrap=True)

    def _tell_news(self, run: LocalRun) -> None:
        """Print a line for each trial that has ended since, and each warning: above the steps, if these are live."""
        new, self._heard = run.events[self._heard :], len(run.events)
        told = [event for event in new if event.event in _NEWS]
        for event in sorted(told, key=lambda one: float(one.body["at"])):
            line, style = _NEWS[event.event]
            self._console.print(Text(line.format(event.body["message"]), style=style), soft_wrap=True)

    def _steps(self, run: LocalRun) -> RenderableType:
        if not run.plan:
            return Group(Text(f"run {run.run}", style="dim"), Text("  building the pipeline …"))
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
        for task in run.plan:
            event = run.latest(task.stage)
            if event is None:
                table.add_row(Text("·", style="dim"), Text(task.title, style="dim"), "", "")
            elif event.event in _MARKS:
                mark, style = _mark(event)
                table.add_row(Text(mark, style=style), task.title, _duration(event, run), _gist(event, run.objective))
            else:
                elapsed = time.time() - event.body["at"]
                table.add_row(self._spinner, task.title, f"{elapsed:.0f} s", _progress(task.stage, run))
        return Group(Text(f"run {run.run}", style="dim"), table)

    def _line(self, run: LocalRun, task: PlannedTask, event: Event) -> Text:
        mark, style = _mark(event)
        line = Text(f"{mark} ", style=style)
        line.append(f"{task.title:<44}", style="default")
        line.append(f"{_duration(event, run):>12}  ", style="dim")
        gist, told = _gist(event, run.objective), len(event.body.get("result", {}).get("warnings") or ())
        line.append(gist)
        if told:
            line.append(f"{', ' * bool(gist)}{counted(told, 'warning')}", style="yellow")
        return line

    def summarise(self, run: LocalRun) -> None:
        """Print what came of the run: references, verdicts, metrics, decision, reports; or the cause of the failure."""
        took = f"{time.monotonic() - self._began:.1f} s"
        console = self._console
        console.print()
        if run.failure is not None:
            self._print_failure(run)
        elif run.exit_code:
            state = "stopped by a signal" if run.exit_code > 128 else "failed"
            ended = Text.assemble(
                (f"The run was {state}.", "bold red"), " Run again: finished stages come from the memo."
            )
            console.print(ended, soft_wrap=True)
        else:
            self._print_results(run)
        for stage, message in warnings(run):
            console.print(Text(f"warning in {stage}: {message}", style="yellow"), soft_wrap=True)
        console.print(Text(f"run {run.run}, {took}; log {run.log}", style="dim"), soft_wrap=True)

    def _print_failure(self, run: LocalRun) -> None:
        assert run.failure is not None
        stage = run.failure.get("stage")
        failed = next((f"{task.title} failed" for task in run.plan if task.stage == stage), "error")
        self._console.print(Text.assemble((f"{failed}: ", "bold red"), _cause(run.failure)), soft_wrap=True)
        self._print_reports(run)

    def _print_results(self, run: LocalRun) -> None:
        for name, value in (rows := summary(run)):
            width = max(len(each) for each, _ in rows) + 1
            indented = value.replace("\n", "\n" + " " * width)
            self._console.print(Text.assemble((f"{name:<{width}}", "dim"), indented), soft_wrap=True)
        for stage, message in alarms(run):
            self._console.print(Text(f"alarm in {stage}: {message}", style="bold red"), soft_wrap=True)
        from gatehouse.tracking.mlflow_client import tracking_of
        from gatehouse.tracking.place import URI

        if tracking_of(self._store) is None:
            untracked = f"MLflow has nothing of this run: the store is remote, and {URI} is not set."
            self._console.print(Text(untracked, style="yellow"), soft_wrap=True)
        self._print_reports(run)

    def _print_reports(self, run: LocalRun) -> None:
        try:
            for path in pages(self._store, run):
                self._console.print(Text.assemble((f"{'report':<16}", "dim"), str(path)), soft_wrap=True)
        except Exception as error:  # A page shows what a run has done, and must not make it fail.
            told = f"The reports could not be drawn: {type(error).__name__}: {error}"
            self._console.print(Text(told, style="yellow"))


def pages(store: ArtifactStore, run: LocalRun) -> list[Path]:
    """The page of each artifact that the run's stages gave, as files, in order of the pipeline."""
    from gatehouse.reports.rendering import has_page, rendered

    given = (reference for task in run.plan for reference in references_in(list(run.result(task.stage).values())))
    return [rendered(store, reference) for reference in dict.fromkeys(given) if has_page(reference)]


def summary(run: LocalRun) -> list[tuple[str, str]]:
    """Name and value of everything worth reading at the end of a run, in order of the pipeline.

    What a result is called says how it is shown: references, the metrics of a stage that judges, then decisions and
    verdicts that are no pass, with their reasons.
    """
    rows: dict[str, str] = {}
    said: dict[str, tuple[str, list[str]]] = {}
    for task in run.plan:
        result = run.result(task.stage)
        for field, value in result.items():
            if isinstance(value, str) and references_in([value]):
                rows[_words(field)] = _short(value)  # of the parent's and the new tables, the new
            elif field == "rejected" and value:
                rows |= {f"rejected {table}": _short(reference) for table, reference in value.items()}
            elif field.endswith("metrics") and "verdict" in result and value:
                rows[_words(field)] = _metrics(value, run.objective)
        if "decision" in result:
            said.pop("evaluate", None)  # The decision about the candidate has the same reasons.
            said["decision"] = (_decision(result), _advised(result))
        elif result.get("verdict", "pass") != "pass" and result.get("reasons"):
            said[_words(task.stage)] = (str(result["verdict"]), _advised(result))
    told = ([(name, word), *(("", f"- {each}") for each in reasons)] for name, (word, reasons) in said.items())
    return [*rows.items(), *itertools.chain.from_iterable(told)]


def warnings(run: LocalRun) -> list[tuple[str, str]]:
    """Stage and message of the warnings in results, and of all warnings on the record."""
    found = [(task.stage, message) for task in run.plan for message in run.result(task.stage).get("warnings", ())]
    return found + [(event.stage, event.body.get("message", "")) for event in run.events if event.event == "warned"]


def alarms(run: LocalRun) -> list[tuple[str, str]]:
    """Stage and message of the alarms in results, also of those that decide nothing."""
    return [(task.stage, message) for task in run.plan for message in run.result(task.stage).get("alarms", ())]


def figure(value: float) -> str:
    """A metric with four decimals; a power of ten where it is too large for decimals to say anything.

    Example:
        >>> figure(0.25), figure(6.697e14)
        ('0.2500', '6.697e+14')
    """
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.3e}"


def _words(field: str) -> str:
    return field.replace("_", " ")


def _short(reference: str) -> str:
    """A reference with its digest cut; every command takes it so."""
    return Reference.parse(reference).short


def _metrics(metrics: dict[str, float], objective: str, most: int | None = None) -> str:
    """Metrics with the one first by which the gate compares models."""
    ordered = sorted(metrics, key=lambda name: name != objective)
    written = [f"{name} {figure(metrics[name])}" for name in ordered[:most]]
    return "\n".join("  ".join(written[at : at + _ON_A_LINE]) for at in range(0, len(written), _ON_A_LINE))


def _decision(result: dict[str, Any]) -> str:
    aliases = result.get("aliases") or ()
    alias = f" as {', '.join(aliases)}" if aliases else ""
    version = f", version {result['version']}{alias}" if result.get("version") else ""
    if version and result["decision"] in ("refused", "inconclusive"):
        version = f"; an earlier run registered the same model{version}"
    rings = len(result.get("alarms") or ())
    rung = f"; {counted(rings, 'alarm')}" if rings else ""
    return f"{result['decision']}{version}{rung}"


def _advised(result: dict[str, Any]) -> list[str]:
    """Why a stage said what it said; where that is the gate, with what a person can do."""
    reasons = [str(reason) for reason in result.get("reasons", ())]
    return advised(reasons) if result.get("verdict") in ("refused", "inconclusive") else reasons


def _mark(event: Event) -> tuple[str, str]:
    """The sign of a stage that has ended, and its style: of one that has judged, the sign of its verdict."""
    result = event.body.get("result", {})
    judged = str(result.get("verdict", "pass"))
    if event.event not in ("finished", "hit") or (judged == "pass" and result.get("decision") != "refused"):
        return _MARKS[event.event]
    return _MARKS["failed"] if judged == "fail" else ("!", "yellow")


def _verdict(result: dict[str, Any], objective: str) -> str:
    """A verdict with what tells most about it: the reasons for a refusal, cut where they are long, or first metrics."""
    verdict = str(result["verdict"])
    if verdict != "pass" and result.get("reasons"):
        return textwrap.shorten(f"{verdict}: {'; '.join(result['reasons'])}", _LONGEST, placeholder=" …")
    if not result.get("metrics"):
        return verdict
    told = [_metrics(result["metrics"], objective, 2), *filter(None, [result.get("summary")])]
    return f"{verdict}: {'; '.join(told)}"


def _duration(event: Event, run: LocalRun) -> str:
    inner = [part for part in run.events if part.stage.startswith(f"{event.stage}:")]
    looked = not event.body.get("memo", True) and any(part.event == "hit" for part in inner)
    hit = event.event == "hit" or (looked and all(part.event in ("started", "hit") for part in inner))
    return "from memo" if hit else f"{event.body['seconds']:.1f} s"


def _gist(event: Event, objective: str) -> str:
    """One line that says what a stage found, by what its result is called."""
    if event.event in ("failed", "stopped"):
        cause = _DIGEST.sub(r"\1", _cause(event.body).partition("\n")[0])
        return textwrap.shorten(cause, _LONGEST_CAUSE, placeholder=" …")
    result = event.body.get("result", {})
    if "decision" in result:
        return _decision(result)
    if "verdict" in result:
        return _verdict(result, objective)
    if "summary" in result:
        return str(result["summary"])
    rows = result.get("rows")
    if isinstance(rows, dict):
        return _tables(rows, result.get("rejected_rows") or {})
    if isinstance(rows, int):
        aside = ", ".join(f"{count:,} {reason}" for reason, count in (result.get("set_aside") or {}).items())
        return f"{counted(rows, 'row')}{f'; set aside: {aside}' if aside else ''}"
    references = [Reference.parse(value).short for value in references_in(list(result.values()))]
    return references[0] if references else ""


def _tables(rows: dict[str, int], rejected: dict[str, int]) -> str:
    """Rows by table, or of all where there are many; and how many were rejected, where any was."""
    aside = f", {sum(rejected.values()):,} rejected" if rejected else ""
    if len(rows) > _MANY_TABLES:
        return f"{len(rows)} tables, {counted(sum(rows.values()), 'row')}{aside}"
    if not rejected:
        return " ".join(f"{name} {count:,}" for name, count in rows.items())
    told = (f", {rejected[name]:,} rejected" if name in rejected else "" for name in rows)
    return "; ".join(f"{name} {count:,} rows{more}" for (name, count), more in zip(rows.items(), told, strict=True))


def _cause(body: dict[str, Any]) -> str:
    """Why something failed, in its words; an error that nobody expected says little without the name of its class."""
    name, message = str(body.get("error", "")), str(body.get("message", ""))
    return f"{name}: {message}" if body.get("unexpected") else message or name


def _progress(stage: str, run: LocalRun) -> str:
    inner = [event for event in run.events if event.stage.startswith(f"{stage}:") and event.event in _MARKS]
    return f"{len(inner)} done" if inner else ""
