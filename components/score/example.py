"""Score a file of rows with the version of a model that is in production."""

from kfp import dsl

from gatehouse.components import resolve, score


@dsl.pipeline
def example(store: str = "store", model_name: str = "flight-delays", rows: str = "rows.parquet") -> None:
    """Score the file `rows` with the champion of the store."""
    champion = resolve(store=store, model_name=model_name)
    dataset = dsl.importer(artifact_uri=rows, artifact_class=dsl.Dataset)
    score(data=dataset.output, model=champion.outputs["model"])
