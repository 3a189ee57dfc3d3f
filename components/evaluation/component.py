"""The KFP interface of the evaluate stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.artifacts.image import image_of


@dsl.component(base_image=image_of("evaluate"), packages_to_install=[], install_kfp_package=False)
def evaluate(
    store: str,
    model: str,
    champion: str,
    training_set: str,
    split: str,
    validation: str,
    leakage: str,
    split_checks: str,
    integration: str,
    spec: str,
    policy: str,
    code: str,
    force: str,
    metrics: dsl.Output[dsl.Metrics],
    roc: dsl.Output[dsl.ClassificationMetrics],
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
) -> NamedTuple("Outputs", [("evaluation", str), ("verdict", str), ("reasons", list)]):
    """Measure a candidate on the test part and judge it against policy, baseline and champion.

    Args:
        store: Address of the artifact store.
        model: Reference of the candidate.
        champion: Reference of the champion; empty for none.
        training_set: Reference of the training set.
        split: Reference of its split.
        validation: Reference of the contract's verdict on the data; empty for none.
        leakage: Reference of the check for leakage; empty for none.
        split_checks: Reference of the checks of the split; empty for none.
        integration: Reference of the candidate's integration suite; empty for none.
        spec: What is measured, as canonical JSON of an EvaluationSpec.
        policy: The promotion policy, as canonical JSON of a GatePolicy.
        code: Digest of the stage's code.
        force: A nonce that runs the stage whatever the memo holds; empty for none.

    Returns:
        evaluation: Reference of the evaluation.
        verdict: pass, refused or inconclusive.
        reasons: Why it is no pass.
        metrics: Test metrics for the UI.
        roc: The ROC curve and the confusion matrix for the UI.
        report: The report for the UI.
        summary: Verdict and reasons for the UI.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.evaluation import presentation, stage
    from gatehouse.components.evaluation.spec import EvaluationSpec, GatePolicy

    opened = ArtifactStore.open(store)
    measured, judged = EvaluationSpec.model_validate_json(spec), GatePolicy.model_validate_json(policy)
    data = {"training_set": training_set, "split": split, "validation": validation}
    checks = {"leakage": leakage, "split_checks": split_checks, "integration": integration}
    request = stage.EvaluateRequest(model=model, champion=champion, **data, **checks, spec=measured, policy=judged)
    result = stage.evaluate(request, opened, code=code, force=force)
    presentation.present(result, opened, metrics, roc, report, summary)
    return (result.evaluation, result.verdict, list(result.reasons))
