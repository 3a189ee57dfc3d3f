"""Keep the data of every run, so that a model can be traced back to its rows."""

from kfp import dsl

from gatehouse.components import snapshot_dataset


@dsl.component(packages_to_install=["scikit-learn", "pandas"])
def load(patients: dsl.Output[dsl.Dataset]) -> None:
    """Write the patients that scikit-learn ships as Parquet."""
    from sklearn.datasets import load_breast_cancer

    load_breast_cancer(as_frame=True).frame.to_parquet(patients.path)


@dsl.pipeline
def example(store: str = "store") -> None:
    """Take a snapshot; `store` is a folder here, and s3://bucket/store or gs://bucket/store on a cluster."""
    snapshot_dataset(dataset=load().output, store=store, name="patients")
