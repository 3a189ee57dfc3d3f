"""Keep the data of every run, so that a model can be traced back to its rows."""

from kfp import dsl

from gatehouse.components import snapshot


@dsl.component(packages_to_install=["scikit-learn", "pandas", "pyarrow"])
def load(patients: dsl.Output[dsl.Dataset]) -> None:
    from sklearn.datasets import load_breast_cancer

    load_breast_cancer(as_frame=True).frame.to_parquet(patients.path)


@dsl.pipeline
def example(store: str = "store") -> None:
    snapshot(dataset=load().output, store=store, name="patients")
