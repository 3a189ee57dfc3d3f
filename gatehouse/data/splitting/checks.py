"""The leakage checks of a split: each has passed, failed, or could not run, and says why.

A promise of the strategy between two parts fails the split where it does not hold; the rest is looked at, and noted.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.distances import population_stability
from gatehouse.data.splitting.divide import PAIRS, PARTS, Partition, Parts, Rows, unit_of
from gatehouse.data.splitting.spec import (
    CheckName,
    EntitySplit,
    GroupSplit,
    KFoldSplit,
    RollingOriginSplit,
    Severity,
    SplitSpec,
    TimeSplit,
)
from gatehouse.data.splitting.stable_hash import Flags, Hashes, mix, seed_of
from gatehouse.data.splitting.training_set import Labels, Times, TrainingSet
from gatehouse.metrics.tasks import Task
from gatehouse.runtime.plural import counted

NAMES: tuple[CheckName, ...] = get_args(CheckName)
PASSED, FAILED, NOTED, COULD_NOT_RUN = "passed", "failed", "noted", "could not run"
USABLE = "parts"
"""The check that each part has rows, labels that differ, and times, without which nothing can leak."""
_MEANINGLESS = 0.2
"""Share of repeated rows from which on a part measures what a model remembers."""
_MOSTLY_KNOWN = 0.5
"""If at least this share of train has a value of a feature, a part without any value is reported."""
_COPIES = 0.05
"""Labels of rows with equal features are those of copies where they differ less than this, of what chance gives."""
Pair = tuple[str, str]
Finding = tuple[Pair | None, str]


class CannotRun(Exception):
    """A check lacks something; the text says what, and what to do."""


@dataclass(frozen=True)
class Check:
    """The outcome of one check: `passed`, `failed`, `noted` (a finding of severity `note`) or `could not run`.

    `required` says whether the configuration demands that it runs and passes.
    """

    name: str
    status: str
    severity: Severity
    messages: tuple[str, ...]
    required: bool = False

    @property
    def named_messages(self) -> tuple[str, ...]:
        """The findings, each with the check's name."""
        return tuple(f"{self.name}: {text}" for text in self.messages)

    @property
    def ends_the_run(self) -> bool:
        """Whether the split must not be published."""
        return self.severity == "fail" and (self.status == FAILED or (self.required and self.status == COULD_NOT_RUN))


@dataclass(frozen=True)
class Shared:
    """How many rows of the later part have the features of a row of the earlier one.

    Few coarse features are equal in many rows that are other events. The labels tell these from copies:
    `differ` is how often labels of rows with the same features differ, as a share of how often those of any two rows
    do. It is 0 among copies, and about 1 where the features do not tell the label.
    """

    earlier: str
    later: str
    rows: int
    repeated: int
    differ: float


def shared_rows(training_set: TrainingSet, parts: Parts, labels: Labels) -> list[Shared]:
    """Look for duplicates across all pairs of parts."""
    hashes, _ = training_set.hashes(training_set.features, seed_of(0, "features"))

    def of_labels(rows: Rows) -> Hashes:
        return mix(labels[rows].astype(np.float64).view(np.uint64))

    shared = []
    for earlier, later in combinations(PARTS, 2):
        before, after = parts[earlier], parts[later]
        seen, sought = np.sort(hashes[before]), hashes[after]
        same = np.zeros(len(after), np.bool_)
        if len(seen):
            # Searching sorted values in order keeps the search in the processor's cache.
            order = np.argsort(sought)
            places = np.minimum(np.searchsorted(seen, sought[order]), len(seen) - 1)
            same[order] = seen[places] == sought[order]
        differ, copies = 0.0, after[same]
        if len(copies):
            # The mean share of the earlier rows of a row's hash with another label, over that of all earlier rows.
            own, others = of_labels(copies), of_labels(before)
            chance = float(np.mean(1 - _counted(others, own) / len(before)))
            with_label = _counted(mix(hashes[before] ^ others), mix(hashes[copies] ^ own))
            alike = with_label / _counted(hashes[before], hashes[copies])
            differ = float(np.mean(1 - alike)) / chance if chance > 0 else 0.0
        shared.append(Shared(earlier, later, len(same), int(same.sum()), differ))
    return shared


def _counted(hashes: Hashes, values: Hashes) -> npt.NDArray[np.int64]:
    """How many of the hashes equal each value, shape (values,)."""
    ordered = np.sort(hashes)
    return np.searchsorted(ordered, values, "right") - np.searchsorted(ordered, values, "left")


@dataclass
class CheckedSplit:
    """The input of the checks: the rows, their parts, and values that several checks share, made when first asked."""

    spec: SplitSpec
    training_set: TrainingSet
    partition: Partition
    labels: Labels
    decision: Times | None
    label_time: Times | None
    _shared: list[Shared] | None = None

    @classmethod
    def of(cls, spec: SplitSpec, training_set: TrainingSet, partition: Partition) -> "CheckedSplit":
        """Read the columns that the checks share."""
        names = (training_set.decision_time, training_set.label_time)
        decision, label_time = (training_set.times(name) if training_set.has(name) else None for name in names)
        return cls(spec, training_set, partition, training_set.labels(), decision, label_time)

    @property
    def parts(self) -> Parts:
        """Train, validation and test."""
        return self.partition.parts

    def shared(self) -> list[Shared]:
        """Duplicates across the parts."""
        if self._shared is None:
            self._shared = shared_rows(self.training_set, self.parts, self.labels)
        return self._shared


def promised(spec: SplitSpec, training_set: TrainingSet) -> dict[CheckName, tuple[Pair, ...]]:
    """Between which parts the strategy promises what a check looks for."""
    match spec:
        case TimeSplit() | RollingOriginSplit():
            return {"time_order": PAIRS, "label_maturity": PAIRS}
        case EntitySplit() | GroupSplit():
            return _grouped(spec, training_set, PAIRS)
        case KFoldSplit():
            ahead = PAIRS[1:] if spec.test_from else ()
            in_time: dict[CheckName, tuple[Pair, ...]] = {"time_order": ahead, "label_maturity": ahead}
            together = PAIRS[:1] if spec.test_from else PAIRS
            return in_time | (_grouped(spec, training_set, together) if spec.unit in ("entity", "group") else {})
    return {}


def _grouped(spec: SplitSpec, training_set: TrainingSet, pairs: tuple[Pair, ...]) -> dict[CheckName, tuple[Pair, ...]]:
    """Rows of one entity agree in all its keys, so they are together wherever some of these decide."""
    inside = set(unit_of(spec, training_set)) <= set(training_set.entity_keys)
    return {"group_overlap": pairs, "entity_overlap": pairs} if inside else {"group_overlap": pairs}


def run_checks(split: CheckedSplit) -> list[Check]:
    """Run every check."""
    promises = promised(split.spec, split.training_set)
    # Parts and folds on which nothing can be fitted or measured, and times that make no sense.
    rows, task = split.training_set.rows, split.training_set.task
    problems = [*unusable(rows, split.labels, task, split.parts, split.decision)]
    if (left_out := split.partition.left_out.get("gap")) and not all(map(len, split.parts.values())):
        gap = (
            f"gap: {counted(left_out, 'row')} with a decision within {getattr(split.spec, 'gap', '')} before a boundary"
        )
        problems.append(f"{gap}, or a label that was not known then, are in no part: a shorter `split.gap` keeps more")
    for name, part in split.parts.items():
        problems += senseless_times(split.decision, split.label_time, name, part)
        group = split.training_set.manifest.details.get("group") if task.counted == "group" else ""
        if group and (without := int(split.training_set.hashes([group], 0)[1][part].sum())):
            problems.append(f"{name}: {counted(without, 'row')} without a {group}, by which rows are ranked together")
    for number, fold in split.partition.every_fold():
        if number < split.partition.folds - 1:
            problems += (f"fold {number}: {text}" for text in unusable(rows, split.labels, task, fold))
    usable = Check(USABLE, FAILED if problems else PASSED, "fail", tuple(problems), required=True)
    return [usable, *(_run(check, split, promises.get(check, ())) for check in NAMES)]


def _run(name: CheckName, split: CheckedSplit, promises: tuple[Pair, ...]) -> Check:
    configured = split.spec.checks.severity.get(name)
    findings: list[Finding] = []
    status, reasons = PASSED, []
    try:
        for finding in _CHECKS[name](split):
            findings.append(finding)  # Kept where the check cannot run to its end.
    except CannotRun as reason:
        status, reasons = COULD_NOT_RUN, [str(reason)]
    pairs = {pair for pair, _ in findings}
    broken = not pairs.isdisjoint(promises) if pairs else bool(promises)
    severity = configured or ("fail" if broken else _severity(name, split, pairs))
    if findings:
        status = NOTED if severity == "note" else FAILED
    messages = (*(text for _, text in findings), *reasons)
    return Check(name, status, severity, messages, required=configured == "fail" or bool(promises))


def _severity(name: CheckName, split: CheckedSplit, pairs: set[Pair | None]) -> Severity:
    """How bad a finding between these pairs is where the strategy does not promise them.

    Groups that the configuration names must not be on two sides, whatever the strategy promises: their pair is None.
    A part that mostly repeats another, labels too, measures nothing.
    """
    spec = split.spec
    if name == "duplicates" and pairs:
        repeated = (pair.repeated > _MEANINGLESS * pair.rows and pair.differ < _COPIES for pair in split.shared())
        return "fail" if any(repeated) else "warn"
    if name == "availability" or (name == "group_overlap" and spec.checks.groups and (not pairs or None in pairs)):
        return "fail"
    return "warn" if name == "duplicates" else "note"


def unusable(
    rows: int, labels: npt.NDArray[np.float64], task: Task, parts: Parts, decision: Times | None = None
) -> Iterator[str]:
    """Why a model cannot be fitted and measured on the parts: no rows, or labels that do not differ.

    `labels` are NaN where there is none, and `decision` are the decision times, both of shape (rows,).
    """
    timed = np.empty(0, "datetime64[s]") if decision is None else decision[~np.isnat(decision)].astype("datetime64[s]")
    span = f"; the decisions are from {timed.min()} to {timed.max()}" if len(timed) else ""
    for name, part in parts.items():
        if not len(part):
            yield f"{name}: has no rows of {rows:,}{span}"
    for name, part in parts.items():
        values = labels[part]
        if without := int(np.isnan(values).sum()):
            yield f"{name}: {counted(without, 'label')} other than {task.label}"
        elif len(values) and (lacking := task.lacks(values)):
            yield f"{name}: has {lacking}"
    if task.output == "probabilities":
        train, validation = (np.unique(labels[parts[name]]) for name in ("train", "validation"))
        unknown = np.setdiff1d(validation[~np.isnan(validation)], train)
        if len(unknown):
            shown = ", ".join(f"{value:g}" for value in unknown[:5])
            yield f"validation: has rows of classes that train lacks, {len(unknown):,} in all: {shown}"


def senseless_times(decision: Times | None, label: Times | None, name: str, rows: Rows) -> Iterator[str]:
    """Times of a part that are missing, and labels known before their decision; times in UTC, shape (rows,)."""
    for column, times in (("decision time", decision), ("label time", label)):
        missing = 0 if times is None else int(np.isnat(times[rows]).sum())
        if missing:
            yield f"{name}: {counted(missing, 'row')} without {column}"
    early = 0 if decision is None or label is None else int((label[rows] < decision[rows]).sum())
    if early:
        yield f"{name}: {counted(early, 'label')} with a time before the decision"


def _scopes(split: CheckedSplit) -> Iterator[tuple[str, tuple[Pair, ...], Parts]]:
    """The parts, then each fold but the last, whose parts are those of the split."""
    yield "", PAIRS, split.parts
    for number, fold in split.partition.every_fold():
        if number < split.partition.folds - 1:
            yield f"fold {number}: ", PAIRS[:1], fold


def _time_order(split: CheckedSplit) -> Iterator[Finding]:
    decision = split.decision
    if decision is None:
        raise CannotRun(f"the training set has no column {split.training_set.decision_time}")
    for where, pairs, parts in _scopes(split):
        for pair in pairs:
            yield from ((pair, where + text) for text in decisions_out_of_order(decision, *pair, parts))


def decisions_out_of_order(decision: Times, earlier: str, later: str, parts: Parts) -> Iterator[str]:
    """Decisions of the earlier part that are not before every decision of the later one."""
    decided, following = (times[~np.isnat(times)] for times in (decision[parts[earlier]], decision[parts[later]]))
    if len(decided) and len(following) and (behind := int((decided >= following.min()).sum())):
        last = f"{counted(behind, 'decision')} of {earlier} (last: {_text(decided.max())})"
        yield f"{last} not before the first of {later} ({_text(following.min())})"


def _label_maturity(split: CheckedSplit) -> Iterator[Finding]:
    decision, label_time = split.decision, split.label_time
    if decision is None or label_time is None:
        names = (split.training_set.decision_time, split.training_set.label_time)
        missing = [name for name in names if not split.training_set.has(name)]
        raise CannotRun(f"the training set has no column {', '.join(missing)}")
    for where, pairs, parts in _scopes(split):
        for pair in pairs:
            yield from ((pair, where + text) for text in labels_out_of_order(decision, label_time, *pair, parts))


def labels_out_of_order(decision: Times, label: Times, earlier: str, later: str, parts: Parts) -> Iterator[str]:
    """Labels of the earlier part that were not known before the later part's first decision."""
    following = decision[parts[later]]
    following = following[~np.isnat(following)]
    if len(following) and (late := int((label[parts[earlier]] > following.min()).sum())):
        first = _text(following.min())
        yield f"{counted(late, 'label')} of {earlier} known only after the first decision of {later} ({first})"


def _text(time: np.datetime64) -> str:
    return str(time).removesuffix(".000000")


def _group_overlap(split: CheckedSplit) -> Iterator[Finding]:
    spec = split.spec
    grouped = isinstance(spec, EntitySplit | GroupSplit) or getattr(spec, "unit", "") in ("entity", "group")
    unit = unit_of(spec, split.training_set) if grouped else ()
    groups = list(dict.fromkeys([*([unit] if unit else []), *((name,) for name in spec.checks.groups)]))
    if not groups:
        raise CannotRun("the split names no groups: name columns in `checks.groups`")
    for columns in groups:
        for pair, text in _overlap(split, columns):
            # A strategy promises this for some pairs of parts; what the configuration names is to be in one part only.
            yield (None if columns[0] in spec.checks.groups and len(columns) == 1 else pair), text


def _overlap(split: CheckedSplit, columns: tuple[str, ...]) -> Iterator[Finding]:
    """Values that rows of two parts share; a row without a value shares none."""
    if not columns:
        raise CannotRun("the training set names no entity keys")
    hashes, missing = split.training_set.hashes(columns, 0)
    if missing.all():
        raise CannotRun(f"no row has a value in {', '.join(columns)}")
    for where, pairs, parts in _scopes(split):
        values = {name: np.unique(hashes[rows[~missing[rows]]], return_counts=True) for name, rows in parts.items()}
        for earlier, later in pairs:
            (seen, _), (tested, rows) = values[earlier], values[later]
            shared = np.isin(tested, seen, assume_unique=True, kind="sort")
            if shared.any():
                text = f"{shared.sum()} of the {len(tested)} values of {', '.join(columns)} in {later} are in {earlier}"
                yield (earlier, later), f"{where}{text} too; {rows[shared].sum()} rows of {later} have them"


def _duplicates(split: CheckedSplit) -> Iterator[Finding]:
    """Rows whose features are those of a row of an earlier part."""
    if not split.training_set.features:
        raise CannotRun("the training set does not say which of its columns are features")
    most = split.spec.checks.duplicates
    for shared in split.shared():
        if shared.repeated > most * shared.rows:
            share, allowed = f"{100 * shared.repeated / shared.rows:.2f} %", f"{100 * most:g} %"
            rows = f"{shared.repeated} of {shared.rows} rows of {shared.later} ({share}, at most {allowed})"
            labels = "differ as often as those of any two rows do, so these may be other events that look alike"
            if shared.differ < _COPIES:
                labels = "agree (nearly) always, as those of copies do"
            elif round(shared.differ, 2) < 1:
                labels = f"differ less often than those of any two rows do ({shared.differ:.2f} times as often)"
            text = f"{rows} have the features of a row of {shared.earlier}. Their labels {labels}"
            yield (shared.earlier, shared.later), text


def _availability(split: CheckedSplit) -> Iterator[Finding]:
    training_set = split.training_set
    availability = dict(training_set.manifest.details.get("availability", {})) | split.spec.checks.availability
    if not availability:
        raise CannotRun(
            "no column of the training set says when a feature was known: name them in `checks.availability`. "
            "The leakage report of the training set replays the features instead"
        )
    if split.decision is None:
        raise CannotRun(f"the training set has no column {training_set.decision_time}")
    training_set.require([*availability, *availability.values()])
    inside = np.zeros(training_set.rows, np.bool_)
    for rows in split.parts.values():
        inside[rows] = True
    for feature, column in sorted(availability.items()):
        times = training_set.times(column)
        late = inside & (times > split.decision)
        if late.any():
            worst = (times - split.decision)[late].max() / np.timedelta64(1, "s")
            rows_late = f"{feature} of {int(late.sum())} rows was known only after the decision"
            yield None, f"{rows_late}, up to {worst:g} s later"
        undated = inside & np.isnat(times) & ~training_set.hashes([feature], 0)[1]
        if undated.any():
            yield None, f"{feature} of {int(undated.sum())} rows has a value, but {column} does not say since when"
    remaining = [name for name in training_set.features if name not in availability]
    if remaining:
        names = ", ".join(remaining)
        raise CannotRun(f"{len(remaining)} features have no column that says when they were known: {names}")


_CHECKS: dict[CheckName, Callable[[CheckedSplit], Iterable[Finding]]] = {
    "time_order": _time_order,
    "label_maturity": _label_maturity,
    "group_overlap": _group_overlap,
    "entity_overlap": lambda split: _overlap(split, split.training_set.entity_keys),
    "duplicates": _duplicates,
    "availability": _availability,
}


def without_values(split: CheckedSplit) -> Iterator[str]:
    """A sentence for each feature that has no value in train, or none in another part though most of train has one."""
    training_set = split.training_set
    for feature in training_set.features:
        present: Flags = training_set.column(feature).is_valid().to_numpy()
        if feature in training_set.numeric:
            present = np.isfinite(training_set.numbers(feature))
        counts = {name: int(present[rows].sum()) for name, rows in split.parts.items()}
        if not counts["train"]:
            yield f"{feature}: no row of train has a value, so a model learns nothing from it"
        elif counts["train"] >= _MOSTLY_KNOWN * len(split.parts["train"]):
            yield from (
                f"{feature}: no row of {name} has a value, but most of train do: {name} measures a model that lacks it"
                for name in PARTS[1:]
                if not counts[name]
            )


MIN_ROWS = 500
_MOST_ROWS = 200_000

_QUANTILES, _CATEGORIES, _BINS = 32, 30, 60
_DIGITS = 6


def measures(split: CheckedSplit) -> dict[str, Any]:
    """The measures of a split as plain JSON.

    - `rows`: rows of the training set; `left_out`: rows in no part, by reason.
    - `level`: what the level of labels is. `parts`, and of each of `folds`: by part, its `rows`, `level` with the ends
      `low` and `high` of its 95 % interval, and where there are decision times the `first` and `last`, to the minute in
      UTC.
    - `psi`: by feature, as `feature_psi` gives it.
    """
    level = split.training_set.task.level
    return {
        "rows": split.training_set.rows,
        "left_out": dict(split.partition.left_out),
        "level": {"title": level.title, "is_share": level.is_share},
        "parts": {name: _part(split, split.parts[name]) for name in PARTS},
        "folds": [
            {name: _part(split, fold[name]) for name in ("train", "validation")}
            for _, fold in split.partition.every_fold()
        ],
        "psi": {name: feature_psi(split.training_set, name, split.parts) for name in split.training_set.features},
    }


def feature_psi(training_set: TrainingSet, name: str, parts: Parts) -> float | None:
    """Population stability index of a feature from train to test; None where one has fewer than `MIN_ROWS` rows.

    Missing values, zeros, the quantiles of other numbers in train, its frequent categories and all others are bins. At
    most 200,000 rows of a part are counted, evenly spaced.
    """
    train, test = (parts[part][:: max(1, -(-len(parts[part]) // _MOST_ROWS))] for part in ("train", "test"))
    if min(len(train), len(test)) < MIN_ROWS:
        return None
    placed: list[npt.NDArray[np.int64]] = []
    if name in training_set.categorical:
        column = training_set.column(name)
        texts = [pc.cast(column.take(rows), pa.large_string()) for rows in (train, test)]
        ranked = sorted((-row["counts"], row["values"]) for row in pc.value_counts(texts[0].drop_null()).to_pylist())
        frequent = pa.array([category for _, category in ranked[:_CATEGORIES]], pa.large_string())
        for values in texts:
            codes = pc.fill_null(pc.index_in(values, value_set=frequent), -1).to_numpy()
            placed.append(np.where(values.is_valid().to_numpy(), codes + 2, 0))
    else:
        numbers = training_set.numbers(name)
        fitted = numbers[train]
        fitted = fitted[np.isfinite(fitted) & (fitted != 0)]
        levels = np.linspace(0, 1, _QUANTILES + 1)[1:-1]
        edges = np.unique(np.quantile(fitted, levels, method="lower")) if len(fitted) else np.empty(0)
        for rows in (train, test):
            sample = numbers[rows]
            between = np.searchsorted(edges, sample, side="right") + 2
            placed.append(np.where(~np.isfinite(sample), 0, np.where(sample == 0, 1, between)))
    size = max(int(bins.max()) for bins in placed) + 1
    before, now = (np.bincount(bins, minlength=size) for bins in placed)
    return round(population_stability(before, now), _DIGITS)


def _part(split: CheckedSplit, rows: Rows) -> dict[str, Any]:
    level = split.training_set.task.level
    value, low, high = (
        round(bound, _DIGITS) for bound in level.of(split.labels[rows], split.labels[~np.isnan(split.labels)])
    )
    part: dict[str, Any] = {"rows": len(rows), "level": value, "low": low, "high": high}
    if split.decision is not None:
        times = split.decision[rows]
        part |= {"first": _minute(times.min()), "last": _minute(times.max())}
    return part


def _minute(moment: np.datetime64) -> str:
    return str(moment.astype("datetime64[m]")).replace("T", " ")
