"""`gatehouse models`: registered versions, what each was made from, and who is champion."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gatehouse.commands.output import StoreOption, open_store, print_table
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.registry.ledger import Ledger, model_names
from gatehouse.components.registry.promoting.stage import PromoteRequest, promote
from gatehouse.components.registry.state import ModelVersion, Record, State
from gatehouse.errors import ConfigurationError

app = typer.Typer(no_args_is_help=True, help="Registered models: list, show, promote, rollback, archive.")
NameArgument = Annotated[str, typer.Argument(help="Name of the registered model; needed where there are several.")]
ReasonOption = Annotated[str, typer.Option(help="Why; it is kept in the ledger.")]


@app.command("list")
def list_models(name: Annotated[str, typer.Argument(help="Only this model.")] = "", store: StoreOption = "") -> None:
    """List registered versions with their aliases."""
    opened = open_store(store)
    table = Table("model", "version", "status", "judged against", "reference", box=None, pad_edge=False)
    for each in [name] if name else model_names(opened):
        state = Ledger(opened, each).state()
        for version in state.versions:
            last = _last_verdict(state, version)
            against = Reference.parse(last).short if last else "no champion"
            table.add_row(each, str(version.version), _status(state, version), against, version.model)
    print_table(table)


@app.command()
def show(
    name: NameArgument = "",
    version: Annotated[int, typer.Option(help="Show what this version was made from.")] = 0,
    store: StoreOption = "",
) -> None:
    """Show a model's ledger, or one version with its lineage."""
    opened = open_store(store)
    ledger = Ledger(opened, _name(opened, name))
    if version:
        _show_version(ledger, version)
        return
    table = Table("record", "at", "by", "what", "reasons", box=None, pad_edge=False)
    for number, record in enumerate(ledger.records(), start=1):
        reasons = record.verdict.reasons if record.verdict else ()
        said = "; ".join([*reasons, *filter(None, [record.reason])])
        at, by = str(record.provenance.get("at", "")), str(record.provenance.get("by", ""))
        table.add_row(str(number), at, by, _what(record), said)
    print_table(table)


@app.command("promote")
def promote_version(
    version: Annotated[int, typer.Argument(help="The version; 0 for the one in staging.")] = 0,
    name: Annotated[str, typer.Option(help="Name of the registered model.")] = "",
    reason: ReasonOption = "",
    override: Annotated[
        bool, typer.Option("--override", help="Promote although the gate refused it; needs --reason.")
    ] = False,
    store: StoreOption = "",
) -> None:
    """Make a version the champion: approval by a person. One that was rolled back needs its number and a reason."""
    _act(store, name, "promote", version, reason, override)


@app.command()
def rollback(
    version: Annotated[int, typer.Argument(help="The champion to withdraw; default: the present one.")] = 0,
    name: Annotated[str, typer.Option(help="Name of the registered model.")] = "",
    reason: ReasonOption = "",
    store: StoreOption = "",
) -> None:
    """Take the champion out of production and of staging, and return to the one before it."""
    _act(store, name, "rollback", version, reason)


@app.command()
def archive(
    version: Annotated[int, typer.Argument(help="The version.")],
    name: Annotated[str, typer.Option(help="Name of the registered model.")] = "",
    reason: ReasonOption = "",
    store: StoreOption = "",
) -> None:
    """Keep a version for the record only: it cannot be promoted any more."""
    _act(store, name, "archive", version, reason)


def _act(store: str, name: str, action: str, version: int, reason: str, override: bool = False) -> None:
    opened = open_store(store)
    named = _name(opened, name)
    if action == "rollback" and not version:
        version = Ledger(opened, named).state().champion
    body = {"model_name": named, "action": action, "version": version, "reason": reason, "override": override}
    result = promote(PromoteRequest.model_validate(body), opened)
    typer.echo(f"{named} version {result.version}: {result.decision}; the champion is {result.champion or 'none'}")


def _name(store: ArtifactStore, name: str) -> str:
    names = model_names(store)
    if name in names:
        return name
    if not name and len(names) == 1:
        return names[0]
    raise ConfigurationError(
        f"The store {store.address} has the registered models {', '.join(names) or '(none)'}: expected the name "
        f"of one, found {name!r}. A training run registers a model; --store chooses another store."
    )


def _status(state: State, version: ModelVersion) -> str:
    return version.ended or ", ".join(state.aliases_of(version.version))


def _last_verdict(state: State, version: ModelVersion) -> str:
    verdicts = (verdict for _, verdict in reversed(state.verdicts) if verdict.subject.model == version.model)
    return next(verdicts).champion


def _what(record: Record) -> str:
    if record.kind == "refused" and record.verdict:
        return f"refused {Reference.parse(record.verdict.subject.model).short}"
    if record.kind == "promoted":
        return f"version {record.version} is {record.alias}{', gate overridden' if record.override else ''}"
    words = {"registered": "registered as", "rolled_back": "rolled back to", "archived": "archived"}
    return f"{words[record.kind]} version {record.version}"


def _show_version(ledger: Ledger, number: int) -> None:
    state = ledger.state()
    version = state.version(number)
    if version is None:
        raise ConfigurationError(
            f"{ledger.model_name} has no version {number}: expected 1 to {len(state.versions)}. "
            "See `gatehouse models list`."
        )
    grid = Table(box=None, show_header=False, pad_edge=False)
    facts = [("version", str(number)), ("status", _status(state, version))]
    facts += [("model", version.model), ("evaluation", version.evaluation)]
    facts += [("judged against", _last_verdict(state, version) or "no champion")]
    for name, value in [*facts, *(("made from", identity) for identity in version.lineage)]:
        grid.add_row(Text(name, style="dim"), value)
    print_table(grid)
