"""Predictions of any origin, judged: against the metrics of scikit-learn, in every form of labels and scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kfp import dsl
from sklearn import metrics as reference

from gatehouse.components import evaluate
from gatehouse.data.splitting.parts import UnusablePartError
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.result import ScoringError
from gatehouse.store.store import ArtifactStore
from tests.components import call

ROWS = 400
RANDOM = np.random.default_rng(3)
TRUTH = RANDOM.integers(0, 3, ROWS)
SHARES = RANDOM.dirichlet((1.0, 1.0, 1.0), ROWS) * 0.5 + np.eye(3)[TRUTH] * 0.5
NAMES = np.array(["bear", "cat", "dog"])
QUICK = {"bootstrap_samples": 40, "min_slice_rows": 20}


def judged(folder: Path, columns: Mapping[str, Any], champion_scores: Any = None, **inputs: Any) -> Any:
    """The outputs of the component for scores in these columns."""
    tables = {"scores": pa.table(dict(columns))}
    if champion_scores:
        tables["champion_scores"] = pa.table(champion_scores)
    return call(evaluate, folder, **tables, **{"spec": QUICK, **inputs})


def test_every_form_of_scores_of_classes_gives_the_metrics_of_the_reference(tmp_path: Path) -> None:
    forms: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "lists": ({"label": TRUTH, "score": SHARES.tolist()}, {}),
        "columns": (
            {"label": NAMES[TRUTH]} | {f"score_{name}": SHARES[:, place] for place, name in enumerate(NAMES)},
            {},
        ),
        "order": ({"label": NAMES[TRUTH], "score": SHARES[:, ::-1].tolist()}, {"classes": ["dog", "cat", "bear"]}),
    }
    for name, (columns, arguments) in forms.items():
        shown = judged(tmp_path / name, columns, task="multiclass", **arguments).metrics.metadata
        assert shown["log_loss"] == pytest.approx(reference.log_loss(TRUTH, SHARES))
        assert shown["accuracy"] == pytest.approx(reference.accuracy_score(TRUTH, SHARES.argmax(axis=1)))


def test_classes_of_lists_are_in_the_order_of_scikit_learn_or_named(tmp_path: Path) -> None:
    values = np.array([2, 10, 33])
    expected = reference.accuracy_score(TRUTH, SHARES.argmax(axis=1))
    for classes in (values, values + 0.5, values.astype(str)):
        columns = {"label": classes[TRUTH], "score": SHARES[:, np.argsort(classes)].tolist()}
        arguments: dict[str, Any] = {"task": "multiclass"}
        if classes.dtype.kind == "U":  # By value, these have another order.
            with pytest.raises(ConfigurationError, match="classes"):
                judged(tmp_path / "unnamed", columns, **arguments)
            arguments["classes"] = sorted(classes.tolist())
        shown = judged(tmp_path / str(classes.dtype), columns, **arguments).metrics.metadata
        assert shown["accuracy"] == pytest.approx(expected), classes


def test_each_model_is_measured_at_its_own_threshold(tmp_path: Path) -> None:
    scores = SHARES[:, 1]
    columns = {"label": TRUTH == 1, "score": scores, "old": scores * 0.9}
    made = judged(tmp_path, columns, champion_score="old", threshold=0.3, champion_threshold=0.4)
    store = ArtifactStore.open(Path(made.evaluation.path, "store"))
    metrics = store.read_json(str(next(store.references("evaluations"))), "metrics.json")
    for role, read, threshold in (("candidate", scores, 0.3), ("champion", scores * 0.9, 0.4)):
        assert metrics[role]["f1"] == pytest.approx(reference.f1_score(TRUTH == 1, read >= threshold)), role


def test_answers_of_a_language_model_are_compared_by_accuracy(tmp_path: Path) -> None:
    answers = np.where(RANDOM.random(ROWS) < 0.8, NAMES[TRUTH], "As a language model, I cannot")
    columns = {"label": NAMES[TRUTH], "score": answers, "old": NAMES[SHARES.argmax(axis=1)], "site": NAMES[TRUTH]}
    arguments: dict[str, Any] = {"task": "multiclass", "champion_score": "old", "slices": ["site"]}
    made = judged(tmp_path, columns, **arguments)
    assert (made.verdict, [reason.split(":")[0] for reason in made.reasons]) == ("refused", ["champion accuracy"])
    assert made.metrics.metadata["accuracy"] == pytest.approx((answers == NAMES[TRUTH]).mean())
    shown = made.curves.metadata["confusionMatrix"]["annotationSpecs"]
    assert [entry["displayName"] for entry in shown] == [*NAMES, "others"]


def test_scores_that_are_too_good_and_slices_that_are_too_small_are_said(tmp_path: Path) -> None:
    columns = {"label": TRUTH == 1, "score": np.where(TRUTH == 1, 0.99, 0.01), "site": NAMES[TRUTH]}
    spec = QUICK | {"min_slice_rows": 200}
    made = judged(tmp_path, columns, slices=["site"], spec=spec, policy={"slices": {}})
    assert made.verdict == "pass"
    assert any("roc_auc 1" in text for text in made.warnings) and any("3 of 3 slices" in text for text in made.warnings)
    alarmed = judged(tmp_path, columns, policy={"leakage_alarm": {"roc_auc": 0.95}})
    assert alarmed.verdict == "refused" and "roc_auc" in alarmed.reasons[0]


def test_weights_count_as_repeated_rows_which_are_drawn_together(tmp_path: Path) -> None:
    weights, scores = RANDOM.integers(0, 4, ROWS), np.clip(SHARES[:, 1], 0, 1)
    columns = {"label": TRUTH == 1, "score": scores, "weight": weights}
    with pytest.raises(ConfigurationError, match="at most 20,000,000 in sum"):
        judged(tmp_path, columns | {"weight": weights + (np.arange(ROWS) == 0) * 2_000_000_000}, weights="weight")
    made = judged(tmp_path, columns, weights="weight")
    expected = reference.log_loss(TRUTH == 1, scores, sample_weight=weights)
    assert made.metrics.metadata["log_loss"] == pytest.approx(expected)
    store = ArtifactStore.open(Path(made.evaluation.path, "store"))
    evaluation = str(next(store.references("evaluations")))
    assert store.read_json(evaluation, "uncertainty.json")["units"] == (weights > 0).sum()
    counted = store.read_json(evaluation, "verdict.json")["counted"]["units"]
    assert counted == store.manifest(evaluation).details["rows"] == (weights > 0).sum()


def test_a_regression_is_drawn_by_group_and_rules_on_what_is_unknown_fail_only_on_demand(tmp_path: Path) -> None:
    label = RANDOM.normal(size=ROWS)
    columns = {"label": label, "mine": label + 0.3 * RANDOM.normal(size=ROWS), "day": np.arange(ROWS) // 4}
    worse = {"mine": label + 0.9 * RANDOM.normal(size=ROWS), "label": label}
    arguments: dict[str, Any] = {"task": "regression", "score": "mine", "group": "day", "champion_scores": worse}
    made = judged(tmp_path, columns, **arguments)
    assert "drift" in made.warnings[-1]
    store = ArtifactStore.open(Path(made.evaluation.path, "store"))
    evaluation = str(next(store.references("evaluations")))
    assert (made.verdict, store.read_json(evaluation, "uncertainty.json")["unit"]) == ("pass", "day")
    assert store.read_json(evaluation, "metrics.json")["baseline"]["rmse"] == pytest.approx(label.std(), rel=1e-6)
    demanding = {"complete_lineage": True, "require_integration": True, "max_training_age": "P1D", "max_psi": 0.2}
    demanding |= {"cost": {"size_mb": 1, "latency_ms": 5}, "warnings": "refuse"}
    refused = judged(tmp_path, columns, **arguments, policy=demanding)
    names = {reason.partition(":")[0] for reason in refused.reasons}
    assert names == {"lineage", "integration", "training age", "drift", "model size", "latency", "warnings"}


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "ranking"])
def test_answers_that_are_the_labels_themselves_are_a_warning(task: str, tmp_path: Path) -> None:
    truth = TRUTH == 1 if task == "binary" else TRUTH
    answers = truth.copy()
    for copied in (True, False):
        columns = {"label": truth, "score": answers, "query": np.arange(ROWS) // 8}
        warnings = judged(tmp_path, columns, task=task, group="query").warnings
        assert any("copy" in warning for warning in warnings) == copied, warnings
        answers[0] = 1 - answers[0]


def test_a_ranking_is_judged_by_group_and_a_repeat_gives_the_same_evaluation(tmp_path: Path) -> None:
    scores, query = TRUTH + RANDOM.normal(size=ROWS), np.arange(ROWS) // 8
    columns = {"label": TRUTH, "score": scores, "query": query.astype(str)}
    ranked = {"task": "ranking", "group": "query", "store": str(tmp_path / "store"), "name": "search"}
    made = judged(tmp_path, columns, **ranked)
    groups = [query == number for number in range(ROWS // 8)]
    expected = np.mean([reference.ndcg_score([TRUTH[rows]], [scores[rows]]) for rows in groups])
    assert (made.verdict, made.metrics.metadata["ndcg"]) == ("pass", pytest.approx(expected))
    again = judged(tmp_path, columns | {"old": [None] * ROWS}, champion_score="old", **ranked)
    assert again.evaluation.metadata == made.evaluation.metadata and made.evaluation.metadata["verdict"] == "pass"
    assert ArtifactStore.open(tmp_path / "store").exists(made.evaluation.metadata["reference"])


@pytest.mark.parametrize("moved", ["label", "query", "weight"])
def test_scores_of_a_champion_in_a_dataset_of_their_own_are_of_the_same_rows_in_the_same_order(
    tmp_path: Path, moved: str
) -> None:
    """Rows in another order would make the champion a guesser, and any candidate better."""
    columns = {
        "label": TRUTH == 1,
        "score": SHARES[:, 1],
        "query": np.arange(ROWS),
        "weight": RANDOM.integers(1, 9, ROWS),
    }
    champion = {"label": (TRUTH == 1).astype(float), "score": np.eye(3)[TRUTH][:, 1] * 0.98 + 0.01}
    champion["query"] = np.arange(ROWS).astype(str)
    arguments: dict[str, Any] = {"group": "query", "weights": "weight"}
    made = judged(tmp_path, columns, champion_scores=champion, **arguments)
    assert made.verdict == "refused" and made.reasons[0].startswith("champion")
    for wrong in (champion | {moved: np.roll(columns[moved], 1)}, {"score": champion["score"]}):
        with pytest.raises(ConfigurationError, match="champion_scores"):
            judged(tmp_path, columns, champion_scores=wrong, **arguments)
    other = champion | {"query": np.roll(champion["query"], 1)}
    with pytest.raises(ConfigurationError, match=r"champion_scores.*'query'"):  # A key, although nothing names it.
        judged(tmp_path, columns, champion_scores=other)


def test_scores_that_do_not_fit_are_shown_with_their_place(tmp_path: Path) -> None:
    columns = {"label": TRUTH == 1, "score": SHARES[:, 1], "old": [None] * ROWS}
    for first, shown in ((7.25, "7.25"), (None, "null")):
        scores = pa.array([0.5, first, *[0.5] * (ROWS - 2)], pa.float64())
        with pytest.raises(ScoringError, match=rf"candidate .* 1 others, .*{shown} in row 1 of the Dataset"):
            judged(tmp_path, columns | {"score": scores})
    model = dsl.Model(metadata={"reference": f"{tmp_path}/store/models/a/sha256-{'0' * 64}"})
    for given, error in (({"champion_score": "old"}, r"nulls alone .*'old'"), ({}, "champion")):
        with pytest.raises(ConfigurationError, match=error):
            judged(tmp_path, columns, champion=model, **given)


@pytest.mark.parametrize(
    ("change", "arguments", "error"),
    [
        ({}, {"label": "missing"}, ConfigurationError),
        ({}, {"score": "missing"}, ConfigurationError),
        ({}, {"score": "label"}, ConfigurationError),
        ({"one": TRUTH == 1}, {"label": "one", "champion_score": "one"}, ConfigurationError),
        ({}, {"slices": ["missing"]}, ConfigurationError),
        ({}, {"task": "multiclas"}, ConfigurationError),
        ({}, {"task": "ranking"}, ConfigurationError),
        ({}, {"policy": {"bars": {"rmse": {"max": 1}}}}, ConfigurationError),
        ({}, {"policy": {"barz": {}}}, ConfigurationError),
        ({}, {"spec": {"bootstrap_samples": "many"}}, ConfigurationError),
        ({}, {"threshold": 2.0}, ConfigurationError),
        ({}, {"champion_scores": {"score": [0.5], "label": [True]}}, ConfigurationError),
        ({"label": NAMES[TRUTH]}, {}, ConfigurationError),
        ({"label": NAMES[TRUTH]}, {"task": "regression"}, ConfigurationError),
        ({"label": np.where(TRUTH == 1, "cat", "dog")}, {"positive": "bear"}, ConfigurationError),
        ({"label": [None, *(TRUTH[1:] == 1)]}, {}, ConfigurationError),
        ({"label": [np.nan, *TRUTH[1:]], "score": TRUTH.astype(str)}, {"task": "multiclass"}, ConfigurationError),
        ({"score": [0.5] * ROWS, "weight": [0.5] * ROWS}, {"weights": "weight"}, ConfigurationError),
        ({"score": SHARES[:, :2].tolist(), "label": TRUTH}, {"task": "multiclass"}, ConfigurationError),
        ({"label": [np.nan, *TRUTH[1:]], "score": TRUTH}, {"task": "multiclass"}, ConfigurationError),
        *[
            (
                {"query": [gap, *range(1, ROWS)], "label": TRUTH},
                {"task": "ranking", "group": "query"},
                ConfigurationError,
            )
            for gap in (None, np.nan)
        ],
        ({"label": [1] * ROWS}, {}, UnusablePartError),
        ({"score": [float("nan"), *[0.5] * (ROWS - 1)]}, {}, ScoringError),
        ({"score": [None, *[0.5] * (ROWS - 1)]}, {}, ScoringError),
        ({"score": SHARES[:, 1] * 100}, {}, ScoringError),
        ({"score": (2 * SHARES).tolist(), "label": TRUTH}, {"task": "multiclass"}, ScoringError),
    ],
)
def test_what_cannot_be_judged_is_refused(
    tmp_path: Path, change: dict[str, Any], arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        judged(tmp_path, {"label": TRUTH == 1, "score": SHARES[:, 1]} | change, **arguments)
