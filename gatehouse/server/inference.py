"""The inputs and outputs of a served model, as tensors of KServe's Open Inference Protocol (version 2)."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field

from gatehouse.configuration.times import zoned
from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.repository import Repository, check_out
from gatehouse.features.exact import TIME, cast_values
from gatehouse.monitoring.scoring_stage import classes_of, prediction_columns
from gatehouse.online.serving import online_features, open_online
from gatehouse.online.store import OnlineStore, online_view, require_materialized
from gatehouse.registry.naming import named
from gatehouse.store.store import ArtifactStore
from gatehouse.training.predictor import Predictor

_NUMBERS = {
    **{f"{sign}INT{bits}": f"{sign.lower()}int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "FP32": "float",
    "FP64": "double",
}
_ARROW = _NUMBERS | {"BOOL": "bool", "BYTES": "string"}
_DATATYPES = {arrow: datatype for datatype, arrow in _ARROW.items()} | {"large_string": "BYTES"}
DECISION_TIME = "decision_time"
_YEARS = (1970, 2200)
Datatype = Literal[
    "BOOL", "BYTES", "FP32", "FP64", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"
]


class TensorSchema(BaseModel):
    """An input or output tensor of a model; -1 stands for the number of rows."""

    name: str
    datatype: Datatype
    shape: list[int]


class Tensor(BaseModel):
    """Values of one input for all rows; null for a missing value, which is this server's extension."""

    name: str = Field(max_length=500)
    datatype: Datatype
    shape: Annotated[list[int], Field(min_length=1, max_length=2)]
    data: list[Any]


class RequestedOutput(BaseModel):
    """A requested output."""

    name: str


class Inference(BaseModel):
    """A request of the protocol."""

    id: str = Field("", max_length=500)
    inputs: Annotated[list[Tensor], Field(min_length=1)]
    outputs: list[RequestedOutput] = []


@dataclass(frozen=True)
class Online:
    """Reads features by the keys of a request, for the feature service that the model was trained on."""

    repository: Repository
    service: str
    store: OnlineStore
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    @classmethod
    def of_model(cls, store: ArtifactStore, model: str) -> "Online":
        """The online store for the definitions that a model was trained with.

        Raises ConfigurationError if the store does not exist, or has no rows of a view.
        """
        training_set = store.manifest(store.manifest(model).derived_from["training_set"])
        inputs = training_set.derived_from
        with store.workspace() as workspace:
            repository = check_out(store, inputs["definitions"], workspace)
            online = open_online(store, store.manifest(inputs["feature_tables"]).name, workspace)
        features = cls(repository, str(training_set.configuration["service"]), online)
        features.require_materialized()
        return features

    def require_materialized(self) -> None:
        """Check that every view of the service is in the store. Raises as `of_model`, or StoreError."""
        views = self.repository.service(self.service).views
        require_materialized(self.store, (online_view(self.repository.views[name]) for name in views))

    @cached_property
    def inputs(self) -> list[TensorSchema]:
        """The entity keys, and the request values of on-demand views."""
        views = self.repository.service(self.service).views
        keys = dict.fromkeys(key for name in views for key in self.repository.views[name].spec.entities)
        types = {key: "INT64" if self.repository.entities[key] == "int64" else "BYTES" for key in keys}
        for name, kind in self.repository.request_values(self.service).items():
            types[name] = "BYTES" if kind == "categorical" else "FP64"
        return [TensorSchema(name=name, datatype=kind, shape=[-1]) for name, kind in types.items()]

    def read(self, rows: pa.Table) -> pa.Table:
        """The present features for rows of keys."""
        return online_features(self.repository, self.service, self.store, rows.to_pylist(), self.now())


@dataclass(frozen=True)
class ServedModel:
    """A loaded model: name and version in the registry, reference, predictor, and names of classes by number.

    `online` reads features by keys; None if requests must contain the features. `keys` are the entity keys of its
    training set, with their types in Arrow, and `group` the column of the rows that are ranked together. A request may
    contain them beside the features, to say what its rows are about. `sensitive` are columns that no log may show.
    """

    name: str
    version: str
    model: str
    predictor: Predictor
    classes: tuple[str, ...] = ()
    online: Online | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    sensitive: frozenset[str] = frozenset()

    @classmethod
    def of(cls, store: ArtifactStore, text: str, online: bool) -> "ServedModel":
        """The version that a text such as NAME@champion names now.

        Raises ConfigurationError if there is none, or as `Online.of_model`.
        """
        version = named(store, text)
        if not version.number:
            raise ConfigurationError(f"expected NAME:2 or NAME@champion, found {text!r}, which names no version.")
        return cls.load(store, version.ledger.model_name, version.number, version.version.model, online)

    @classmethod
    def load(cls, store: ArtifactStore, name: str, version: int, model: str, online: bool) -> "ServedModel":
        """A version with the model of a reference. Raises as `of`."""
        predictor = Predictor.load(store, model)
        training_set = store.manifest(model).derived_from.get("training_set", "")
        rows = store.manifest(training_set) if training_set else None
        details = rows.details if rows else {}
        group = str(details.get("group") or "") if predictor.task.counted == "group" else ""
        identifying = {*details.get("entity_keys", ()), group}
        return cls(
            name,
            str(version),
            model,
            predictor,
            classes_of(store, model),
            Online.of_model(store, model) if online else None,
            {
                column.name: column.type
                for column in (rows.columns if rows else ())
                if column.name in identifying and column.type in _DATATYPES  # The protocol has no dates, for example.
            },
            group,
            sensitive_columns(store, model),
        )

    @cached_property
    def inputs(self) -> list[TensorSchema]:
        """The features, each with its type in training."""
        numeric = {column.name for column in self.predictor.transformation.numeric}
        return [
            TensorSchema(
                name=column.name,
                datatype=_DATATYPES.get(column.type, "FP64" if column.name in numeric else "BYTES"),
                shape=[-1],
            )
            for column in self.predictor.transformation.columns
        ]

    @cached_property
    def identity(self) -> list[TensorSchema]:
        """What a request may say of its rows besides the features: the keys, and when they are decided on."""
        keys = [TensorSchema(name=name, datatype=_DATATYPES[kind], shape=[-1]) for name, kind in self.keys.items()]
        return [*keys, TensorSchema(name=DECISION_TIME, datatype="BYTES", shape=[-1])]

    @cached_property
    def accepted(self) -> frozenset[str]:
        """Names of the inputs that it reads."""
        return frozenset(schema.name for schema in [*self.inputs, *(self.online.inputs if self.online else ())])

    @cached_property
    def outputs(self) -> list[TensorSchema]:
        """The outputs for a row."""
        no_rows = pa.table({tensor.name: pa.nulls(0) for tensor in self.inputs})
        schema = prediction_columns(self.predictor, no_rows, self.classes).schema
        return [
            TensorSchema(name=field.name, datatype="FP64", shape=[-1, field.type.list_size])
            if pa.types.is_fixed_size_list(field.type)
            else TensorSchema(name=field.name, datatype=_DATATYPES[str(field.type)], shape=[-1])
            for field in schema
        ]

    def require_outputs(self, request: Inference) -> None:
        """Check that the model has the requested outputs. Raises ConfigurationError."""
        names = [schema.name for schema in self.outputs]
        if unknown := [output.name for output in request.outputs if output.name not in names]:
            raise ConfigurationError(f"outputs: expected {', '.join(names)}, found {', '.join(unknown)}.")

    def score(self, features: pa.Table) -> pa.Table:
        """The predictions for rows, with the columns of `outputs`. Raises FeatureError, PredictionError."""
        return prediction_columns(self.predictor, features, self.classes)

    def answer(self, request: Inference, predictions: pa.Table) -> dict[str, Any]:
        """The answer to a request that has these predictions."""
        schemas = {schema.name: schema for schema in self.outputs}
        outputs = []
        for name in [output.name for output in request.outputs] or list(schemas):
            values = predictions[name].combine_chunks()
            flat = values.flatten() if len(schemas[name].shape) > 1 else values
            shape = [len(values), *schemas[name].shape[1:]]
            tensor = {"name": name, "datatype": schemas[name].datatype, "shape": shape, "data": flat.to_pylist()}
            outputs.append(tensor)
        answer = {"model_name": self.name, "model_version": self.version, "outputs": outputs}
        return answer | ({"id": request.id} if request.id else {})

    def read(
        self, tensors: list[Tensor], rows: Sequence[int] | None = None, others: Set[str] = frozenset()
    ) -> pa.Table:
        """The features of the rows of a request, by default of all: sent with it, or read by its keys.

        `others` are inputs that models beside this one read. Raises ConfigurationError, FeatureError if the inputs are
        not those of the model. Raises StoreError if the online store cannot be reached.
        """
        names = [tensor.name for tensor in tensors]
        if len(set(names)) < len(names):
            raise ConfigurationError(f"inputs: expected each once, found {', '.join(names)}.")
        keys = {schema.name: schema for schema in self.online.inputs} if self.online else {}
        features = {schema.name: schema for schema in self.inputs}
        further = others | {schema.name for schema in self.identity}
        own = [tensor for tensor in tensors if tensor.name in features or tensor.name not in further - keys.keys()]
        if self.online and {tensor.name for tensor in own} == keys.keys():
            return self.online.read(_selected(_table(own, keys, tensors[0]), rows))
        own = [tensor for tensor in tensors if tensor.name in features or tensor.name not in further]
        lacking, unknown = features.keys() - set(names), {tensor.name for tensor in own} - features.keys()
        if lacking or unknown:
            other = f"; or the keys {', '.join(keys)} alone" if keys else ""
            raise ConfigurationError(
                f"inputs: expected the features {', '.join(features)}{other}; found {', '.join(names)}: "
                f"missing {', '.join(sorted(lacking)) or 'none'}, unknown {', '.join(sorted(unknown)) or 'none'}."
            )
        return _selected(_table(own, features, tensors[0]), rows)

    def identify(self, tensors: list[Tensor]) -> pa.Table:
        """What a request says of its rows: those columns of `identity` that it has. Raises ConfigurationError."""
        if not tensors[0].shape[0]:
            raise ConfigurationError("inputs: expected at least one row, found none.")
        schema = {schema.name: schema for schema in self.identity}
        sent = [tensor for tensor in tensors if tensor.name in schema]
        table = _table(sent, schema, tensors[0]) if sent else pa.table({})
        for name in table.column_names:
            column = table[name]
            if name == DECISION_TIME:
                texts = column.to_pylist()
                column = pa.array([zoned(f"input {name}", text or "") for text in texts], TIME)
                if not _YEARS[0] <= min(years := pc.year(column).to_pylist()) <= max(years) <= _YEARS[1]:
                    raise ConfigurationError(f"input {name}: expected the years 1970 to 2200, in UTC.")
            else:
                column = column.cast(pa.type_for_alias(self.keys[name]))
            table = table.set_column(table.schema.get_field_index(name), name, column)
        return table


def _selected(table: pa.Table, rows: Sequence[int] | None) -> pa.Table:
    return table if rows is None else table.take(pa.array(rows, pa.int64()))


def _table(tensors: list[Tensor], schema: Mapping[str, TensorSchema], first: Tensor) -> pa.Table:
    columns, rows = {}, first.shape[0]
    for tensor in tensors:
        data = [value[0] if isinstance(value, list) and len(value) == 1 else value for value in tensor.data]
        if tensor.shape not in ([rows], [rows, 1]) or len(data) != rows or not rows:
            raise ConfigurationError(
                f"input {tensor.name}: expected a value for each of the {rows} rows of {first.name}, at least "
                f"one, shape [{rows}] or [{rows}, 1]; found shape {tensor.shape} and {len(data)} values."
            )
        expected = schema[tensor.name].datatype
        if tensor.datatype != expected and not {tensor.datatype, expected} <= _NUMBERS.keys():
            raise ConfigurationError(f"input {tensor.name}: expected datatype {expected}, found {tensor.datatype}.")
        for datatype in dict.fromkeys((tensor.datatype, expected)):
            place = partial("input {}, datatype {}, data[{}]".format, tensor.name, datatype)
            columns[tensor.name] = cast_values(data, pa.type_for_alias(_ARROW[datatype]), place)
            data = columns[tensor.name].to_pylist()
    return pa.table(columns)
