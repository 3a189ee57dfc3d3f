"""A regression of scikit-learn is compared with the champion, and registered behind the gate."""

from kfp import dsl

from gatehouse.components import evaluate, register, resolve


@dsl.component(packages_to_install=["scikit-learn", "pandas", "pyarrow"])
def train(champion: dsl.Input[dsl.Model], model: dsl.Output[dsl.Model], dataset: dsl.Output[dsl.Dataset]) -> None:
    import os

    import numpy as np
    from sklearn.datasets import load_diabetes
    from sklearn.linear_model import Ridge

    features, labels = load_diabetes(return_X_y=True, as_frame=True)
    weights = Ridge(0.1).fit(features[::2], labels[::2]).coef_
    os.makedirs(model.path)
    np.save(f"{model.path}/weights.npy", weights)
    rows = features[1::2].assign(label=labels[1::2], score=features[1::2] @ weights + 152, old=None)
    if os.path.exists(f"{champion.path}/weights.npy"):
        rows["old"] = features[1::2] @ np.load(f"{champion.path}/weights.npy") + 152
    rows.to_parquet(dataset.path)


@dsl.pipeline
def example(store: str) -> None:
    registered = {"store": store, "model_name": "diabetes"}
    present = resolve(**registered).outputs
    trained = train(champion=present["model"]).outputs
    compared = {"champion_score": "old", "champion": present["model"], "model": trained["model"]}
    judged = evaluate(scores=trained["dataset"], task="regression", **compared).outputs
    register(model=trained["model"], evaluation=judged["evaluation"], reason="the weekly training", **registered)
