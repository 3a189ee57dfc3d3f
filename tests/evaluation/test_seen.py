"""Test rows that candidate or champion were fitted on are found by key, taken out, counted, and do not decide."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.data.splitting.parts import read_part
from gatehouse.evaluation.evidence import unseen_part
from gatehouse.evaluation.gate import DataCheck, Evidence, FittedTestRows, applied_rules, verdict_of
from gatehouse.evaluation.report import page
from gatehouse.evaluation.spec import Bar, GatePolicy, Terms
from gatehouse.metrics.catalogue import metrics_for
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.tasks import BINARY
from gatehouse.registry.policy_trial import verdict_by
from gatehouse.store.manifest import Column
from gatehouse.store.store import ArtifactStore
from gatehouse.training.predictor import Predictor
from tests.evaluation.conftest import LENIENT, Bench
from tests.evaluation.test_gate import BASELINE, GOOD, MODEL
from tests.training.synthetic import publish_split, publish_training_set, table

ROWS, START = 60, datetime(2013, 1, 1)
TIMES = pa.array([START + timedelta(hours=row) for row in range(ROWS)], pa.timestamp("us", "UTC"))
TEST = range(40, 60)


class Judged:
    """A training set of 60 rows whose test part is the last 20, and what other models were fitted on."""

    def __init__(self, store: ArtifactStore) -> None:
        self.store = store
        self.rows = table(ROWS).append_column("at", TIMES)
        self.training_set = publish_training_set(store, self.rows, decision_time="at")
        self.split = self.divided(self.training_set, range(30))

    def divided(self, training_set: str, train: Sequence[int], validation: Sequence[int] = range(30, 40)) -> str:
        """A split of a training set."""
        return publish_split(self.store, training_set, train=train, validation=validation, test=TEST)

    def fitted(self, kind: str = "models", **inputs: str) -> str:
        """A model, or what was fitted for one, that names these inputs."""
        return str(self.store.publish(kind, "x", {"a": "b"}, derived_from=inputs))

    def on(self, training_set: str, train: Sequence[int], validation: Sequence[int] = range(30, 40)) -> str:
        """A model that was fitted on these rows of a training set."""
        return self.fitted(training_set=training_set, split=self.divided(training_set, train, validation))

    def unseen(self, champion: str, task: object = BINARY) -> tuple[list[int], FittedTestRows]:
        """Rows of the test part that are left, and what was taken out."""
        data = {"training_set": self.training_set, "split": self.split}
        part = read_part(self.store, **data, name="test", task=BINARY)
        models = {"candidate": self.fitted(**data), "champion": champion}
        left, seen = unseen_part(self.store, part, **data, models=models, task=BINARY)
        assert left.table["flight_id"].to_pylist() == [f"f{row}" for row in left.rows]
        return left.rows.tolist(), seen


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Shared by tests that only add to the store."""
    return Judged(ArtifactStore.open(tmp_path_factory.mktemp("seen")))


def _champions(judged: Judged) -> Mapping[str, tuple[str, list[int]]]:
    """Champions, and the test rows that each was fitted on."""
    store, rows, own = judged.store, judged.rows, judged.training_set
    data = {"training_set": own, "split": judged.split}
    backward = publish_training_set(store, rows.take(list(reversed(range(ROWS)))))
    naive = rows.set_column(rows.column_names.index("at"), "at", TIMES.cast(pa.timestamp("ms")))
    late = rows.set_column(rows.column_names.index("at"), "at", pa.array([START] * ROWS, pa.timestamp("us", "UTC")))
    overlapping = {"training_set": own, "split": judged.divided(own, range(45, 50))}
    with store.workspace() as workspace:
        files = {f"part-{number}.parquet": workspace / f"part-{number}.parquet" for number in range(2)}
        for number, path in enumerate(files.values()):
            pq.write_table(rows.slice(45 * number, 45), path)
        columns = [Column(field.name, str(field.type)) for field in rows.schema]
        in_two = str(store.publish("training-sets", "in-two", files, columns=columns))
    return {
        "none": ("", []),
        "its own split": (judged.fitted(**data), []),
        "another split, train": (judged.on(own, range(40, 45)), [40, 41, 42, 43, 44]),
        "another split, validation": (judged.on(own, range(30), range(55, 60)), [55, 56, 57, 58, 59]),
        "the same keys in another order": (judged.on(backward, range(3)), [57, 58, 59]),
        "one planted row": (judged.on(publish_training_set(store, rows.slice(50, 1)), [0], []), [50]),
        "times in another form": (judged.on(publish_training_set(store, naive), [41]), [41]),
        "the entities at other times": (judged.on(publish_training_set(store, late), range(40, 60)), []),
        "rows of a second file": (judged.on(in_two, [44, 45, 59]), [44, 45, 59]),
        "a calibrated model": (judged.fitted(**data, model=judged.fitted(**overlapping)), [45, 46, 47, 48, 49]),
        "its transformation": (
            judged.fitted(**data, transformation=judged.fitted("transformations", **overlapping)),
            [45, 46, 47, 48, 49],
        ),
    }


def test_rows_that_a_champion_was_fitted_on_are_found_by_key_and_taken_out(judged: Judged) -> None:
    for name, (champion, expected) in _champions(judged).items():
        left, seen = judged.unseen(champion)
        assert left == [row for row in TEST if row not in expected], name
        counted = {"candidate": 0} | ({"champion": len(expected)} if champion else {})
        assert seen == FittedTestRows(counted, 20, 20 - len(expected)), name


def test_lineage_that_cannot_be_read_is_told_and_takes_nothing_out(judged: Judged) -> None:
    store, rows, own = judged.store, judged.rows, judged.training_set
    gone = str(store.publish("training-sets", "flights", {"a": "gone"}))
    numbered = rows.set_column(0, "flight_id", pa.array(range(ROWS)))
    bare = judged.fitted()
    cases = {
        "does not name its split": judged.fitted(training_set=own),
        f"{bare} does not name its": judged.fitted(training_set=own, split=judged.split, model=bare),
        gone: judged.fitted(training_set=gone, split=judged.divided(gone, range(3))),
        f"expected {gone}": judged.fitted(training_set=gone, split=judged.split),
        "expected rows with the keys flight_id, at of": judged.on(publish_training_set(store, table(ROWS)), [0]),
        "expected values of flight_id, at that": judged.on(publish_training_set(store, numbered), [0]),
    }
    store.objects.local_path(f"{gone}/manifest.json").unlink()
    for item, champion in cases.items():
        left, seen = judged.unseen(champion)
        (result,) = seen.unread
        assert result.startswith("champion: ") and item in result, item
        assert (left, seen.rows) == ([*TEST], {"candidate": 0})


def test_groups_of_a_ranking_go_whole(judged: Judged) -> None:
    data = {"training_set": judged.training_set, "split": judged.split}
    part = replace(read_part(judged.store, **data, name="test", task=BINARY), groups=np.arange(20) // 4)
    champion = judged.on(judged.training_set, [45])
    left, seen = unseen_part(judged.store, part, **data, models={"champion": champion}, task=BINARY)
    assert (seen.rows, seen.left) == ({"champion": 1}, 16)
    assert left.groups is not None and left.groups.tolist() == [entry for entry in range(4) for _ in range(4)]


FEW, MANY = (
    FittedTestRows({"candidate": 0, "champion": 11}, 110, 99),
    FittedTestRows({"candidate": 0, "champion": 10}, 110, 100),
)
UNREAD = FittedTestRows({"candidate": 0}, 110, 110, unread=("champion: gone",))


@pytest.mark.parametrize(
    ("seen", "bar", "check", "verdict"),
    [
        (MANY, 0.1, "pass", "pass"),
        (MANY, 0.99, "pass", "refused"),
        (FEW, 0.99, "fail", "refused"),
        (replace(MANY, lacking="no rows"), 0.1, "pass", "inconclusive"),
        (FittedTestRows({"candidate": 0}, 5, 5), 0.1, "pass", "pass"),
        (UNREAD, 0.1, "pass", "refused"),
    ],
)
def test_rows_without_a_measurement_are_inconclusive_and_unreadable_lineage_refuses(
    seen: FittedTestRows, bar: float, check: str, verdict: str
) -> None:
    policy = GatePolicy(bars={"roc_auc": Bar(min=bar)}).resolved(profile_of(BINARY))
    checks = (DataCheck("validation", check, ()),)
    evidence = Evidence(MODEL, GOOD, BASELINE, None, {}, False, checks, seen=seen)
    assert verdict_of(applied_rules(policy, evidence)) == verdict
    policy = policy.model_copy(update={"rules": {"unseen rows": Terms(severity="warn")}})
    expected = "refused" if bar == 0.99 or check == "fail" else "pass"
    assert verdict_of(applied_rules(policy, evidence)) == expected


def test_rows_that_the_champion_was_trained_on_are_not_measured(judged_bench: Bench) -> None:
    """1,500 test rows, of which the champion was trained on the last 100."""
    store, training_set = judged_bench.store, judged_bench.training_set
    split = publish_split(store, training_set, train=range(2900, 3000), validation=range(5), test=range(5, 100))
    champion = Bench(store, training_set, split).model(steps=3)
    result = judged_bench.evaluate(judged_bench.models["good"], champion=champion)
    part = read_part(store, training_set, judged_bench.split, "test", BINARY).take(np.arange(1400))
    for model, item in ((judged_bench.models["good"], result.metrics), (champion, result.champion_metrics)):
        predicted = Predictor.load(store, model).predict(part.table)
        read = BINARY.read(predicted, None)
        assert item == {name: metric.measure(part.labels, read) for name, metric in metrics_for("binary").items()}
    assert sum(entry["rows"] for entry in store.read_json(result.evaluation, "slices.json")) == 1400
    reported = (
        "seen rows: the champion was fitted on 100 of the 1,500 test rows; these were taken out, and 1,400 are left"
    )
    assert result.verdict == "pass" and reported in result.warnings
    verdict = store.read_json(result.evaluation, "verdict.json")
    rows = {"candidate": 0, "champion": 100}
    assert verdict["seen"] == {"rows": rows, "of": 1500, "left": 1400, "lacking": "", "transient": False, "unread": []}
    assert reported in page(store, result.evaluation)
    more = LENIENT.model_copy(update={"least_test_rows": 1401})
    assert verdict_by(store, result.evaluation, LENIENT).verdict == "pass"
    assert verdict_by(store, result.evaluation, more).verdict == "inconclusive"
