"""Takes the rows out of the test part that a model was fitted on: it knows their labels, so they must not decide."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.data.splitting.parts import Part
from gatehouse.errors import CorruptArtifactError, ErasedArtifactError, GatehouseError, MissingArtifactError
from gatehouse.evaluation.gate import Seen
from gatehouse.evaluation.origins import is_erased, told_unread
from gatehouse.metrics.tasks.task import Task
from gatehouse.store.database import connect, out_of_memory, quoted
from gatehouse.store.hidden_values import said_by
from gatehouse.store.store import ArtifactStore

_FITTED_ON = ("train", "validation")
_DATA = ("training_set", "split")
Mask = npt.NDArray[np.bool_]


class UnreadableLineageError(GatehouseError):
    """A model does not tell which rows it was fitted on, or these cannot be held against the test rows."""


def unseen_part(
    store: ArtifactStore, part: Part, training_set: str, split: str, models: Mapping[str, str], task: Task
) -> tuple[Part, Seen]:
    """The test part without the rows that a model was fitted on, and what was taken out.

    Groups of a ranking go whole. Where the rest cannot be measured on, the part stays as it is; the gate lets no rule
    decide by it then.

    Args:
        store: Where the models and their data are.
        part: The test part, of which `training_set` and `split` are the references.
        training_set: That holds its rows.
        split: Whose parts have no row in common.
        models: References by role; empty for none.
        task: Says what labels lack to be judged on.
    """
    taken, rows, unread, passing = np.zeros(len(part.rows), bool), {}, [], False
    for role, model in models.items():
        if not model:
            continue
        try:
            own = _seen_by(store, model, part, (training_set, split))
        except (UnreadableLineageError, MissingArtifactError, CorruptArtifactError, ErasedArtifactError) as error:
            unread.append(f"{role}: {told_unread(error)}")
            passing |= not is_erased(error)
        else:
            rows[role], taken = int(own.sum()), taken | own
    if not taken.any():
        return part, Seen(rows, len(part.rows), len(part.rows), "", tuple(unread), passing)
    if part.groups is not None:
        taken = np.isin(part.groups, part.groups[taken])
    left = part.take(np.flatnonzero(~taken))
    lacking = task.lacks(left.labels) if len(left.rows) else "no rows"
    return part if lacking else left, Seen(rows, len(part.rows), len(left.rows), lacking, tuple(unread), passing)


def _seen_by(store: ArtifactStore, model: str, part: Part, judged_by: tuple[str, str]) -> Mask:
    """Which rows of the part the model was fitted on, shape (rows,)."""
    seen = np.zeros(len(part.rows), bool)
    for training_set, split in sorted(_fits(store, model) - {judged_by}):
        seen |= _in_common(store, part, judged_by[0], training_set, split)
    return seen


def _fits(store: ArtifactStore, model: str) -> set[tuple[str, str]]:
    """Training set and split of a model and of all that was fitted for it: a transformation, a model under this one."""
    found, pending, met = set(), [model], {model}
    while pending:
        reference = pending.pop()
        inputs = store.manifest(reference).derived_from
        if missing := [role for role in _DATA if role not in inputs]:
            raise UnreadableLineageError(
                f"{reference} does not name its {' and '.join(missing)}. Train it anew with this version."
            )
        found.add((inputs["training_set"], inputs["split"]))
        further = {each for role, each in inputs.items() if role not in _DATA} - met
        pending, met = [*pending, *further], met | further
    return found


def _in_common(store: ArtifactStore, part: Part, judged: str, training_set: str, split: str) -> Mask:
    """Which rows of the part have the keys of rows that this split trains or validates on."""
    import duckdb

    if (divided := store.manifest(split).derived_from.get("training_set", "")) != training_set:
        raise UnreadableLineageError(f"{split} divides {divided or 'nothing'}, expected {training_set}.")
    details = store.manifest(judged).details
    keys = [*details.get("entity_keys", ()), *filter(None, [details.get("decision_time", "")])]
    paths = store.paths(training_set)
    held = {name for path in paths for name in pq.read_schema(path).names}
    if not keys or not paths or not {*keys} <= held & {*part.table.column_names}:
        raise UnreadableLineageError(
            f"expected rows with the keys {', '.join(keys) or 'none'} of {judged}, found the columns "
            f"{', '.join(sorted(held)) or 'none'} in {training_set}. Judge on a training set with keys that both have."
        )
    columns = {f"k{number}": part.table[key] for number, key in enumerate(keys)}
    test = pa.table(columns | {"place": pa.array(np.arange(len(part.rows)))})
    seen, start = np.zeros(len(part.rows), bool), 0
    indices = [str(store.path(split, f"{name}.parquet")) for name in _FITTED_ON]
    try:
        with connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            database.register("test", test)
            for path in paths:
                places = database.execute(_query(keys), [str(path), start, indices]).fetchnumpy()["place"]
                seen[places] = True
                start += pq.read_metadata(path).num_rows
    except duckdb.Error as error:
        if short := out_of_memory(error, "Looking for test rows that a model was fitted on"):
            raise short from error
        raise UnreadableLineageError(
            f"expected values of {', '.join(keys)} that can be compared with those of {judged}, found other types in "
            f"{training_set}: {said_by(error).partition(' LINE ')[0]}"
        ) from error
    return seen


def _query(keys: Sequence[str]) -> str:
    """Places of test rows whose keys a file holds among rows of the indices; a missing value is like another one."""
    names = list(map(quoted, keys))
    equal = " AND ".join(f"test.k{number} IS NOT DISTINCT FROM fitted.{key}" for number, key in enumerate(names))
    return f"""
        SELECT place FROM test SEMI JOIN (
            SELECT {", ".join(names)} FROM read_parquet(?, file_row_number = true)
            WHERE file_row_number + ? IN (SELECT "row" FROM read_parquet(?))
        ) AS fitted ON {equal}
    """
