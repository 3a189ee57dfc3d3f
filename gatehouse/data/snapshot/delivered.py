"""How a source delivered the columns of a snapshot: their order, and how it writes times. Pages show it.

Both stand in the record of the delivery, outside of every artifact: equal rows are equal snapshots, in whatever order
their columns came. Where the record is gone, as in a copy of a store, columns stand in the order of the dataset.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gatehouse.data.snapshot.deliveries import Deliveries
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore


@dataclass(frozen=True)
class Delivered:
    """A table.

    Attributes:
        columns: Names of all columns of its dataset, in the order of the source.
        times: How it writes times that are not in ISO 8601, by column, as `times` of a source has it.
    """

    columns: tuple[str, ...]
    times: Mapping[str, str] = field(default_factory=dict)


def written_times(form: str) -> str:
    """How a source writes times, in words: its format, or its unit since 1970."""
    return form if "%" in form else f"numbers: {form} since 1970"


def delivered_tables(store: ArtifactStore, snapshot: Reference | str) -> dict[str, Delivered]:
    """The tables of a snapshot, by name."""
    manifest = store.manifest(snapshot)
    window = str(manifest.details.get("window", ""))
    delivery = Deliveries(store, manifest.name, window).of(str(manifest.reference))
    found = {}
    for name, dataset in sorted(manifest.derived_from.items()):
        held = [column.name for column in store.manifest(dataset).columns]
        table = delivery.tables.get(name) if delivery else None
        came = [column for part in table.parts for column in part.columns] if table else []
        ordered = dict.fromkeys([*(column for column in came if column in held), *held])
        found[name] = Delivered(tuple(ordered), table.times if table else {})
    return found
