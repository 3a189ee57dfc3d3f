"""Champion and canary on live outcomes: the join of log and outcomes, metrics by arm, differences, and the verdict."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import LiveRules
from gatehouse.metrics.lazy_numpy import np
from gatehouse.metrics.metric import Array, Metric, Predictions
from gatehouse.metrics.sequential import half_width, ratio_evidence
from gatehouse.metrics.tasks import TASKS

if TYPE_CHECKING:
    import pyarrow as pa

FILE = "live.json"
CHAMPION, CANARY, INTERLEAVED = "champion", "canary", "interleaved"
PROMOTE, GO_ON, BACK = "promote", "go on", "back"
_FEWEST_GUARDED = 30
"""Units of the canary from which errors and latency are judged."""
MOST_VALUES = 40
"""Values of a column that slices are of, at most."""
_TUNED = 10
"""The intervals are narrowest at this many units for each outcome of the canary that the policy waits for."""


def with_outcomes(
    log: "pa.Table", outcomes: "pa.Table", keys: Sequence[str], label_time: str, horizon: float | None
) -> "tuple[pa.Table, dict[str, int]]":
    """The rows of a log with the first outcome of each, null where there is none; and counts for the report.

    Args:
        keys: The columns that join both: `request_id` and perhaps `request_row`, or the entity keys and perhaps
            `decision_time`.
        label_time: When an outcome became known; empty if nobody says. An earlier one than the decision is no outcome
            of it, and among several the first one counts.
        horizon: Seconds after the decision after which an outcome is late and does not count; None for never. Neither
            does one of a row whose horizon was not over when the newest outcome became known.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from gatehouse.features.exact import TIME
    from gatehouse.monitoring.live_log import KINDS
    from gatehouse.store.database import connect

    if horizon is not None and not label_time:
        raise ConfigurationError("live.horizon: expected a column that says when outcomes became known (label_time).")
    kinds = {name: log.schema.field(name).type if name in log.column_names else None for name in keys}
    kinds |= {label_time: TIME} if label_time else {}
    if lacking := [name for name, kind in kinds.items() if kind is None or name not in outcomes.column_names]:
        raise ConfigurationError(f"outcomes: expected the columns {', '.join(kinds)}, found no {', '.join(lacking)}.")
    own = {*KINDS, "share", "picked_by_canary", *(task.output for task in TASKS.values())} & {*log.column_names}
    if hiding := sorted(own & {*outcomes.column_names} - {*keys, "decision_time"}):
        raise ConfigurationError(f"outcomes: expected no columns {', '.join(hiding)}, which the log has. Rename them.")
    for name, kind in kinds.items():
        column, is_time = outcomes[name], name == label_time
        try:
            if is_time and pa.types.is_integer(column.type):
                raise pa.ArrowInvalid
            column = column.cast(kind, safe=not is_time)  # Of a time, less than a microsecond may go.
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            message = (
                f"outcomes: expected {kind} in the column {name}, found {column.type}, or a value that does not fit."
            )
            raise ConfigurationError(message) from None
        outcomes = outcomes.set_column(outcomes.schema.get_field_index(name), name, column)
        # One of these would end every horizon. Clocks may differ by minutes.
        if is_time and pc.any(pc.greater(column, pa.scalar(datetime.now(UTC) + timedelta(hours=1), kind))).as_py():
            raise ConfigurationError(
                f"outcomes: expected times until now in the column {name}, found {pc.max(column).cast('string')}. "
                "Correct the clock that wrote it, and the table."
            )
    log = log.append_column("__row", pa.array(range(log.num_rows)))
    outcomes = outcomes.append_column("__place", pa.array(range(outcomes.num_rows)))
    time = f"o.{_quoted(label_time)}" if label_time else "NULL::TIMESTAMPTZ"
    pairs = " AND ".join(f"l.{_quoted(name)} = o.{_quoted(name)}" for name in keys)
    end = f"l.decision_time + INTERVAL {horizon} SECOND"
    late = "false" if horizon is None else f"{time} > {end}"
    # Outcomes of one kind may become known sooner: a row counts when all of its outcomes would be known.
    young = "false" if horizon is None else f"{end} > (SELECT max({time}) FROM o)"
    timed = "decision_time" in keys or "request_id" in keys
    early = "false" if timed else f"coalesce({time} < l.decision_time, false)"
    with connect() as database:
        database.register("l", log.select([*keys, "__row", *({"decision_time"} - {*keys})]))
        database.register("o", outcomes)
        database.execute(
            f"CREATE TABLE joined AS SELECT l.__row, o.__place, coalesce({late}, false) AS late, {time} AS known, "
            f"coalesce({young}, false) AS young "
            f"FROM l JOIN o ON {pairs} WHERE NOT {early}"
        )
        first: pa.Table = database.sql(
            "SELECT __row, __place FROM joined WHERE NOT (late OR young) "
            "QUALIFY row_number() OVER (PARTITION BY __row ORDER BY known NULLS LAST, __place) = 1 ORDER BY __row"
        ).to_arrow_table()
        ((late_ones, young_ones, timely, matched),) = database.execute(
            "SELECT count(*) FILTER (WHERE late), count(*) FILTER (WHERE young AND NOT late), "
            "count(*) FILTER (WHERE NOT (late OR young)), count(DISTINCT __place) FROM joined"
        ).fetchall()
    places: Array = np.full(log.num_rows, -1)
    places[first["__row"].to_numpy()] = first["__place"].to_numpy()
    taken = outcomes.drop_columns([*keys, "__place"]).take(pa.array(places, mask=places < 0))
    joined = log.drop_columns(["__row", *({*taken.column_names} & {*log.column_names})])
    for name in taken.column_names:
        joined = joined.append_column(name, taken[name])
    facts = {"rows in the log": log.num_rows, "of these with an outcome": first.num_rows, "late outcomes": late_ones}
    facts |= {"repeated outcomes": timely - first.num_rows, "outcomes without a row": outcomes.num_rows - matched}
    facts |= {"outcomes within a horizon that is not over": young_ones}
    return joined, facts


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Difference:
    """By how much the canary is worse than the champion in one number, with an interval that holds at all looks.

    `champion` and `canary` are the means over the rows of the arm. `worse_by` is the mean over units, each of which
    counts once, in [`low`, `high`]; `allowed` is how much it may be. `units` have an outcome, `in_canary` of them in
    the canary.
    """

    name: str
    champion: float | None
    canary: float | None
    worse_by: float
    low: float
    high: float
    allowed: float
    units: int
    in_canary: int


@dataclass(frozen=True)
class Arms:
    """Rows in two arms: whether each is in the canary, the share by which that was drawn, and its unit from 0 on."""

    canary: Array
    share: Array
    unit: Array

    @classmethod
    def of(cls, table: "pa.Table") -> "Arms":
        """The arms of the rows of a log with `arm`, `share` and `unit`."""
        codes = table["unit"].combine_chunks().dictionary_encode().indices
        canary = np.asarray(table["arm"].to_numpy(zero_copy_only=False) != CHAMPION)
        return cls(canary, np.asarray(table["share"].to_numpy(), np.float64), np.asarray(codes.to_numpy(), np.int64))

    def difference(
        self, name: str, values: Array, sign: int, allowed: float, alpha: float, tuned_at: float
    ) -> Difference:
        """The difference of numbers, shape (rows,), NaN where unknown; more is worse if `sign` is 1, better if -1.

        Each row weighs by the inverse of the probability of its arm, and a unit has the mean of its rows, which depend
        on each other. Subtracting one number from all rows changes no expectation, and takes out their level.
        """
        known = np.isfinite(values) & (self.share > 0) & (self.share < 1)
        numbers, canary, share, unit = values[known], self.canary[known], self.share[known], self.unit[known]
        weights = np.where(canary, 1 / share, -1 / (1 - share))
        centred = numbers - (numbers.mean() if len(numbers) else 0.0)
        by_unit = _means(unit, sign * weights * centred)
        mean = float(by_unit.mean()) if len(by_unit) else 0.0
        spread = float(by_unit.std(ddof=1)) if len(by_unit) > 1 else np.inf
        half = float(half_width(spread, len(by_unit), alpha, tuned_at))
        old, new = (float(numbers[side].mean()) if side.any() else None for side in (~canary, canary))
        inside = len(np.unique(unit[canary]))
        return Difference(name, old, new, mean, mean - half, mean + half, allowed, len(by_unit), inside)

    def ratio(self) -> float:
        """The evidence that units are not divided by the shares, as `ratio_evidence`; each counts at its first row."""
        drawn = (self.share > 0) & (self.share < 1)
        first = np.unique(self.unit[drawn], return_index=True)[1]
        share, canary = self.share[drawn][first], self.canary[drawn][first]
        shares = np.unique(share)
        return ratio_evidence((float(at), int(canary[share == at].sum()), int((share == at).sum())) for at in shares)


def _means(unit: Array, numbers: Array) -> Array:
    """The mean of each unit that has rows, shape (units,)."""
    rows = np.bincount(unit) if len(unit) else np.zeros(0)
    return np.asarray(np.bincount(unit, weights=numbers)[rows > 0] / rows[rows > 0]) if len(unit) else rows


def judge(
    table: "pa.Table",
    rules: LiveRules,
    labels: Array,
    predictions: Predictions | None,
    metrics: Mapping[str, Metric],
) -> dict[str, Any]:
    """Metrics by arm, differences and the verdict, as JSON.

    Args:
        table: Rows of a log in the order in which they came, with outcomes.
        labels: The label of each row, NaN where it is not known, shape (rows,).
        predictions: The predictions for the same rows, NaN where there is none.
        metrics: The metrics of the task and those that the rules name.

    Raises ConfigurationError if the rules name a metric that is no mean over rows, or a column that is not there.
    """
    arms = Arms.of(table)
    errors = np.asarray(table["error"].is_valid().to_numpy(zero_copy_only=False), np.float64)
    latency = np.asarray(table["latency_ms"].to_numpy(zero_copy_only=False), np.float64)
    compared = [*_compared(table, rules, labels, predictions, metrics)]
    # Each bound may ring with an equal part of the whole, and the slices together are one.
    bounds = len(compared) + len(rules.preferences) + 2 + (rules.max_latency_ms is not None) + bool(rules.slices)
    alpha, tuned_at = (1 - rules.confidence) / bounds, float(_TUNED * rules.outcomes)
    differences = [arms.difference(*item, alpha, tuned_at) for item in compared]
    differences += _preferences(table, rules, alpha, tuned_at)
    slices = [*_sliced(table, rules, arms, compared, alpha, tuned_at)]
    failed = arms.difference("failed rows", errors, 1, rules.max_error_rise, alpha, tuned_at)
    evidence = arms.ratio()
    back: list[str] = []
    if evidence >= -np.log(alpha):
        back.append(
            f"the arms are not divided by their shares (evidence e^{evidence:.1f}, expected below "
            f"e^{-np.log(alpha):.1f}): rows are lost, or the log of an arm is incomplete"
        )
    if failed.in_canary >= _FEWEST_GUARDED and failed.low > failed.allowed:
        back.append(f"failed rows: worse by {failed.worse_by:.2%}, at most {failed.allowed:.2%} allowed")
    slow = np.asarray(latency > (rules.max_latency_ms or np.inf), np.float64)
    by_unit = _means(arms.unit[arms.canary], slow[arms.canary])
    if rules.max_latency_ms is not None and len(by_unit) >= _FEWEST_GUARDED:
        half = float(half_width(by_unit.std(ddof=1), len(by_unit), alpha, tuned_at))
        if by_unit.mean() - half > 0.01:
            back.append(f"latency: {by_unit.mean():.1%} of the canary's rows take over {rules.max_latency_ms:g} ms")
    waits = []
    for item in differences:
        if item.in_canary < rules.outcomes:
            waits.append(f"{item.name}: {item.in_canary:,} of {rules.outcomes:,} keys of the canary have an outcome")
        elif item.low > item.allowed:
            back.append(
                f"{item.name}: worse by {item.worse_by:.4g} [{item.low:.4g}, {item.high:.4g}], "
                f"at most {item.allowed:.4g} allowed"
            )
        elif item.high > item.allowed:
            waits.append(
                f"{item.name}: worse by at most {item.high:.4g}, not yet shown to be at most {item.allowed:.4g}"
            )
    for item in slices:
        if item.in_canary >= _FEWEST_GUARDED and item.low > item.allowed:
            back.append(f"{item.name}: worse by {item.worse_by:.4g}, at most {item.allowed:.4g} allowed")
    days = _days(table, arms)
    if waits and not back and rules.days is not None and days > rules.days:
        back += [f"not decided after {days:.1f} days, at most {rules.days:g} allowed", *waits]
    verdict = BACK if back else GO_ON if waits else PROMOTE
    by_arm: dict[str, dict[str, float | None]] = {
        arm: {
            "rows": int(side.sum()),
            "keys": len(np.unique(arms.unit[side])),
            "failed rows": float(errors[side].mean()) if side.any() else 0.0,
            **{f"latency p{q}, ms": float(np.percentile(latency[side], q)) for q in (50, 99) if side.any()},
            **_measured(side, labels, predictions, metrics),
        }
        for arm, side in ((CHAMPION, ~arms.canary), (CANARY, arms.canary))
    }
    return {
        "verdict": verdict,
        "reasons": back or waits,
        "arms": by_arm,
        "differences": _plain([*differences, failed]),
        "slices": _plain(slices),
        "ratio": {"evidence": evidence, "alarm": float(-np.log(alpha))},
        "outcomes": min((item.in_canary for item in differences), default=0),
        "days": days,
        "alpha": alpha,
    }


def _preferences(table: "pa.Table", rules: LiveRules, alpha: float, tuned_at: float) -> Iterator[Difference]:
    """How much more the rows that the champion picked have than those of the canary, by interleaved list.

    It is the difference as a share of both, in [-1, 1]; a list without any of it says nothing.
    """
    if not rules.preferences:
        return
    lists = table.filter(np.asarray(table["arm"].to_numpy(zero_copy_only=False) == INTERLEAVED))
    unit = np.asarray(lists["unit"].combine_chunks().dictionary_encode().indices.to_numpy(), np.int64)
    picked = np.asarray(lists["picked_by_canary"].to_numpy(zero_copy_only=False), np.float64)
    for name, allowed in rules.preferences.items():
        if name not in table.column_names:
            raise ConfigurationError(f"live.preferences: expected a column of the outcomes, found {name}.")
        numbers = np.nan_to_num(_numbers(lists, f"live.preferences: {name}", name))
        new, both = (np.bincount(unit, weights=weights) for weights in (numbers * picked, numbers))
        lead = 1 - 2 * new[both > 0] / both[both > 0]
        mean, number = float(lead.mean()) if len(lead) else 0.0, len(lead)
        half = float(half_width(float(lead.std(ddof=1)) if number > 1 else np.inf, number, alpha, tuned_at))
        sums = (float((both - new).sum()), float(new.sum()))
        yield Difference(f"preference by {name}", *sums, mean, mean - half, mean + half, allowed, number, number)


def _plain(differences: Sequence[Difference]) -> list[dict[str, Any]]:
    return [
        {key: None if isinstance(value, float) and not np.isfinite(value) else value for key, value in item.items()}
        for item in map(asdict, differences)
    ]


def _sliced(
    table: "pa.Table",
    rules: LiveRules,
    arms: Arms,
    compared: Sequence[tuple[str, Array, int, float]],
    alpha: float,
    tuned_at: float,
) -> Iterator[Difference]:
    """The differences within each value of the columns that the rules slice by.

    They are the first `MOST_VALUES` values in the log, so a value that was ever judged is judged at each later look.
    """
    for column, factor in rules.slices.items():
        if column not in table.column_names:
            raise ConfigurationError(f"live.slices: expected a column of the log or the outcomes, found {column}.")
        codes = table[column].combine_chunks().cast("string").dictionary_encode()
        each = alpha / (MOST_VALUES * len(rules.slices) * len(compared))
        place = codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for code, value in enumerate(codes.dictionary.to_pylist()[:MOST_VALUES]):
            inside = np.asarray(place == code)
            part = Arms(arms.canary[inside], arms.share[inside], arms.unit[inside])
            for name, values, sign, allowed in compared:
                named = f"{name} at {column}={value}"
                yield part.difference(named, values[inside], sign, factor * allowed, each, tuned_at / MOST_VALUES)


def _compared(
    table: "pa.Table",
    rules: LiveRules,
    labels: Array,
    predictions: Predictions | None,
    metrics: Mapping[str, Metric],
) -> Iterator[tuple[str, Array, int, float]]:
    """Name, number of each row, 1 if more of it is worse or -1, and allowance, of all that the rules compare."""
    for name, allowed in rules.metrics.items():
        metric, known = metrics[name], np.isfinite(labels)
        if predictions is None or metric.by_row is None:
            raise ConfigurationError(f"live.metrics: expected means over rows, such as log_loss or mae, found {name}.")
        rows, numbers = np.flatnonzero(known & _has_score(predictions)), np.full(len(labels), np.nan)
        if len(rows):
            of, read = _of_task(labels[rows], predictions), predictions.take(rows)
            numbers[rows] = metric.by_row(of, *metric.read(read))
            if not np.isclose(metric.measure(of, read), numbers[rows].mean()):
                raise ConfigurationError(f"live.metrics: expected means over rows, such as mse, found {name}, a root.")
        yield name, numbers, 1 if metric.better == "lower" else -1, allowed
    for name, allowed in rules.values.items():
        if name not in table.column_names:
            raise ConfigurationError(f"live.values: expected a column of the outcomes, found {name}.")
        yield name, _numbers(table, f"live.values: {name}", name), -1, allowed


def _numbers(table: "pa.Table", where: str, name: str) -> Array:
    """A column of the outcomes as numbers, NaN where there is none. Raises ConfigurationError."""
    try:
        return np.asarray(table[name].cast("double").to_numpy(zero_copy_only=False), np.float64)
    except (ValueError, NotImplementedError):  # As Arrow refuses a cast; its message quotes a value.
        raise ConfigurationError(f"{where}: expected numbers, found {table[name].type} that are none.") from None


def _measured(
    side: Array, labels: Array, predictions: Predictions | None, metrics: Mapping[str, Metric]
) -> dict[str, float | None]:
    """Every metric of the rows of an arm that have label and prediction; None where it is not defined."""
    if predictions is None:
        return {}
    rows = np.flatnonzero(side & np.isfinite(labels) & _has_score(predictions))
    measured: dict[str, float | None] = {"outcomes": len(rows)}
    for name, metric in metrics.items():
        read = predictions.take(rows)
        value = metric.measure(_of_task(labels[rows], predictions), read) if len(rows) > 1 else np.nan
        measured[name] = float(value) if np.isfinite(value) else None
    return measured


def _has_score(predictions: Predictions) -> Array:
    scores = predictions.scores
    return np.isfinite(scores if scores.ndim == 1 else scores.sum(axis=1))


def _of_task(labels: Array, predictions: Predictions) -> Array:
    """Labels as metrics read them: of several classes, the number of the class."""
    return labels if predictions.scores.ndim == 1 else labels.astype(np.int64)


def _days(table: "pa.Table", arms: Arms) -> float:
    """Days from the first row of the canary to the last row of the log."""
    times = table["requested_at"].to_numpy(zero_copy_only=False).astype("datetime64[us]")
    return float((times.max() - times[arms.canary].min()) / np.timedelta64(1, "D")) if arms.canary.any() else 0.0
