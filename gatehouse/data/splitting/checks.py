"""The leakage checks: each has passed, failed, or could not run, and says why.

What a strategy promises between two parts fails the split where it does not hold; the rest is looked at, and noted.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from gatehouse.data.splitting.divide import unit_of
from gatehouse.data.splitting.duplicates import COPIES, Shared, shared_rows
from gatehouse.data.splitting.geography import near_pairs
from gatehouse.data.splitting.outcome import COULD_NOT_RUN, FAILED, NOTED, PASSED, USABLE, Check
from gatehouse.data.splitting.partition import PAIRS, PARTS, Partition, Parts
from gatehouse.data.splitting.profile import MIN_ROWS, Profile, profile_of, sampled
from gatehouse.data.splitting.refusal.empty_parts import empty_parts
from gatehouse.data.splitting.refusal.empty_shares import empty_shares
from gatehouse.data.splitting.spec import (
    CheckName,
    Checks,
    EntitySplit,
    GeographicSplit,
    GroupSplit,
    KFoldSplit,
    RandomSplit,
    RollingOriginSplit,
    Severity,
    SplitSpec,
    StratifiedSplit,
    TimeSplit,
)
from gatehouse.data.splitting.stable_hash import Flags, Hashes, mix
from gatehouse.data.splitting.time_order import decisions_out_of_order, labels_out_of_order, senseless_times, unusable
from gatehouse.data.splitting.training_set import Labels, Times, TrainingSet
from gatehouse.data.splitting.unnamed_groups import may_name, unnamed_groups
from gatehouse.metrics.tasks.outcomes import outcomes

NAMES: tuple[CheckName, ...] = get_args(CheckName)
_POINTS = 20_000
_MEANINGLESS = 0.2
"""Share of repeated rows from which on a part measures what a model remembers."""
_CONCLUSIVE = 0.8
"""What the ROC AUC of a feature must be above at least, by its interval, for a part of few rows to tell anything."""
_THRESHOLDS = ("psi", "single_feature_auc")

Pair = tuple[str, str]
Finding = tuple[Pair | None, str]
Remark = str  # Said of a check that passed, such as what it covers.


class CannotRun(Exception):
    """What a check needs is not there; the text says what, and what to do."""


@dataclass
class Subject:
    """What the checks look at: the rows, their parts, and what several checks share, made when first asked."""

    spec: SplitSpec
    training_set: TrainingSet
    partition: Partition
    labels: Labels
    decision: Times | None
    label_time: Times | None
    _profiles: dict[str, Profile] = field(default_factory=dict)
    _shared: list[Shared] | None = None

    @property
    def parts(self) -> Parts:
        """Train, validation and test."""
        return self.partition.parts

    def profiles(self) -> dict[str, Profile]:
        """The features' profiles, and that of the decision time, by name."""
        if not self._profiles:
            rows = sampled(self.parts)
            labels = np.nan_to_num(self.labels)  # Rows without one are in no part, or the parts are refused.
            outcome = outcomes(self.training_set.task, labels, labels[self.parts["train"]])
            timed = [self.training_set.decision_time] if self.decision is not None else []
            for name in (*self.training_set.features, *timed):
                self._profiles[name] = profile_of(self.training_set, name, outcome, rows)
        return self._profiles

    def shared(self) -> list[Shared]:
        """Duplicates across the parts.

        Raises:
            CannotRun: if no column of the training set is said to be a feature.
        """
        if not self.training_set.features:
            raise CannotRun("the training set does not say which of its columns are features")
        if self._shared is None:
            self._shared = shared_rows(self.training_set, self.parts, self.spec.checks.near, self.labels)
        return self._shared

    def hashes(self, columns: tuple[str, ...]) -> tuple[Hashes, Flags]:
        """Hash of each row's values in these columns, and whether one is missing; shape (rows,)."""
        return self.training_set.hashes(columns, 0)


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
        case GeographicSplit() if spec.buffer_km:
            return {"geographic_neighbours": PAIRS}
    return {}


def _grouped(spec: SplitSpec, training_set: TrainingSet, pairs: tuple[Pair, ...]) -> dict[CheckName, tuple[Pair, ...]]:
    """Rows of one entity agree in all its keys, so they are together wherever some of these decide."""
    unit = unit_of(spec, training_set)
    inside = set(unit) <= set(training_set.entity_keys)
    return {"group_overlap": pairs, "entity_overlap": pairs} if inside else {"group_overlap": pairs}


def run_checks(subject: Subject) -> list[Check]:
    """Run every check."""
    promises = promised(subject.spec, subject.training_set)
    problems = tuple(_unusable(subject))
    usable = Check(USABLE, FAILED if problems else PASSED, "fail", problems, required=True)
    return [usable, *(_run(name, subject, promises.get(name, ())) for name in NAMES)]


def _run(name: CheckName, subject: Subject, promises: tuple[Pair, ...]) -> Check:
    wanted = subject.spec.checks.severity.get(name)
    findings: list[Finding] = []
    remarks: list[str] = []
    status = PASSED
    try:
        for one in _CHECKS[name](subject):
            if isinstance(one, Remark):
                remarks.append(one)
            else:
                findings.append(one)
    except CannotRun as reason:
        status = COULD_NOT_RUN
        remarks.append(str(reason))
    pairs = {pair for pair, _ in findings}
    broken = not pairs.isdisjoint(promises) if pairs else bool(promises)
    severity = wanted or ("fail" if broken else _severity(name, subject, pairs))
    # What was found stays found, also where a check could not run to its end.
    if findings:
        status = NOTED if severity == "note" else FAILED
    said = (*(text for _, text in findings), *remarks)
    return Check(name, status, severity, said, required=wanted == "fail" or bool(promises))


def _severity(name: CheckName, subject: Subject, pairs: set[Pair | None]) -> Severity:
    """How bad a finding between these pairs is where the strategy does not promise them.

    Groups that the configuration names must not be on two sides, whatever the strategy promises: their pair is None.
    A part that mostly repeats another, labels too, measures nothing.
    """
    spec = subject.spec
    if name == "duplicates" and pairs and any(map(_measures_nothing, subject.shared())):
        return "fail"
    if name == "availability" or (name == "group_overlap" and spec.checks.groups and (not pairs or None in pairs)):
        return "fail"
    if name in ("duplicates", "near_duplicates", "single_feature"):
        return "warn"
    if name == "geographic_neighbours" and spec.checks.neighbours_km:
        return "warn"
    if name == "unnamed_groups":
        return "note" if isinstance(spec, TimeSplit | RollingOriginSplit) else "warn"
    by_row = isinstance(spec, RandomSplit | StratifiedSplit) or (isinstance(spec, KFoldSplit) and not spec.test_from)
    return "warn" if name == "decision_time_drift" and by_row else "note"


def _measures_nothing(shared: Shared) -> bool:
    return shared.exact > _MEANINGLESS * shared.rows and shared.differ < COPIES


def _unusable(subject: Subject) -> Iterator[str]:
    """Parts and folds on which nothing can be fitted or measured, and times that make no sense."""
    rows, decision, known = subject.training_set.rows, subject.decision, subject.label_time
    task = subject.training_set.task
    by_time, empty = isinstance(subject.spec, TimeSplit | RollingOriginSplit), dict[str, str]()
    if isinstance(subject.spec, TimeSplit | RollingOriginSplit) and decision is not None and known is not None:
        empty = empty_parts(decision, known, subject.spec)
    elif not by_time:
        empty = empty_shares(subject.spec, subject.training_set, subject.parts)
    yield from unusable(rows, subject.labels, task, subject.parts, empty)
    for name, part in subject.parts.items():
        yield from senseless_times(decision, known, name, part)
    for number, fold in subject.partition.every_fold():
        if number < subject.partition.folds - 1:
            told_before = by_time or bool(empty)
            why = {} if told_before else empty_shares(subject.spec, subject.training_set, fold)
            empty = empty or why
            yield from (f"fold {number}: {text}" for text in unusable(rows, subject.labels, task, fold, why))


def _scopes(subject: Subject) -> Iterator[tuple[str, tuple[Pair, ...], Parts]]:
    """The parts, then each fold but the last, whose parts are those of the split."""
    yield "", PAIRS, subject.parts
    for number, fold in subject.partition.every_fold():
        if number < subject.partition.folds - 1:
            yield f"fold {number}: ", PAIRS[:1], fold


def _time_order(subject: Subject) -> Iterator[Finding | Remark]:
    if subject.decision is None:
        raise CannotRun(f"the training set has no column {subject.training_set.decision_time}")
    for where, pairs, parts in _scopes(subject):
        for pair in pairs:
            texts = decisions_out_of_order(subject.decision, *pair, parts)
            yield from ((pair, where + text) for text in texts)


def _label_maturity(subject: Subject) -> Iterator[Finding | Remark]:
    if subject.decision is None or subject.label_time is None:
        names = (subject.training_set.decision_time, subject.training_set.label_time)
        missing = [name for name in names if not subject.training_set.has(name)]
        raise CannotRun(f"the training set has no column {', '.join(missing)}")
    for where, pairs, parts in _scopes(subject):
        for pair in pairs:
            late = labels_out_of_order(subject.decision, subject.label_time, *pair, parts)
            yield from ((pair, where + text) for text in late)


def _named_groups(subject: Subject) -> list[tuple[str, ...]]:
    """The columns of the strategy's groups, and of each that `checks.groups` names."""
    spec = subject.spec
    grouped = isinstance(spec, EntitySplit | GroupSplit) or (
        isinstance(spec, KFoldSplit) and spec.unit in ("entity", "group")
    )
    unit = unit_of(spec, subject.training_set) if grouped else ()
    return list(dict.fromkeys([*([unit] if unit else []), *((name,) for name in spec.checks.groups)]))


def _group_overlap(subject: Subject) -> Iterator[Finding | Remark]:
    spec = subject.spec
    if not (units := _named_groups(subject)):
        raise CannotRun("the split names no groups: name columns in `checks.groups`")
    for columns in units:
        for pair, text in _overlap(subject, columns):
            # A strategy promises this for some pairs of parts; what the configuration names is to be in one part only.
            yield (None if columns[0] in spec.checks.groups and len(columns) == 1 else pair), text


def _unnamed_groups(subject: Subject) -> Iterator[Finding | Remark]:
    named = {name for columns in _named_groups(subject) for name in columns}
    columns = [name for name in may_name(subject.training_set) if name not in named]
    if not columns:
        raise CannotRun("the training set has no column of whole numbers or texts beside keys, label and named groups")
    yield from ((None, str(one)) for one in unnamed_groups(subject.training_set, subject.parts, columns))


def _entity_overlap(subject: Subject) -> Iterator[Finding | Remark]:
    if not subject.training_set.entity_keys:
        raise CannotRun("the training set names no entity keys")
    yield from _overlap(subject, subject.training_set.entity_keys)


def _overlap(subject: Subject, columns: tuple[str, ...]) -> Iterator[Finding]:
    """Values that rows of two parts share; a row without a value shares none."""
    hashes, missing = subject.hashes(columns)
    if missing.all():
        raise CannotRun(f"no row has a value in {', '.join(columns)}")
    for where, pairs, parts in _scopes(subject):
        values = {name: _counted(hashes[rows[~missing[rows]]]) for name, rows in parts.items()}
        for earlier, later in pairs:
            (held, _), (asked, rows) = values[earlier], values[later]
            shared = np.isin(asked, held, assume_unique=True, kind="sort")
            if shared.any():
                text = f"{shared.sum()} of the {len(asked)} values of {', '.join(columns)} in {later} are in {earlier}"
                yield (earlier, later), f"{where}{text} too; {rows[shared].sum()} rows of {later} have them"


def _counted(hashes: Hashes) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """The different hashes, and how many rows have each; sorting is faster than numpy's own way for so many."""
    ordered = np.sort(hashes)
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.empty(0, np.int64)
    return ordered[starts], np.diff(np.append(starts, len(ordered)))


def _duplicates(subject: Subject) -> Iterator[Finding | Remark]:
    yield from _repeated(subject, subject.spec.checks.duplicates, "exact", "the features of")


def _near_duplicates(subject: Subject) -> Iterator[Finding | Remark]:
    yield from _repeated(subject, subject.spec.checks.near_duplicates, "near", "nearly the features of")


def _repeated(subject: Subject, most: float, kind: str, words: str) -> Iterator[Finding | Remark]:
    for one in subject.shared():
        count = getattr(one, kind)
        if count > most * one.rows:
            share, allowed = f"{100 * count / one.rows:.2f} %", f"{100 * most:g} %"
            text = f"{count} of {one.rows} rows of {one.later} ({share}, at most {allowed}) have {words} a row of "
            told = f". {one.of_labels}" if kind == "exact" else ""
            yield (one.earlier, one.later), text + one.earlier + told


def _single_feature(subject: Subject) -> Iterator[Finding | Remark]:
    areas = {name: subject.profiles()[name].auc() for name in subject.training_set.features}
    if not areas:
        raise CannotRun("the training set does not say which of its columns are features")
    alarm = subject.spec.checks.single_feature_auc
    unsure = []
    for name, area in sorted(areas.items()):
        if area is None:
            raise CannotRun("train and validation need rows with different labels")
        if area.value > alarm and area.low > _CONCLUSIVE:
            text = f"{name} alone tells the label of validation with ROC AUC {area.value:.3f}, more than {alarm:g}: "
            yield None, text + "it may hold the outcome"
        elif area.high > alarm and area.low <= _CONCLUSIVE:
            unsure.append(f"{name} ({area.low:.2f} to {area.high:.2f})")
    if unsure:
        raise CannotRun(f"validation has too few rows to tell a leak from chance: ROC AUC of {', '.join(unsure)}")


def _availability(subject: Subject) -> Iterator[Finding | Remark]:
    training_set = subject.training_set
    known = dict(training_set.manifest.details.get("availability", {})) | subject.spec.checks.availability
    if not known:
        raise CannotRun(
            "no column of the training set says when a feature was known: name them in `checks.availability`. "
            "The leakage report of the training set replays the features instead"
        )
    if subject.decision is None:
        raise CannotRun(f"the training set has no column {training_set.decision_time}")
    training_set.require([*known, *known.values()])
    inside = np.zeros(training_set.rows, np.bool_)
    for rows in subject.parts.values():
        inside[rows] = True
    for feature, column in sorted(known.items()):
        times = training_set.times(column)
        late = inside & (times > subject.decision)
        if late.any():
            worst = (times - subject.decision)[late].max() / np.timedelta64(1, "s")
            yield (
                None,
                f"{feature} of {int(late.sum())} rows was known only after the decision, up to {worst:g} s later",
            )
        untold = inside & np.isnat(times) & ~training_set.hashes([feature], 0)[1]
        if untold.any():
            yield None, f"{feature} of {int(untold.sum())} rows has a value, but {column} does not say since when"
    others = [name for name in training_set.features if name not in known]
    if others:
        raise CannotRun(f"{len(others)} features have no column that says when they were known: {', '.join(others)}")


def _geographic_neighbours(subject: Subject) -> Iterator[Finding | Remark]:
    spec, checks = subject.spec, subject.spec.checks
    if isinstance(spec, GeographicSplit):
        names, distance = (spec.latitude, spec.longitude), spec.buffer_km
    else:
        names, distance = (checks.latitude, checks.longitude), checks.neighbours_km
    if not all(names) or not distance:
        raise CannotRun(
            "no distance or no place is configured: set `buffer_km`, or `checks.neighbours_km` with latitude and "
            "longitude"
        )
    subject.training_set.require(names)
    columns = np.stack([subject.training_set.numbers(name) for name in names], axis=1)
    places = {name: _places(columns[subject.parts[name]]) for name in PARTS}
    nowhere = [name for name in PARTS if not len(places[name])]
    if nowhere:
        raise CannotRun(f"no row of {', '.join(nowhere)} has a place in {', '.join(names)}")
    for earlier, later in PAIRS:
        asked = places[later][:: max(1, -(-len(places[later]) // _POINTS))]
        if len(asked) < len(places[later]):
            yield f"asked for {len(asked)} of the {len(places[later])} places of {later}, drawn by hash"
        near = near_pairs((asked[:, 0], asked[:, 1]), (places[earlier][:, 0], places[earlier][:, 1]), distance)
        if near:
            text = f"{near} of {len(asked)} places of {later} are closer than {distance:g} km to a row of {earlier}"
            yield (earlier, later), text


def _places(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The different places among points that have one, in order of their hash, shape (places, 2)."""
    known = points[np.isfinite(points).all(axis=1)] + 0.0
    words = known.view(np.uint64)
    hashes = mix(mix(words[:, 0].copy()) ^ words[:, 1])
    order = np.argsort(hashes)
    ordered = hashes[order]
    return known[order[np.append(True, ordered[1:] != ordered[:-1])]] if len(known) else known


def _decision_time_drift(subject: Subject) -> Iterator[Finding | Remark]:
    name = subject.training_set.decision_time
    if name not in subject.profiles():
        raise CannotRun(f"the training set has no column {name}")
    yield from _moved(subject, [name])


def _feature_drift(subject: Subject) -> Iterator[Finding | Remark]:
    if not subject.training_set.features:
        raise CannotRun("the training set does not say which of its columns are features")
    yield from _moved(subject, list(subject.training_set.features))


def _moved(subject: Subject, names: list[str]) -> Iterator[Finding | Remark]:
    small: set[str] = set()
    for name in names:
        for later in (1, 2):
            psi = subject.profiles()[name].psi(0, later)
            if psi is None:
                small.add(PARTS[later])
            elif psi > subject.spec.checks.psi:
                text = (
                    f"{name} has a PSI of {psi:.3f} from train to {PARTS[later]}, more than {subject.spec.checks.psi:g}"
                )
                yield ("train", PARTS[later]), text
    if small:
        raise CannotRun(f"train and {', '.join(sorted(small))} need {MIN_ROWS} rows each to be compared")


_CHECKS: dict[CheckName, Callable[[Subject], Iterable[Finding | Remark]]] = {
    "time_order": _time_order,
    "label_maturity": _label_maturity,
    "group_overlap": _group_overlap,
    "unnamed_groups": _unnamed_groups,
    "entity_overlap": _entity_overlap,
    "duplicates": _duplicates,
    "near_duplicates": _near_duplicates,
    "single_feature": _single_feature,
    "availability": _availability,
    "geographic_neighbours": _geographic_neighbours,
    "decision_time_drift": _decision_time_drift,
    "feature_drift": _feature_drift,
}


def as_json(checks: list[Check], checked: Checks) -> dict[str, Any]:
    """The checks, and the thresholds of what is measured of columns, as plain JSON."""
    return {"checks": [vars(one) for one in checks], "thresholds": checked.model_dump(include=set(_THRESHOLDS))}
