"""The KFP interface of the stage that judges predictions, whatever made them."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Judge predictions", caching=True, cpu="2", memory="4G", stored=("reference",))
def judge(
    dataset: dsl.Input[dsl.Dataset],
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    curves: dsl.Output[dsl.ClassificationMetrics],
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    task: str = "binary",
    label: str = "label",
    score: str = "score",
    champion_score: str = "",
    baseline_score: str = "",
    champion_dataset: dsl.Input[dsl.Dataset] = None,
    baseline_dataset: dsl.Input[dsl.Dataset] = None,
    positive: str = "",
    classes: list = [],
    threshold: float = 0.5,
    slices: list = [],
    group: str = "",
    weights: str = "",
    spec: dict = {},
    policy: dict = {},
    policy_file: dsl.Input[dsl.Artifact] = None,
    model: dsl.Input[dsl.Model] = None,
    champion: str = "",
    name: str = "candidate",
    format: str = "",
    store: str = "",
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list), ("warnings", list), ("reference", str)]):
    """Judge the scores of a candidate for labelled rows by a policy, beside those of champion and baseline.

    Args:
        dataset: Labelled rows that no model was fitted on, with the candidate's scores: Parquet, CSV or JSON lines.
        task: binary, multiclass, regression or ranking.
        label: Column of labels: numbers, or names of classes.
        score: Column of the candidate's scores. For binary the probability of the positive class, or a class; for
            multiclass a list of probabilities, a class, or the prefix of one column per class, as score_cat.
        champion_score: The same of the champion: nulls where there is none yet; empty for none, or for the name in
            score with champion_dataset.
        baseline_score: The same of the baseline; empty for none: then it is a constant.
        champion_dataset: The champion's scores in a Dataset of their own: the same rows in order, with their labels.
        baseline_dataset: The same of the baseline.
        positive: The positive one of two classes with names.
        classes: The classes in the order of lists of probabilities; empty for those that occur, sorted.
        threshold: The second of two classes is predicted from this probability on.
        slices: Columns for whose values metrics are also computed, and judged where the policy says so.
        group: Column of rows that are not independent, which the bootstrap draws together; for a ranking the rows that
            are ranked together.
        weights: Column of whole numbers: how many rows a row stands for.
        spec: More about what is measured, as an EvaluationSpec: bootstrap_samples, protected, min_slice_rows, …
        policy: The promotion policy, as a GatePolicy; empty for the default.
        policy_file: The same as a file of YAML or JSON.
        model: The files that made the scores, which register_model needs, and then takes no others.
        champion: Reference of the champion whose scores are given, as resolve gives it.
        name: Name of the evaluation.
        format: parquet, csv or jsonl; empty to look at the Datasets.
        store: Address of the artifact store that keeps the evaluation; empty for none.

    Returns:
        verdict: pass, refused or inconclusive.
        reasons: Why it is no pass.
        warnings: What does not refuse it, as rules that were not checked.
        reference: Address of the evaluation in the store; empty without one.
        evaluation: The evaluation's files, for register_model, and below `store` with the rows that it judged.
        metrics: Metrics of the candidate for the UI.
        curves: The ROC curve and the confusion matrix for the UI.
        report: The report for the UI.
        summary: Verdict, reasons and metrics for the UI.
    """
    from gatehouse.data.datasets import read_dataset
    from gatehouse.evaluation.judging_stage import judge as judge_scores
    from gatehouse.evaluation.judging_stage import publish_scores
    from gatehouse.evaluation.labelled_scores import LabelSpec
    from gatehouse.evaluation.presentation import export_evaluation, present
    from gatehouse.evaluation.spec import EvaluationSpec
    from gatehouse.store.parameters import as_written, checked, given, open_store
    from gatehouse.store.publishing import digests_of

    opened = open_store(store)
    measured = checked("spec", EvaluationSpec, as_written(spec) | ({"slices": slices} if slices else {}))
    about = {"label": label, "task": task, "positive": positive, "classes": classes}
    labelled = checked("labels", LabelSpec, as_written(about))
    rows = read_dataset(dataset.path, format)
    scored = {"candidate": (rows, score)}
    others = {"champion": (champion_score, champion_dataset), "baseline": (baseline_score, baseline_dataset)}
    for role, (column, other) in others.items():
        if column or other:
            scored[role] = (read_dataset(other.path, format) if other else rows, column or score)
    roles = {"champion": champion, "group": group, "weights": weights}
    test_set, scores = publish_scores(opened, name, rows, scored, labelled, measured, **roles)
    asked = {
        "test_set": test_set,
        "scores": scores,
        "spec": measured.model_dump(mode="json"),
        "policy": given("policy", policy, policy_file, default={}),
        "threshold": threshold,
        "champion": champion,
        "files": digests_of(model.path) if model else {},
    }
    result = judge_scores(checked("judge", judge_scores.request, asked), opened)
    present(result, opened, metrics, curves, report, summary)
    export_evaluation(opened, result.evaluation, evaluation.path)
    reference = opened.address_of(result.evaluation) if store else ""
    for artifact in (evaluation, metrics, curves, report, summary):
        artifact.metadata["reference"] = reference
    return (result.verdict, list(result.reasons), list(result.warnings), reference)
