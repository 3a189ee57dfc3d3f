"""The page about the rows of a table that were set aside: how many, why, and examples of each reason."""

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.reports.elements import shortened
from gatehouse.components.reports.page import Marked, Report, Verdict
from gatehouse.components.snapshot.rejected import Group, groups_of

_GROUPS, _EXAMPLES, _LONGEST = 50, 5, 300


def page(store: ArtifactStore, reference: str) -> str:
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
    return Verdict("warn", f"{rejected:,} of {kept + rejected:,} rows ({share:.2%}) did not fit and were set aside.")


def _add_group(drawn: Report, group: Group) -> None:
    drawn.section(group.column or "The row", group.reason, f"{group.rows:,}")
    rows = [[one.place, shortened(one.found, _LONGEST), shortened(one.raw, _LONGEST)] for one in group.examples]
    drawn.table(["where", "found", "the row as the source gave it"], rows)
