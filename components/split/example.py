"""Divide the rows of a Dataset, fit on one part, and measure on another."""

from kfp import dsl

from gatehouse.components import require, split


@dsl.component(packages_to_install=["scikit-learn", "pandas", "pyarrow"])
def load(digits: dsl.Output[dsl.Dataset]) -> None:
    from sklearn.datasets import load_digits

    load_digits(as_frame=True).frame.to_parquet(digits.path)


@dsl.pipeline
def example() -> None:
    parts = split(data=load().output, label="target", task="multiclass", spec={"strategy": "stratified"})
    require(verdict=parts.outputs["verdict"], reasons=parts.outputs["reasons"])
