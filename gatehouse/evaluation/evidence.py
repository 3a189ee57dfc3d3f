"""Evidence besides measurements: seen test rows, the candidate's lineage, checks of its data, its suite."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.data.splitting.parts import Part
from gatehouse.errors import (
    ConfigurationError,
    CorruptArtifactError,
    ErasedArtifactError,
    GatehouseError,
    MissingArtifactError,
)
from gatehouse.evaluation.gate import DATA_CHECKS, NOT_TRIED, DataCheck, FittedTestRows, Origins, Suite
from gatehouse.evaluation.spec import GOLDEN, NOT_CHECKED, SUITE_FILE, reasons_of
from gatehouse.metrics.tasks import Task
from gatehouse.store.database import connect, out_of_memory, quoted
from gatehouse.store.hidden_values import error_words
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.training.model_spec import learned_parts

if TYPE_CHECKING:
    from gatehouse.training.predictor import Predictor

_LINEAGE = ("snapshots", "config", "feature-tables", "training-sets", "splits")
"""Kinds of artifacts that every model of a pipeline is made from."""
_UNREADABLE = (MissingArtifactError, CorruptArtifactError, ErasedArtifactError)
_FITTED_ON = ("train", "validation")
_DATA = ("training_set", "split")
Mask = npt.NDArray[np.bool_]


class UnreadableLineageError(GatehouseError):
    """A model's training rows are unknown, or cannot be compared with the test rows."""


def _reason(error: GatehouseError) -> str:
    """Why something cannot be read. The words for an erased artifact are fixed, because they are data."""
    return "it was erased from the store" if isinstance(error, ErasedArtifactError) else str(error)


def origins_of(store: ArtifactStore, model: str, training_set: str, split: str, split_checks: str) -> Origins:
    """What is known of the data that a candidate was made from; it does not depend on the clock."""
    missing, transient = _missing(store, model)
    try:
        checked = store.manifest(split_checks).derived_from.get("split") if split_checks else ""
        inputs = store.manifest(model).derived_from
        if not split_checks:
            return Origins(missing, "the evaluation was given no checks of the split", transient=transient)
        if checked != split:
            return Origins(missing, f"{split_checks} checked {checked or 'no split'}, not {split}", transient=transient)
        if (inputs.get("training_set"), inputs.get("split")) != (training_set, split):
            why = "the candidate was trained on another split than it is judged on"
            return Origins(missing, why, transient=transient)
        checks = store.read_json(split_checks, "checks.json")
    except _UNREADABLE as error:
        return Origins(missing, _reason(error), transient=not isinstance(error, ErasedArtifactError))
    learned = learned_parts(store.manifest(model).configuration)
    last = {name: part.get("last") for name, part in checks["parts"].items() if name in (*learned, "test")}
    age = None
    if all(last.values()):
        moments = {name: datetime.fromisoformat(text) for name, text in last.items()}
        age = (moments["test"] - max(moments[name] for name in learned)).total_seconds() / 86_400
    return Origins(missing, "", age, checks["psi"], transient)


def _missing(store: ArtifactStore, model: str) -> tuple[tuple[str, ...], bool]:
    """Kinds of artifacts that the candidate's lineage lacks, or why it cannot be read and whether it may be later."""
    made_from, pending = set[str](), [model]
    try:
        while pending:
            parents = store.manifest(pending.pop()).derived_from.values()
            pending.extend(set(parents) - made_from)
            made_from.update(parents)
    except _UNREADABLE as error:
        return (_reason(error),), not isinstance(error, ErasedArtifactError)
    kinds = {Reference.parse(reference).kind for reference in made_from}
    return tuple(f"no {kind}" for kind in _LINEAGE if kind not in kinds), False


def data_checks(store: ArtifactStore, references: Mapping[str, str], training_set: str) -> tuple[DataCheck, ...]:
    """Verdicts and warnings of the checks of the data; a check without a reference was not given.

    Raises ConfigurationError if one of them checked other data than this training set, or its snapshot.
    """
    checks = []
    snapshot = store.manifest(training_set).derived_from.get("snapshot", "")
    for name in DATA_CHECKS:
        title = name.replace("_", " ")
        if not (reference := references.get(name)):
            checks.append(DataCheck(title, NOT_CHECKED, ("was not given",)))
            continue
        manifest = store.manifest(reference)
        role, expected = ("snapshot", snapshot) if name == "validation" else ("training_set", training_set)
        if manifest.derived_from.get(role) != expected:
            raise ConfigurationError(
                f"{name}: expected a check of {expected or 'the snapshot that the training set names'}, found "
                f"{reference}, a check of {manifest.derived_from.get(role, 'other data')}."
            )
        checks.append(DataCheck(title, manifest.details["verdict"], tuple(manifest.details["warnings"])))
    return tuple(checks)


def suite_of(store: ArtifactStore, reference: str, model: str, split: str, candidate: "Predictor", part: Part) -> Suite:
    """The result of the integration suite, which fails if the candidate scores a golden row differently here.

    Rows that were removed from the test part, because a model was fitted on them, are not compared. Raises
    ConfigurationError if the suite tested another model, or other rows.
    """
    if not reference:
        return NOT_TRIED
    manifest = store.manifest(reference)
    for role, expected in (("model", model), ("split", split)):
        if (tested := manifest.derived_from.get(role)) != expected:
            raise ConfigurationError(
                f"integration: expected the integration tests of the {role} {expected}, found {reference}, which "
                f"tested {tested}."
            )
    reasons = reasons_of(store.read_json(reference, SUITE_FILE))
    suite = Suite(manifest.details["verdict"], online=manifest.details.get("online", ""), **reasons)
    golden = pq.read_table(store.path(reference, GOLDEN))
    expected_scores = dict(zip(golden["row"].to_pylist(), golden["prediction"].to_pylist(), strict=True))
    places = np.flatnonzero(np.isin(part.rows, list(expected_scores)))
    if not len(places):
        unchecked = f"golden batch: none of its rows is judged on ({NOT_CHECKED})"
        return replace(suite, warnings=(*suite.warnings, unchecked))
    scores = candidate.predict(part.take(places).table).tolist()
    wrong = sum(expected_scores[row] != score for row, score in zip(part.rows[places].tolist(), scores, strict=True))
    if not wrong:
        return suite
    why = f"golden batch: {wrong} of {len(places)} rows score otherwise in the evaluation"
    return replace(suite, verdict="fail", reasons=(*suite.reasons, why))


def unseen_part(
    store: ArtifactStore, part: Part, training_set: str, split: str, models: Mapping[str, str], task: Task
) -> tuple[Part, FittedTestRows]:
    """The test part without the rows that one of the models, by role, was fitted on, and how many were removed.

    Groups of a ranking are removed whole. If the rest cannot be measured on, the part stays as it is, and the gate lets
    no rule decide by it.
    """
    taken, rows, unread, transient = np.zeros(len(part.rows), bool), {}, [], False
    for role, model in models.items():
        if not model:
            continue
        try:
            seen = np.zeros(len(part.rows), bool)
            for fitted_set, fitted_split in sorted(_fits(store, model) - {(training_set, split)}):
                seen |= _in_common(store, part, training_set, fitted_set, fitted_split)
        except (UnreadableLineageError, *_UNREADABLE) as error:
            unread.append(f"{role}: {_reason(error)}")
            transient |= not isinstance(error, ErasedArtifactError)
        else:
            rows[role], taken = int(seen.sum()), taken | seen
    if not taken.any():
        return part, FittedTestRows(rows, len(part.rows), len(part.rows), "", tuple(unread), transient)
    if part.groups is not None:
        taken = np.isin(part.groups, part.groups[taken])
    left = part.take(np.flatnonzero(~taken))
    lacking = task.lacks(left.labels) if len(left.rows) else "no rows"
    return part if lacking else left, FittedTestRows(
        rows, len(part.rows), len(left.rows), lacking, tuple(unread), transient
    )


def _fits(store: ArtifactStore, model: str) -> set[tuple[str, str]]:
    """Training set and split of a model, of its transformation, and of the model below a calibrated one."""
    fits, pending, met = set(), [model], {model}
    while pending:
        reference = pending.pop()
        inputs = store.manifest(reference).derived_from
        if missing := [role for role in _DATA if role not in inputs]:
            raise UnreadableLineageError(f"{reference} does not name its {' and '.join(missing)}. Train it again.")
        fits.add((inputs["training_set"], inputs["split"]))
        further = {parent for role, parent in inputs.items() if role not in _DATA} - met
        pending, met = [*pending, *further], met | further
    return fits


def _in_common(store: ArtifactStore, part: Part, judged: str, training_set: str, split: str) -> Mask:
    """Which rows of the part have the keys of rows that this split trains or validates on, shape (rows,)."""
    import duckdb

    if (divided := store.manifest(split).derived_from.get("training_set", "")) != training_set:
        raise UnreadableLineageError(f"{split} divides {divided or 'nothing'}, expected {training_set}.")
    details = store.manifest(judged).details
    keys = [*details.get("entity_keys", ()), *filter(None, [details.get("decision_time", "")])]
    paths = store.paths(training_set)
    columns = {name for path in paths for name in pq.read_schema(path).names}
    if not keys or not paths or not {*keys} <= columns & {*part.columns.column_names}:
        raise UnreadableLineageError(
            f"expected rows with the keys {', '.join(keys) or 'none'} of {judged}, found the columns "
            f"{', '.join(sorted(columns)) or 'none'} in {training_set}."
        )
    test = pa.table(
        {f"k{number}": part.columns[key] for number, key in enumerate(keys)}
        | {"place": pa.array(np.arange(len(part.rows)))}
    )
    names = list(map(quoted, keys))
    # A missing value equals another missing one.
    equal = " AND ".join(f"test.k{number} IS NOT DISTINCT FROM fitted.{key}" for number, key in enumerate(names))
    query = f"""
        SELECT place FROM test SEMI JOIN (
            SELECT {", ".join(names)} FROM read_parquet(?, file_row_number = true)
            WHERE file_row_number + ? IN (SELECT "row" FROM read_parquet(?))
        ) AS fitted ON {equal}
    """
    seen, start = np.zeros(len(part.rows), bool), 0
    indices = [str(store.path(split, f"{name}.parquet")) for name in _FITTED_ON]
    try:
        with connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            database.register("test", test)
            for path in paths:
                seen[database.execute(query, [str(path), start, indices]).fetchnumpy()["place"]] = True
                start += pq.read_metadata(path).num_rows
    except duckdb.Error as error:
        if short := out_of_memory(error, "Looking for test rows that a model was fitted on"):
            raise short from error
        raise UnreadableLineageError(
            f"expected values of {', '.join(keys)} that can be compared with those of {judged}, found other types in "
            f"{training_set}: {error_words(error).partition(' LINE ')[0]}"
        ) from error
    return seen
