"""The KFP interface of an evaluation: of a model that Gatehouse trained, or of the scores of any model."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component(
    "training",
    title="Evaluate against the champion",
    cpu="2",
    memory="4G",
    minutes=35,
    files={"component": ("model", "split"), "of_scores": ("scores",)},
    configurations={"spec": "evaluation", "policy": "policy"},
)
def evaluate(
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    curves: dsl.Output[dsl.ClassificationMetrics],
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    model: dsl.Input[dsl.Model] = None,
    split: dsl.Input[dsl.Artifact] = None,
    scores: dsl.Input[dsl.Dataset] = None,
    champion: dsl.Input[dsl.Model] = None,
    champion_scores: dsl.Input[dsl.Dataset] = None,
    baseline_scores: dsl.Input[dsl.Dataset] = None,
    validation: dsl.Input[dsl.Artifact] = None,
    leakage: dsl.Input[dsl.Artifact] = None,
    integration: dsl.Input[dsl.Artifact] = None,
    spec: dict = {},
    policy: dict = {},
    policy_file: dsl.Input[dsl.Artifact] = None,
    model_name: str = "",
    task: str = "binary",
    label: str = "label",
    score: str = "score",
    champion_score: str = "",
    baseline_score: str = "",
    positive: str = "",
    classes: list = [],
    threshold: float = 0.5,
    champion_threshold: float = 0.5,
    slices: list = [],
    group: str = "",
    weights: str = "",
    name: str = "candidate",
    format: str = "",
    store: str = "",
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list), ("warnings", list)]):
    """Judge a candidate by a policy, beside the champion and a baseline on the same rows.

    The candidate is a model of train, measured on the test part of a split; or the scores of any model for labelled
    rows that it was not fitted on. The task succeeds whatever the verdict is; register refuses a candidate by it.

    Args:
        model: The candidate. With scores the files that made them, of any form: register then takes no others.
        split: The split whose test part the model is measured on; empty for that of the model.
        scores: Labelled rows with the candidate's scores, in Parquet, CSV or JSON lines; empty for a model of train.
        champion: The champion to compare with, as resolve gives it. For a model of train, model_name finds it.
        champion_scores: The champion's scores in a table of their own: the same rows in order, with their labels.
        baseline_scores: The same of the baseline.
        validation: The judgement of the data by its contract, which the policy may require.
        leakage: The check for leakage.
        integration: The candidate's integration suite.
        spec: What is measured, as an EvaluationSpec: slices, bootstrap_samples, protected, min_slice_rows, and more
        policy: The promotion policy, as a GatePolicy, which register applies too; empty for the default.
        policy_file: The same as a file of YAML or JSON.
        model_name: Name under which models are registered: with a model of train its champion is compared.
        task: What scores predict: binary, multiclass, regression or ranking.
        label: Column of labels: numbers, or names of classes.
        score: Column of the candidate's scores. For binary the probability of the positive class, or a class; for
            multiclass a list of probabilities, a class, or the prefix of one column per class, as score_cat.
        champion_score: The same of the champion: nulls where there is none yet; empty for none, or for the name in
            score with champion_scores.
        baseline_score: The same of the baseline; empty for none: then it is a constant.
        positive: The positive one of two classes with names.
        classes: The classes in the order of lists of probabilities; empty for those that occur, sorted. Texts that are
            numbers need it, as they have two orders.
        threshold: The second of two classes is predicted from this probability on, by the candidate's scores.
        champion_threshold: The same of the champion's.
        slices: Columns for whose values metrics are also computed, and judged where the policy says so.
        group: Column of rows that are not independent, which the bootstrap draws together; for a ranking the rows that
            are ranked together.
        weights: Column of whole numbers: how many rows a row stands for.
        name: Name of the evaluation of scores.
        format: parquet, csv or jsonl; empty to look at the tables.
        store: Address of the artifact store; empty for that of the artifacts, or for none.

    Returns:
        verdict: pass, refused or inconclusive.
        reasons: Why it is no pass.
        warnings: What does not refuse it, as rules that were not checked.
        evaluation: The evaluation, for register; without a store with all that it was judged on.
        metrics: Metrics of the candidate.
        curves: The ROC curve and the confusion matrix.
        report: The report.
        summary: Verdict, reasons and metrics.
    """
    parameters = dict(locals())

    from gatehouse.data.component_task import ComponentTask, verdict_facts
    from gatehouse.errors import ConfigurationError
    from gatehouse.evaluation.report import export_evaluation, present
    from gatehouse.evaluation.scores_stage import evaluate_tables
    from gatehouse.evaluation.stage import evaluate as judge
    from gatehouse.registry.external import warnings_of_files
    from gatehouse.registry.stage import resolve
    from gatehouse.store.parameters import as_written, configuration_of
    from gatehouse.store.publishing import digests_of

    tables = {"candidate": scores, "champion": champion_scores, "baseline": baseline_scores}
    run = ComponentTask(store, model if not scores else None, split, champion, validation, *tables.values())
    applied = configuration_of("policy", policy, policy_file, default={})
    measured = as_written(spec) | ({"slices": slices} if slices else {})
    present_champion = run.take("champion", champion, "models")
    if scores:
        rows = {role: run.table(table, format) for role, table in tables.items() if not run.is_nothing(table)}
        asked = parameters | {"spec": measured, "policy": applied}
        files = digests_of(model.path) if model else {}
        result = evaluate_tables(run.store, rows, asked, present_champion, files)
        warnings = [*result.warnings, *(warnings_of_files(model.path) if model else [])]
    else:
        if not model:
            raise ConfigurationError("evaluate: expected a model of train, or scores, found neither.")
        candidate = run.take("model", model, "models")
        judged = {"model": candidate, "split": run.take("split", split, "splits") or run.origin(candidate, "split")}
        floor = champion.metadata.get("floor", "") if champion else ""
        if model_name:
            wanted = {"model_name": model_name, "candidate": candidate, "policy": applied}
            resolved = run.run(resolve, **wanted)
            present_champion, floor = resolved.champion, resolved.floor
        judged["validation"] = run.take("validation", validation, "validations")
        judged["leakage"] = run.take("leakage", leakage, "leakage")
        judged["integration"] = run.take("integration", integration, "integrations")
        judged["split_checks"] = split.metadata.get("split_checks", "") if split else ""
        result = run.run(judge, **judged, champion=present_champion, floor=floor, policy=applied, spec=measured)
        warnings = list(result.warnings)
    present(result, run.store, metrics, curves, report, summary)
    run.label(result.evaluation, metrics, curves, report, summary)
    if run.kept:
        run.give(evaluation, result.evaluation, verdict_facts(result.verdict, result.reasons))
    else:
        export_evaluation(run.store, result.evaluation, evaluation.path)
        evaluation.metadata.update(verdict_facts(result.verdict, result.reasons))
    return (result.verdict, list(result.reasons), warnings)
