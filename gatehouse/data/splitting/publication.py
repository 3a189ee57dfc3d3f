"""Publishes a table as a training set: of its columns it says what they are to a model."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from gatehouse.errors import ConfigurationError
from gatehouse.metrics.tasks import TASKS, TaskName
from gatehouse.store.identity import Spec
from gatehouse.store.manifest import Column
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

PART = "part-00000.parquet"
"""File name of a training set."""
_ROW_GROUP = 1 << 17


class Roles(Spec):
    """What the columns of a table are to a model."""

    label: str = Field(description="What is predicted: numbers, truth values, or the names of classes.")
    task: TaskName = Field("binary", description="What kind of answer is predicted.")
    classes: tuple[str, ...] = Field((), description="Names of the classes by number; of two, the positive one last.")
    features: tuple[str, ...] = Field((), description="By default every number, truth value and text without a role.")
    keys: tuple[str, ...] = Field((), description="Columns that say which entity a row is about.")
    event_time: str = Field("", description="When the prediction is made; empty where that does not matter.")
    label_time: str = Field("", description="When the label is known; empty for at once.")
    group: str = Field("", description="Of ranking: within what the rows are ordered.")

    def applied(self, table: pa.Table) -> tuple[pa.Table, dict[str, Any]]:
        """The table with labels and features that a model can take, and what a training set's manifest says of it.

        Raises ConfigurationError if a column is missing or has a type that its role cannot have.
        """
        numeric, categorical = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean), (pa.types.is_string,)
        times = dict.fromkeys(filter(None, (self.event_time, self.label_time)))
        taken = {self.label, *self.keys, *times, self.group}
        rest = [field.name for field in table.schema if field.name not in taken]
        named = [*taken - {""}, *self.features]
        if missing := [name for name in dict.fromkeys(named) if name not in table.column_names]:
            raise _unfit(f"the columns {', '.join(sorted(missing))}", f"only {', '.join(table.column_names)}")
        if self.label in self.features:
            raise _unfit("features that are no label", self.label)
        if untimed := [name for name in times if not pa.types.is_timestamp(table.schema.field(name).type)]:
            raise _unfit(f"times in {', '.join(untimed)}", str(table.schema.field(untimed[0]).type))

        def of(kinds: tuple[Callable[[pa.DataType], bool], ...]) -> list[str]:
            chosen = self.features or rest
            return [name for name in chosen if any(is_kind(table.schema.field(name).type) for is_kind in kinds)]

        kinds: dict[str, Any] = {"numeric": of(numeric), "categorical": of(categorical)}
        if odd := sorted({*self.features} - {*kinds["numeric"], *kinds["categorical"]}):
            raise _unfit("features that are numbers, truth values or texts", f"{', '.join(odd)}")
        labels, classes = self._labels(table[self.label].combine_chunks())
        table = table.set_column(table.schema.get_field_index(self.label), self.label, labels)
        for name in kinds["numeric"]:
            if pa.types.is_boolean(table.schema.field(name).type):
                table = table.set_column(table.schema.get_field_index(name), name, pc.cast(table[name], pa.int64()))
        roles = {"label": self.label, "task": self.task, "classes": classes, "group": self.group}
        known = {"decision_time": self.event_time, "label_time": self.label_time or self.event_time}
        return table, roles | kinds | known | {"entity_keys": list(self.keys)}

    def _labels(self, column: pa.Array) -> tuple[pa.Array, list[str]]:
        """Labels as numbers, and the names of the classes by number."""
        if pa.types.is_boolean(column.type):
            return pc.cast(column, pa.int64()), list(self.classes)
        if not pa.types.is_string(column.type):
            return column, list(self.classes)
        several = TASKS[self.task].output == "probabilities"
        names = list(self.classes) or (sorted(pc.unique(column).drop_null().to_pylist()) if several else [])
        numbers = pc.index_in(column, value_set=pa.array(names, pa.string()), skip_nulls=True)
        if unknown := column.filter(pc.and_(column.is_valid(), pc.invert(numbers.is_valid()))):
            expected = (
                f"{TASKS[self.task].label}, or the names in `classes`, {', '.join(names) or 'of which it has none'}"
            )
            raise _unfit(f"a label {self.label} of {expected}", repr(unknown[0].as_py()))
        return pc.cast(numbers, pa.int64()), names


def _unfit(expected: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"The table cannot be a training set: expected {expected}, found {found}. Correct either."
    )


def publish_training_set(
    store: ArtifactStore,
    name: str,
    table: pa.Table,
    details: Mapping[str, Any],
    derived_from: Mapping[str, Reference | str],
    configuration: Mapping[str, Any] | None = None,
) -> Reference:
    """Publish a table as a training set, which `split`, `fit_transformation`, `train` and `evaluate` take.

    Of its columns, `details` name the `label`, the `numeric` and `categorical` features, `entity_keys`,
    `decision_time`, `label_time` and `group`; besides, they have the `task` and `classes`. `Roles.applied` gives both.
    """
    with store.workspace() as workspace:
        plain = table.combine_chunks().replace_schema_metadata(None)
        pq.write_table(plain, workspace / PART, compression="zstd", row_group_size=_ROW_GROUP)
        return store.publish(
            "training-sets",
            name,
            {PART: workspace / PART},
            columns=[Column(field.name, str(field.type), field.nullable) for field in table.schema],
            rows=table.num_rows,
            rows_per_file={PART: table.num_rows},
            derived_from=derived_from,
            configuration=configuration,
            details=details,
        )
