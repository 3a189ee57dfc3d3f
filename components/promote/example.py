"""The champion is withdrawn, and the one before it is found."""

from kfp import dsl

from gatehouse.components import promote, resolve


@dsl.pipeline
def example(store: str, model_name: str, version: int) -> None:
    withdrawn = promote(
        action="rollback", store=store, model_name=model_name, version=version, reason="Too many wrong answers."
    )
    resolve(store=store, model_name=model_name).after(withdrawn)
