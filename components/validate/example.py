"""Stop a pipeline where its data is not what was promised."""

from kfp import dsl

from gatehouse.components import require, validate


@dsl.component(packages_to_install=["scikit-learn", "pandas"])
def load(flowers: dsl.Output[dsl.Dataset]) -> None:
    from sklearn.datasets import load_iris

    load_iris(as_frame=True).frame.to_csv(flowers.path, index=False)


@dsl.pipeline
def example() -> None:
    length = {"type": "double", "nullable": False, "min": 0.1, "max": 10}
    columns = {"sepal length (cm)": length, "target": {"type": "int64", "allowed": [0, 1, 2]}}
    judged = validate(data=load().output, contract={"columns": columns, "extra_columns": "allow"})
    require(verdict=judged.outputs["verdict"], reasons=judged.outputs["reasons"])
