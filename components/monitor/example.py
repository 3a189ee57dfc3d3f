"""Compare the newest rows with those that a model was trained on."""

from kfp import dsl

from gatehouse.components import monitor


@dsl.component(packages_to_install=["scikit-learn", "pandas"])
def load(trained: dsl.Output[dsl.Dataset], newest: dsl.Output[dsl.Dataset]) -> None:
    """Write two halves of the patients that scikit-learn ships, with a score for each."""
    from sklearn.datasets import load_breast_cancer

    patients = load_breast_cancer(as_frame=True).frame.sample(frac=1.0, random_state=0)
    patients["score"] = (patients["mean radius"].rank(pct=True, ascending=False)).round(6)
    patients[:285].to_parquet(trained.path)
    patients[285:].to_parquet(newest.path)


@dsl.pipeline
def example() -> None:
    """Check drift of features, scores and labels, and the performance."""
    data = load().outputs
    rows = {"current": data["newest"], "baseline": data["trained"]}
    monitor(**rows, label="target", score="score", spec={"min_rows": 100})
