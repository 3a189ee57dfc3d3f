"""Commands that remove data from a store: deprecate, collect garbage, erase on request."""

import sys
import time
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gatehouse.cli.output import JsonOption, StoreOption, find, open_store, print_json, print_table, seconds_of, size
from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.runtime.counting import counted
from gatehouse.store import deprecation, eraser
from gatehouse.store.collection import Collector, Item, Wish
from gatehouse.store.eraser import ErasurePlan, plan_erasure, unlisted_blobs

_SHOWN = 40
_STYLES = {"found": "", "waiting": "yellow", "deleted": "green", "kept": "dim", "broken": "red"}
ReasonOption = Annotated[str, typer.Option(help="Why; it is kept in the record.")]
ByOption = Annotated[str, typer.Option(help="Who asks; default: the user of this machine.")]


def deprecate(
    reference: Annotated[str, typer.Argument(help="What should not be used any more.")],
    reason: ReasonOption,
    successor: Annotated[str, typer.Option(help="The reference to use instead.")] = "",
    by: ByOption = "",
    store: StoreOption = "",
) -> None:
    """Mark an artifact as deprecated: readers are warned, with the reason and the successor.

    GATEHOUSE_DEPRECATED=fail makes reading it an error, allow silences the warning.
    """
    opened = open_store(store)
    found = find(opened, reference)
    said = deprecation.deprecate(opened.objects, found, reason, find(opened, successor) if successor else "", by)
    typer.echo(said.explain(found))


def collect(
    delete: Annotated[bool, typer.Option("--delete", help="Mark, and delete what was marked a grace ago.")] = False,
    grace: Annotated[str, typer.Option(help="From tombstone to deletion, e.g. 24h, 30m, 7d, 0.")] = "24h",
    deprecated: Annotated[
        bool, typer.Option("--deprecated", help="Also deprecated artifacts that nothing needs any more.")
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="With --deprecated: also those that memos and run records name.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="With --delete: wait for the grace, then delete.")] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Collect garbage: show what nothing needs, and with --delete remove it in two phases.

    Whatever a manifest, a memo, a run record, the ledger, lineage or a running writer needs, stays. The first
    `gc --delete` writes tombstones. One after the grace period deletes what is still not needed. It may run at any
    time, also beside writers. While a manifest is broken no data is deleted, as it may need any; exit code 1 says so.
    """
    if forget and not deprecated:
        raise ConfigurationError("--forget: expected together with --deprecated, found without it.")
    if wait and not delete:
        raise ConfigurationError("--wait: expected together with --delete, found without it.")
    opened = open_store(store)
    collector = Collector(opened, Wish(deprecated, forget, seconds_of("--grace", grace)))
    items = collector.mark() if delete else collector.look()
    if delete:
        if wait and any(item.state == "waiting" for item in items):
            typer.echo(f"waiting {grace} for what was marked", err=True)
            time.sleep(collector.wish.grace)
        items = collector.sweep(items)
    if as_json:
        print_json([asdict(item) for item in items])
    else:
        _print_items(items)
        _print_totals(items, delete, grace)
    if any(item.state == "broken" for item in items):
        raise typer.Exit(1)


def _print_items(items: list[Item]) -> None:
    if not items:
        return
    table = Table("what", box=None, pad_edge=False)
    table.add_column("bytes", justify="right")
    for name in ("state", "why", "key"):
        table.add_column(name)
    for item in items[:_SHOWN]:
        due = time.strftime(" until %Y-%m-%d %H:%M UTC", time.gmtime(item.due)) if item.state == "waiting" else ""
        state = Text(item.state + due, style=_STYLES[item.state])
        table.add_row(item.kind, f"{item.bytes:,}", state, item.why, item.key)
    print_table(table)
    if len(items) > _SHOWN:
        typer.echo(f"… and {len(items) - _SHOWN:,} more; --json prints all")
    typer.echo("")


def _print_totals(items: list[Item], delete: bool, grace: str) -> None:
    for state in ("deleted", "waiting", "found", "kept", "broken"):
        of = [item for item in items if item.state == state]
        if of:
            typer.echo(
                f"{'may go' if state == 'found' else state}: {len(of):,} ({size(sum(item.bytes for item in of))})"
            )
    states = {item.state for item in items}
    if "broken" in states:
        typer.echo("While a manifest is broken, no data is deleted: restore the store from a copy.")
    if not states - {"kept", "broken"}:
        typer.echo("There is nothing to collect.")
    elif not delete:
        typer.echo(
            "Nothing was changed. --delete writes tombstones, and deletes what has had one for the grace period."
        )
    elif "waiting" in states:
        typer.echo(f"Tombstones stand. Run it again after the grace period ({grace}) to delete.")


def erase(
    reference: Annotated[str, typer.Argument(help="The artifact whose data is to be removed.")],
    reason: ReasonOption,
    only: Annotated[bool, typer.Option("--only", help="Erase this artifact alone.")] = False,
    keep_inputs: Annotated[bool, typer.Option("--keep-inputs", help="Leave what it was made from.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    by: ByOption = "",
    store: StoreOption = "",
) -> None:
    """Remove an artifact's data for good, with an audited record. It cannot be undone.

    What it was made from, what was derived from these, and artifacts that share their files are erased too: all are
    listed first. Manifests stay and say that the data was erased. The same content is refused when it is published
    again; `gatehouse data lift` allows it.
    """
    opened = open_store(store)
    for unfinished in opened.erasures.unfinished():
        typer.echo(f"finishing {unfinished.key}, which was interrupted", err=True)
        eraser.finish(opened, unfinished)
    artifact = find(opened, reference)
    plan = plan_erasure(opened, artifact, only, keep_inputs)
    if not plan.blobs and not plan.erased:
        erasure = opened.erasures.of(artifact)
        typer.echo(erasure.explain(str(artifact)) if erasure else f"{artifact}: nothing is left to erase.")
        return
    _print_plan(plan)
    if not yes and not sys.stdin.isatty():
        raise ConfigurationError("Nothing was erased: expected --yes, as there is no terminal to ask on.")
    if not yes and not typer.confirm("Erase? This cannot be undone."):
        raise typer.Exit(1)
    record = eraser.erase(opened, plan, reason, by)
    after = plan_erasure(opened, artifact, only, keep_inputs)
    if after.erased or after.blobs or len(after.holders) > len(plan.holders):
        _print_plan(after)
        raise StoreError(f"While {artifact} was erased, the artifacts above were published. Erase it again.")
    typer.echo(f"{'erased in part' if plan.holders else 'erased'}; the record is {record.key}.")
    _print_unreached(len(unlisted_blobs(opened)))


def _print_unreached(unlisted: int) -> None:
    if unlisted:
        typer.echo(
            f"{unlisted} blobs that no manifest lists, as unfinished work leaves them, may hold the data, too: "
            "`gatehouse data gc --delete` removes them after the grace period."
        )
    typer.echo(
        "Not reached: caches of other machines, other stores that this was pulled to, versions of a versioned bucket, "
        "backups, downloads in scratch/, and the source itself. MLflow is shown no values of rows."
    )


def _print_plan(plan: ErasurePlan) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    sections = (
        ("to be erased:", plan.erased, "bold red"),
        ("marked as not reproducible:", plan.dependants, "yellow"),
        ("these still hold data of it:", plan.holders, "yellow"),
    )
    for title, references, style in sections:
        if references:
            console.print(Text(title, style=style), *(Text(f"  {artifact}") for artifact in references), sep="\n")
    total = sum(count for count, _ in plan.blobs.values())
    console.print(f"in all {counted(len(plan.blobs), 'file')} to be removed, {size(total)}")


def lift(
    number: Annotated[int, typer.Argument(help="The number of the erasure's record.")],
    reason: ReasonOption,
    by: ByOption = "",
    store: StoreOption = "",
) -> None:
    """Allow the content of an erasure to be published again; what was removed stays removed."""
    erasure = eraser.lift(open_store(store), number, reason, by)
    typer.echo(f"{erasure.key} is lifted: {len(erasure.blobs)} files may be published again.")
