"""The champion is withdrawn, and the one before it is found."""

from kfp import dsl

from gatehouse.components import resolve, rollback


@dsl.pipeline
def example(store: str, version: int) -> None:
    withdrawn = rollback(store=store, model_name="diabetes", version=version, reason="Too many wrong answers.")
    resolve(store=store, model_name="diabetes").after(withdrawn)
