"""Runs a pipeline of as many empty tasks as its argument says: what `pipeline_overhead` compares with."""

import sys
import tempfile
import warnings

from kfp import dsl, local

TASKS = int(sys.argv[1])


@dsl.component(base_image="python:3.11", packages_to_install=[], install_kfp_package=False)
def empty(text: str) -> str:
    """Hand the text on."""
    return text


@dsl.pipeline(name="empty")
def pipeline(text: str = "") -> None:
    """One empty task after another."""
    task = None
    for _ in range(TASKS):
        task = empty(text=text if task is None else task.output)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as root:
        local.init(local.SubprocessRunner(use_venv=False), pipeline_root=root)
        pipeline()
