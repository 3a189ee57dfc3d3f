"""A pipeline whose end is recorded and reported, however it ends."""

from kfp import dsl

from gatehouse.components import report_end, require


@dsl.pipeline
def example(store: str) -> None:
    ended = report_end(store=store, project="flights", pipeline="nightly")
    with dsl.ExitHandler(ended, name="all tasks"):
        require(verdict="pass", store=store)
