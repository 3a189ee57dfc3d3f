"""Publishes a table as a training set: its manifest says what the columns are to a model."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.metrics.tasks import TASKS, TaskName
from gatehouse.store.identity import Spec
from gatehouse.store.manifest import Column
from gatehouse.store.parameters import checked
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_PART, _ROW_GROUP = "part-00000.parquet", 1 << 17


class Roles(Spec):
    """The roles that the columns of a table have for a model.

    `label` is numbers, truth values, or names of `classes`, of two the positive one last. `features` are by default
    every number, truth value and text without another role. `label_time` is by default `event_time`.
    """

    label: str
    task: TaskName = "binary"
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    event_time: str = ""
    label_time: str = ""
    group: str = ""

    def applied(self, table: pa.Table) -> tuple[pa.Table, dict[str, Any]]:
        """The table with labels and features as numbers or texts, and the details of its manifest as a training set.

        Raises ConfigurationError if a column is missing, or has a type that its role cannot have.
        """
        types = {field.name: str(field.type).split("[")[0] for field in table.schema}
        times = {"decision_time": self.event_time, "label_time": self.label_time or self.event_time}
        others = {self.label, self.group, *self.keys, *times.values()} - {""}
        chosen = self.features or [name for name in types if name not in others]
        numeric = [name for name in chosen if types.get(name) in ("int64", "double", "bool")]
        categorical = [name for name in chosen if types.get(name) == "string"]
        missing = sorted({*others, *chosen} - types.keys())
        there = f"; the table has {', '.join(types)}"
        problems = [f"{name} is missing{nearest(name, types)}{there}" for name in missing]
        untimed = {name for name in times.values() if types.get(name, "timestamp") != "timestamp"}
        odd = {name for name in self.features if name in types and name not in (*numeric, *categorical)}
        problems += [f"{name} is feature and label" for name in self.features if name == self.label]
        problems += [f"{name} is {types[name]}, not what it is to be" for name in sorted(untimed | odd)]
        if problems:
            raise ConfigurationError(f"The columns do not fit their roles: {'; '.join(problems)}. Correct either.")
        classes = list(self.classes)
        coded = {name: types[name] for name in [self.label, *numeric] if types[name] in ("bool", "string")}
        for name in coded:
            column, place = table[name].combine_chunks(), table.schema.get_field_index(name)
            if types[name] == "bool":
                table = table.set_column(place, name, pc.cast(column, pa.int64()))
            else:
                several = TASKS[self.task].output == "probabilities"
                classes = classes or (sorted(pc.unique(column).drop_null().to_pylist()) if several else [])
                numbers = pc.index_in(column, value_set=pa.array(classes, pa.string()), skip_nulls=True)
                if numbers.null_count > column.null_count:
                    raise ConfigurationError(
                        f"{name}: expected {TASKS[self.task].label}, or names that `classes` lists "
                        f"({', '.join(classes) or 'none'}), found others. List them, of two the positive one last."
                    )
                table = table.set_column(place, name, pc.cast(numbers, pa.int64()))
        roles = {"label": self.label, "task": self.task, "classes": classes, "group": self.group, "coded": coded}
        return table, roles | times | {"entity_keys": [*self.keys], "numeric": numeric, "categorical": categorical}


def restored(rows: pa.Table, details: Mapping[str, Any]) -> pa.Table:
    """Rows of a training set with the names and truth values of the table that it was published from."""
    for name, kind in details.get("coded", {}).items():
        column, names = rows[name].combine_chunks(), pa.array(details["classes"], pa.string())
        values = pc.cast(column, pa.bool_()) if kind == "bool" else pc.take(names, column)
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows


def roles_of(columns: Mapping[str, Any], strategy: Mapping[str, Any]) -> Roles:
    """The roles of a table's columns, checked also against the strategy that divides it.

    Raises ConfigurationError with every problem.
    """
    roles = checked("columns", Roles, columns)
    if {"train_until", "test_from"} & strategy.keys() and not roles.event_time:
        raise ConfigurationError("spec: this strategy divides by time: give columns.event_time.")
    return roles


def publish_table(
    store: ArtifactStore, name: str, table: pa.Table, roles: Roles, origin: Mapping[str, str]
) -> Reference:
    """Publish a table as a training set, derived from those artifacts of `origin`, by role, that the store holds.

    Raises ConfigurationError if the columns do not fit their roles.
    """
    rows, details = roles.applied(table)
    inputs = {role: reference for role, reference in origin.items() if reference and store.exists(reference)}
    return publish_rows(store, "training-sets", name, rows, details, inputs)


def publish_rows(
    store: ArtifactStore,
    kind: str,
    name: str,
    table: pa.Table,
    details: Mapping[str, Any],
    derived_from: Mapping[str, Reference | str],
    configuration: Mapping[str, Any] | None = None,
) -> Reference:
    """Publish a table: as `training-sets` what `split`, `fit_transformation`, `train` and `evaluate` take.

    `details` must then have the `task`, `classes` and columns that `Roles.applied` gives.
    """
    columns = [Column(field.name, str(field.type), field.nullable) for field in table.schema]
    with store.workspace() as workspace:
        path = workspace / _PART
        pq.write_table(table.replace_schema_metadata(None), path, compression="zstd", row_group_size=_ROW_GROUP)
        return store.publish(
            kind,
            name,
            {_PART: path},
            columns=columns,
            rows=table.num_rows,
            rows_per_file={_PART: table.num_rows},
            derived_from=derived_from,
            configuration=configuration,
            details=details,
        )
