"""The stage that compares champion and canary on live outcomes, and the rows of their log that it reads."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import LiveRules
from gatehouse.metrics.catalogue import is_own
from gatehouse.monitoring.live import FILE as FILE
from gatehouse.registry.ledger import CANARY, CHAMPION, Ledger, fold
from gatehouse.registry.naming import NAME
from gatehouse.store.builder_code import builder_code
from gatehouse.store.canonical import canonical_json
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import pyarrow as pa


class LiveRequest(StageModel):
    """A log with the arms of one canary, its outcomes, and what must hold.

    `log` is of `collect_arms`, `outcomes` a table with `request_id` or the entity keys. `label_time` is the column that
    says when an outcome became known, and `positive` the positive one of two labels with names.
    """

    model_name: str = Field(pattern=NAME)
    log: str
    outcomes: str
    rules: LiveRules
    label: str = "label"
    label_time: str = ""
    positive: str = ""


class LiveResult(StageModel):
    """The evaluation, and its verdict with the reasons why it is not *promote*."""

    evaluation: str
    verdict: Literal["promote", "go on", "back"]
    reasons: tuple[str, ...] = ()


def collect_arms(store: ArtifactStore, name: str) -> str:
    """Reference of a log with the rows that champion and canary of a model answered side by side, by their arms.

    A column `share` has the canary's share when the row came; both follow from the ledger. Raises ConfigurationError if
    the model has no champion and canary, or no rows are logged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    records = Ledger(store, name).records()
    state = fold(records)
    versions = [state.version(number) for number in (state.champion, state.canary)]
    if versions[0] is None or versions[1] is None:
        raise ConfigurationError(
            f"{name}: expected a champion and a canary, found {'no canary' if versions[0] else 'no champion'}. Promote "
            f"one: gatehouse models promote {name}:2 --to canary"
        )
    began = next(record for record in records if (record.version, record.alias) == (state.canary, CANARY))
    shares: dict[int, float] = {}
    current = fold([])
    for number, record in enumerate(records, start=1):
        current = fold([record], current)
        if (current.champion, current.canary) == (state.champion, state.canary):
            shares[number] = current.canary_share

    def chosen(table: pa.Table) -> pa.Table:
        table = table.filter(pc.is_in(table["arm"], pa.array([CHAMPION, CANARY, INTERLEAVED])))
        table = table.filter(pc.is_in(table["ledger"], pa.array([*shares], pa.int64())))
        drawn = pa.array([shares[number] for number in table["ledger"].to_pylist()], pa.float64())
        # In an interleaved ranking, the model says who picked a row.
        picked = pc.equal(table["model_version"], state.canary)
        return table.append_column("share", drawn).append_column("picked_by_canary", picked)

    from gatehouse.monitoring.live import INTERLEAVED
    from gatehouse.monitoring.live_log import live_files, publish_log

    since = datetime.fromisoformat(str(began.provenance["at"]))
    # Only what moved the canary: a look without new rows gives the same log.
    details: dict[str, Any] = {"champion": state.champion, "canary": state.canary, "records": state.canary_at}
    details |= {"shares": sorted({*shares.values()}), "canary_share": state.canary_share}
    inputs = {CHAMPION: versions[0].model, CANARY: versions[1].model}
    of = f"{name}:{state.champion} and {name}:{state.canary} side by side"
    return publish_log(store, name, live_files(store, name, since), chosen, of, inputs, details)


def published_outcomes(store: ArtifactStore, outcomes: str) -> str:
    """Reference of a table of outcomes: as it is, or of the rows of a file, which are published.

    Raises ConfigurationError if none is named.
    """
    from gatehouse.data.datasets import read_dataset
    from gatehouse.data.splitting.publication import publish_rows

    if not outcomes:
        raise ConfigurationError("outcomes: expected a table of what came of the logged rows, found none.")
    if "/sha256-" in outcomes:
        return str(Reference.parse(outcomes))
    return str(publish_rows(store, "tables", "outcomes", read_dataset(outcomes), {}, {}))


def own_names(request: LiveRequest) -> tuple[str, ...]:
    """The metrics of a project's own that the rules name."""
    return tuple(filter(is_own, request.rules.metrics))


@stage(
    "evaluate_live",
    title="Compare on live outcomes",
    pages={"live-evaluations": "gatehouse.registry.live_report:page"},
    outside=lambda request: builder_code(*own_names(request)),
)
def evaluate_live(request: LiveRequest, store: ArtifactStore) -> LiveResult:
    """Compare champion and canary on the outcomes of the rows that they answered: promote, go on, or back.

    Raises ConfigurationError if log and outcomes have no keys in common, or the rules name what the task has not.
    """
    import numpy as np
    import pyarrow.parquet as pq

    from gatehouse.data.validation.sensitivity import sensitive_columns
    from gatehouse.metrics.catalogue import metrics_for
    from gatehouse.monitoring.live import judge, with_outcomes
    from gatehouse.monitoring.live_log import pseudonym
    from gatehouse.monitoring.scoring_stage import classes_of
    from gatehouse.training.predictor import Predictor

    manifest = store.manifest(request.log)
    champion = manifest.derived_from[CHAMPION]
    log, outcomes = (pq.ParquetDataset(store.paths(of)).read() for of in (request.log, request.outcomes))
    training_set = store.manifest(store.manifest(champion).derived_from["training_set"])
    keys = [name for name in ("request_id", "request_row") if name in outcomes.column_names]
    if "request_id" not in keys:
        entities = list(training_set.details.get("entity_keys", ()))
        keys = [*entities, *({"decision_time"} & {*outcomes.column_names})]
        if not entities:
            raise ConfigurationError("outcomes: expected a column request_id, as the training set has no entity keys.")
    for name in sensitive_columns(store, champion).intersection(keys, outcomes.column_names):
        hidden = [
            value if value is None else pseudonym(request.model_name, name, value)
            for value in outcomes[name].to_pylist()
        ]
        outcomes = outcomes.set_column(outcomes.schema.get_field_index(name), name, [hidden])
    horizon = request.rules.horizon.total_seconds() if request.rules.horizon else None
    table, facts = with_outcomes(log.sort_by("requested_at"), outcomes, keys, request.label_time, horizon)
    task, predictor = training_set.details.get("task", "binary"), Predictor.load(store, champion)
    labels, predictions = np.full(table.num_rows, np.nan), None
    if predictor.task.counted == "row" and request.label in table.column_names:
        labels = _labels(request, table, task, classes_of(store, champion))
        predictions = predictor.read(_predicted(table, predictor, len(classes_of(store, champion))))
    elif request.rules.metrics:
        raise ConfigurationError(
            f"live.metrics: expected a column {request.label} of the outcomes, and no ranking, found {task} and "
            f"{', '.join(outcomes.column_names)}. Compare columns of the outcomes with live.values."
        )
    metrics = metrics_for(task, filter(is_own, request.rules.metrics)) if predictions else {}
    if unknown := [name for name in request.rules.metrics if name not in metrics]:
        raise ConfigurationError(f"live.metrics: expected metrics of {task}, found {', '.join(unknown)}.")
    body = judge(table, request.rules, labels, predictions, metrics) | {"facts": facts, **manifest.details}
    if outcomes.num_rows and facts["outcomes without a row"] == outcomes.num_rows:
        keyed = ", ".join(keys)
        body["reasons"].append(f"no outcome belongs to a row of the log: other {keyed}, or known before the decision")
    evaluation = store.publish(
        "live-evaluations",
        request.model_name,
        {FILE: canonical_json(body)},
        derived_from={"log": request.log, "outcomes": request.outcomes, **manifest.derived_from},
        configuration={"rules": request.rules.model_dump(mode="json"), "label": request.label},
        details={**{name: body[name] for name in ("verdict", "reasons", "outcomes")}, **manifest.details},
    )
    return LiveResult(evaluation=str(evaluation), verdict=body["verdict"], reasons=tuple(body["reasons"]))


def _labels(request: LiveRequest, table: "pa.Table", task: Any, classes: tuple[str, ...]) -> Any:
    """The label of each row, NaN where it is not known, shape (rows,)."""
    import numpy as np
    import pyarrow as pa

    from gatehouse.evaluation.labelled_scores import LabelSpec, labels_of, named_classes

    known = np.asarray(table[request.label].is_valid().to_numpy(zero_copy_only=False))
    labels, rows = np.full(table.num_rows, np.nan), table.filter(known)
    if rows.num_rows:
        spec = LabelSpec(label=request.label, task=task, positive=request.positive)
        named = classes if pa.types.is_string(rows.schema.field(request.label).type) else ()
        if request.positive or (task == "binary" and not named):
            named = named_classes(spec, rows, {})
        labels[known] = labels_of(spec, rows, named)
    return labels


def _predicted(table: "pa.Table", predictor: Any, classes: int) -> Any:
    """The predictions of a log, NaN where there is none, shape (rows,) or (rows, classes)."""
    import numpy as np
    import pyarrow as pa

    if predictor.task.output not in table.column_names:  # No row has a prediction.
        return np.full((table.num_rows, classes) if classes > 2 else table.num_rows, np.nan)
    column = table[predictor.task.output].combine_chunks()
    if not pa.types.is_nested(column.type):
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    return np.array([values or [np.nan] * classes for values in column.to_pylist()], np.float64).reshape(-1, classes)
