"""The scores of a classifier of scikit-learn are judged; without a passing verdict the run ends."""

from kfp import dsl

from gatehouse.components import evaluate, require


@dsl.component(packages_to_install=["scikit-learn", "pandas", "pyarrow"])
def score_tumours(dataset: dsl.Output[dsl.Dataset]) -> None:
    """Train on half of the rows, and write labels and scores of the others."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.ensemble import RandomForestClassifier

    features, labels = load_breast_cancer(return_X_y=True, as_frame=True)
    trained = RandomForestClassifier(random_state=0).fit(features[::2], labels[::2])
    rows = features[1::2].assign(label=labels[1::2], score=trained.predict_proba(features[1::2])[:, 1])
    rows[["label", "score"]].to_parquet(dataset.path)


@dsl.pipeline
def example() -> None:
    scored = score_tumours()
    judged = evaluate(scores=scored.outputs["dataset"], policy={"bars": {"roc_auc": {"min": 0.9}}})
    require(verdict=judged.outputs["verdict"], reasons=judged.outputs["reasons"])
