"""The pages of a snapshot, table by table, and of the rows of a table that were set aside, reason by reason."""

from collections.abc import Mapping

from gatehouse.data.snapshot.deliveries import delivered_tables, written_times
from gatehouse.data.snapshot.rejected import Group, groups_of, rejected_of
from gatehouse.data.sources.declared import HIDDEN, NOT_SHOWN
from gatehouse.reports.elements import shortened, table
from gatehouse.reports.format import moment
from gatehouse.reports.page import Marked, Report, Verdict
from gatehouse.runtime.counting import counted
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_GROUPS, _EXAMPLES, _LONGEST = 50, 5, 300


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a snapshot, as HTML: its tables, with their columns and how many rows were set aside.

    Args:
        store: Where the artifact is, and its tables.
        reference: Of the snapshot.
    """
    manifest = store.manifest(reference)
    delivered = delivered_tables(store, reference)
    tables = {name: store.manifest(manifest.derived_from[name]) for name in delivered}
    rejected = {
        store.manifest(each).derived_from["dataset"]: store.manifest(each).rows or 0
        for each in rejected_of(store, reference)
    }
    aside = {name: rejected.get(str(found.reference), 0) for name, found in tables.items()}
    kept = {name: found.rows or 0 for name, found in tables.items()}
    drawn = Report(f"Snapshot of {manifest.name}", "", _taken(aside, kept))
    drawn.facts({"as of": moment(manifest.details["as_of"]), "window": manifest.details["window"] or "everything"})
    drawn.tiles(
        {
            "tables": len(tables),
            "rows": sum(kept.values()),
            "rejected": Marked(sum(aside.values()), "warn" * any(aside.values())),
        }
    )
    drawn.section("Tables", count=f"{len(tables):,}").table(
        ["table", "rows", "rejected", "columns", "MB", "dataset"],
        [
            [
                *(name, found.rows, Marked(aside[name], "warn" * bool(aside[name])), len(found.columns)),
                *(sum(file.bytes for file in found.files) / 1e6, found.reference.short),
            ]
            for name, found in tables.items()
        ],
    )
    drawn.section("Columns")
    for name, found in tables.items():
        order, times = delivered[name].columns, delivered[name].times
        listed = sorted(found.columns, key=lambda one: order.index(one.name))
        columns = {
            "column": [one.name for one in listed],
            "type": [one.type for one in listed],
            "may be null": ["yes" if one.nullable else "no" for one in listed],
        }
        if times:
            written = [written_times(times[one.name]) if one.name in times else "" for one in listed]
            columns["times written as"] = written
        rows = list(zip(*columns.values(), strict=True))
        drawn.folded(f"{name}: {len(rows):,} columns", table(list(columns), rows, label=f"Columns of {name}"))
    return drawn.html()


def _taken(rejected: Mapping[str, int], kept: Mapping[str, int]) -> Verdict:
    warnings = [
        f"{name}: {count:,} of {count + kept[name]:,} rows did not fit and were set aside"
        for name, count in rejected.items()
        if count
    ]
    text = f"{counted(len(kept), 'table')} with {counted(sum(kept.values()), 'row')}."
    unchecked = "the contract: the validation of this snapshot judges it"
    todo = "look at these rows with `gatehouse data rejected`, which gives the reason of each." if warnings else ""
    return Verdict("pass", text, warnings=tuple(warnings), unchecked=(unchecked,), todo=todo, title="Taken")


def rejected_page(store: ArtifactStore, reference: str) -> str:
    """The page of the rejected rows of a table, as HTML.

    Args:
        store: Where the artifact is, and the dataset that it stands beside.
        reference: Of the rejected rows.
    """
    manifest, groups = store.manifest(reference), groups_of(store, reference, _EXAMPLES)
    dataset = store.manifest(manifest.derived_from["dataset"])
    kept, rejected = dataset.rows or 0, manifest.rows or 0
    drawn = Report(f"Rejected rows of {manifest.name}", "", _verdict(kept, rejected))
    drawn.facts({"dataset": Reference.parse(dataset.reference).short})
    if hidden := ", ".join(dataset.details.get("sensitive", ())):
        drawn.note(
            f"No value of these rows is shown, as the table has sensitive columns ({hidden}) and the values of "
            "such a row may stand in other columns. Look at the rows in the source, at the places below."
        )
    drawn.tiles({"rejected": Marked(rejected, "warn"), "kept": kept, "reasons": len(groups)})
    drawn.section("Reasons", "Each row counts once, for its first column that does not fit.", f"{len(groups):,}")
    rows = [[group.column or "the row", group.reason, group.rows, group.rows / rejected] for group in groups[:_GROUPS]]
    drawn.table(["column", "reason", "rows", "share"], rows, formats={"share": "{:.1%}".format})
    if len(groups) > _GROUPS:
        drawn.note(f"{len(groups) - _GROUPS:,} rarer reasons are in the artifact.")
    for group in groups[:_GROUPS]:
        _add_group(drawn, group)
    return drawn.html()


def _verdict(kept: int, rejected: int) -> Verdict:
    share = rejected / (kept + rejected)
    text = f"{rejected:,} of {kept + rejected:,} rows ({share:.2%}) did not fit and were set aside."
    return Verdict("warn", text, title="Rows set aside")


def _add_group(drawn: Report, group: Group) -> None:
    drawn.section(group.column or "The row", group.reason, f"{group.rows:,}")
    told = {
        "where": [one.place.replace("line ", "line\u00a0") for one in group.examples],
        "found": [shortened(one.found, _LONGEST) for one in group.examples],
        "the row as the source gave it": [shortened(one.raw, _LONGEST) for one in group.examples],
    }
    shown = {header: cells for header, cells in told.items() if not set(cells) <= {HIDDEN, NOT_SHOWN}}
    drawn.table(list(shown), list(zip(*shown.values(), strict=True)))
