"""Divide the rows of a Dataset, fit on one part, and measure on another."""

from kfp import dsl

from gatehouse.components import require, split_dataset


@dsl.component(packages_to_install=["scikit-learn", "pandas"])
def load(digits: dsl.Output[dsl.Dataset]) -> None:
    """Write the images of digits that scikit-learn ships as Parquet, a column for each pixel."""
    from sklearn.datasets import load_digits

    load_digits(as_frame=True).frame.to_parquet(digits.path)


@dsl.pipeline
def example() -> None:
    """Divide so that every part has each digit as often, and end the run if an image is on two sides."""
    parts = split_dataset(dataset=load().output, label="target", task="multiclass", strategy={"strategy": "stratified"})
    require(verdict=parts.outputs["verdict"], reasons=parts.outputs["reasons"])
