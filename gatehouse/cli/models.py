"""`gatehouse models`: registered versions, their origin, and the champion."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from gatehouse.cli.models_explained import compare, explain, search, tag
from gatehouse.cli.models_handed import handoff
from gatehouse.cli.models_projected import project
from gatehouse.cli.models_published import card, export
from gatehouse.cli.models_rebuilt import reproduce
from gatehouse.cli.models_resolved import resolve
from gatehouse.cli.output import StoreOption, find, open_store, print_table
from gatehouse.cli.terminal import figure
from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.registry.approval import ApproveRequest, approve
from gatehouse.registry.exemption import ExemptRequest, exempt
from gatehouse.registry.explanation import act_of, objective_first
from gatehouse.registry.ledger import Ledger, model_names
from gatehouse.registry.naming import Named, named
from gatehouse.registry.stage import PromoteRequest, promote
from gatehouse.registry.state import ALIASES, CANARY, CHAMPION, SHADOW, STAGING, ModelVersion, Record, State
from gatehouse.runtime.counting import counted
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

app = typer.Typer(no_args_is_help=True, help="Registered models: origin, approval, promotion, rollback.")
_HOW = "NAME, NAME:2 or NAME@champion; without the name where there is one model"
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=f"{_HOW}.")]
ReasonOption = Annotated[str, typer.Option(help="Why; it is kept in the ledger.")]
_MEANINGS = {
    CHAMPION: "in production; candidates are compared with it",
    CANARY: "gets a share of the requests beside the champion",
    SHADOW: "is asked what the champion is asked, and nobody gets its answers",
    STAGING: "passed the gate; a person promotes it with `gatehouse models promote`",
    "replaced": "was champion; a rollback can return to it",
    "candidate": "passed the gate, and another took its place before it was promoted",
    "rolled back": "withdrawn by a person; to promote it again needs its number and a reason",
    "archived": "kept for the record; it cannot be promoted any more",
    "erased": "its files were removed for good, so nothing can serve it",
}
_METRICS = 3


@app.command("list")
def list_models(name: Annotated[str, typer.Argument(help="Only this model.")] = "", store: StoreOption = "") -> None:
    """List registered versions: status, metrics, when each was registered, and what it was judged against."""
    opened = open_store(store)
    table = Table("version", "status", "registered", "metrics", "judged against", "model", box=None, pad_edge=False)
    seen: dict[str, None] = {}
    kept_out = []
    for each in [named(opened, name).ledger.model_name] if name else model_names(opened):
        ledger = Ledger(opened, each)
        records, state = ledger.records(), ledger.state()
        if not state.versions:
            kept_out.append(f"{each} has no version: {_kept_out(records)} `gatehouse models show {each}` says why.")
        for version in state.versions:
            status = state.stage_of(version)
            erased = ["erased"] if opened.erasures.of(Reference.parse(version.model)) else []
            seen |= dict.fromkeys([status, *erased])
            at = str(records[version.registered_at - 1].provenance.get("at", ""))[:16].replace("T", " ")
            last = _last_verdict(state, version)
            against = Reference.parse(last).short if last else "no champion"
            model = Reference.parse(version.model).short
            told = ", ".join([status, *erased])
            table.add_row(f"{each}:{version.version}", told, at, _metrics(opened, version), against, model)
    if not table.row_count:
        typer.echo(f"{opened.address} has no registered models. A training run registers one that passes the gate.")
    else:
        print_table(table)
        typer.echo()
    for line in (*(f"{status}: {_MEANINGS[status]}" for status in seen), *kept_out):
        typer.echo(line)


def _kept_out(records: Sequence[Record]) -> str:
    """How many candidates of a model without versions were judged, and when the last one was."""
    judged = [each for each in records if each.verdict]
    at = str(judged[-1].provenance.get("at", ""))[:16].replace("T", " ") if judged else ""
    return f"of {counted(len(judged), 'candidate')} the gate let none pass, the last one on {at}."


@app.command()
def show(model: ModelArgument = "", store: StoreOption = "") -> None:
    """Show a model's ledger, or of NAME:2 or NAME@champion what this version was made from."""
    found = named(open_store(store), model)
    if found.number:
        _show_version(found)
        return
    table = Table("record", "at", "by", "what", "reasons", box=None, pad_edge=False)
    for number, record in enumerate(found.ledger.records(), start=1):
        act = act_of(number, record)
        table.add_row(str(number), act.at, act.by, act.what, act.reason)
    print_table(table)


for _command in (explain, search, compare, tag, reproduce, resolve, card, export, handoff, project):
    app.command(_command.__name__)(_command)


@app.command("promote")
def promote_version(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=f"{_HOW}. Default: the one in staging.")] = "",
    reason: ReasonOption = "",
    override: Annotated[
        bool, typer.Option("--override", help="Promote although the gate refused it; needs --reason.")
    ] = False,
    to: Annotated[str, typer.Option(help=f"The alias that it gets: {', '.join(ALIASES)}.")] = CHAMPION,
    store: StoreOption = "",
) -> None:
    """Make a version the champion, or canary or shadow. One that was rolled back needs its number and a reason."""
    opened = open_store(store)
    _act(opened, named(opened, model), "promote", reason, override=override, to=to)


@app.command("approve")
def approve_version(model: ModelArgument = "", reason: ReasonOption = "", store: StoreOption = "") -> None:
    """Sign the last verdict on a version (default: the one in staging), so that it may be promoted for some days."""
    _sign(store, model, "approve", reason)


@app.command("reject")
def reject_version(model: ModelArgument = "", reason: ReasonOption = "", store: StoreOption = "") -> None:
    """Sign that a version (default: the one in staging) may not be promoted, whatever the gate said."""
    _sign(store, model, "reject", reason)


@app.command("exempt")
def exempt_candidate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The candidate: NAME:2, or its reference.")],
    rule: Annotated[str, typer.Option(help='The rule that it breaks, as the verdict names it: "slice carrier=OO".')],
    until: Annotated[str, typer.Option(help="The last day on which it holds, in UTC, such as 2026-12-31.")],
    reason: ReasonOption = "",
    store: StoreOption = "",
) -> None:
    """Let one candidate break one rule of the gate until a day; the next run registers it if it breaks no other."""
    opened = open_store(store)
    try:
        day = date.fromisoformat(until)
    except ValueError as error:
        raise ConfigurationError(f"--until: expected a day such as 2026-12-31, found {until!r}.") from error
    request = ExemptRequest(model=str(find(opened, model)), rule=rule, until=day, reason=reason)
    result = exempt(request, opened)
    typer.echo(f"{Reference.parse(result.exemption.model).short} is {result.exemption}")
    typer.echo(f"Run the training pipeline again: it registers the candidate of {result.model_name} with it.")


def _sign(store: str, model: str, word: str, reason: str) -> None:
    opened = open_store(store)
    found = named(opened, model)
    name = found.ledger.model_name
    body = {"model_name": name, "version": found.number, "word": word, "reason": reason}
    result = approve(ApproveRequest.model_validate(body), opened)
    typer.echo(f"{name}:{result.version} is {result.decision} by {result.by}; verdict sha256-{result.verdict[:12]}")
    state = found.ledger.state()
    version = state.version(result.version)
    if result.version == state.champion:
        told = f", until `gatehouse models rollback {name}:{result.version}`" if word == "reject" else " already"
        typer.echo(f"It is the champion{told}.")
    elif result.until:
        back = version is not None and version.withdrawn
        reason, why = (' --reason "…"', " with a reason, as it was rolled back") if back else ("", "")
        typer.echo(
            f"Until {result.until}: gatehouse models promote {name}:{result.version}{reason}, or the promotion "
            f"pipeline{why}"
        )


@app.command()
def rollback(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=f"{_HOW}. Default: the champion.")] = "",
    reason: ReasonOption = "",
    store: StoreOption = "",
) -> None:
    """Take the champion out of production, and return to the one before it; or end NAME@canary or NAME@shadow."""
    opened = open_store(store)
    found = named(opened, model)
    _act(opened, Named(found.ledger, found.number or found.ledger.state().champion), "rollback", reason)


@app.command()
def archive(model: ModelArgument, reason: ReasonOption = "", store: StoreOption = "") -> None:
    """Keep a version for the record only: it cannot be promoted any more."""
    opened = open_store(store)
    found = named(opened, model)
    if not found.number:
        raise ConfigurationError(f"archive: expected a version, such as {found.ledger.model_name}:2, found {model!r}.")
    _act(opened, found, "archive", reason)


def _act(store: ArtifactStore, found: Named, action: str, reason: str, **more: Any) -> None:
    name = found.ledger.model_name
    body = {"model_name": name, "action": action, "version": found.number, "reason": reason} | more
    result = promote(PromoteRequest.model_validate(body), store)
    if result.decision.endswith("already"):
        typer.echo(f"{name}:{result.version} is {result.decision}; nothing was changed.")
        return
    champion = Reference.parse(result.champion).short if result.champion else "none"
    alias = f" to {more['to']}" if "to" in more else ""
    typer.echo(f"{name}:{result.version} is {result.decision}{alias}; the champion is {champion}")


def _metrics(store: ArtifactStore, version: ModelVersion) -> str:
    """The metrics of the version's evaluation, the task's objective first; empty if the evaluation is gone."""
    try:
        found = store.read_json(version.evaluation, "metrics.json")["candidate"]
        ordered = objective_first(store, version.evaluation, found)
    except GatehouseError:
        return ""
    return "  ".join(f"{metric} {figure(found[metric])}" for metric in ordered[:_METRICS])


def _last_verdict(state: State, version: ModelVersion) -> str:
    verdicts = (verdict for _, verdict in reversed(state.verdicts) if verdict.subject.model == version.model)
    return next(verdicts).champion


def _show_version(found: Named) -> None:
    version, state = found.version, found.ledger.state()
    grid = Table(box=None, show_header=False, pad_edge=False)
    facts = [("version", f"{found.ledger.model_name}:{found.number}"), ("status", state.stage_of(version))]
    facts += [("model", version.model), ("evaluation", version.evaluation)]
    facts += [("metrics", _metrics(found.ledger.store, version))]
    last = state.last_verdict(version.model)
    facts += [
        ("verdict", last[1].summary if last else ""),
        ("judged against", _last_verdict(state, version) or "no champion"),
        ("test set", f"judged {state.uses_before(last[0], last[1].subject):,} other candidates before" if last else ""),
    ]
    for name, value in [*facts, *(("made from", identity) for identity in version.lineage)]:
        grid.add_row(Text(name, style="dim"), value)
    print_table(grid)
