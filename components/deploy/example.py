"""A version is promoted, and served by two pods in the cluster."""

from kfp import dsl

from gatehouse.components import deploy, promote


@dsl.pipeline
def example(store: str, model_name: str, version: int) -> None:
    promoted = promote(store=store, model_name=model_name, version=version, reason="It was the canary for a week.")
    deploy(store=store, model=model_name, settings={"replicas": 2, "arguments": ["--log", "all"]}).after(promoted)
