"""KFP's local runner: a refusal ends at once with its own words, and nothing is skipped without a word."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kfp import dsl, local
from kfp.local import pipeline_orchestrator

from gatehouse.components import require
from gatehouse.errors import ConfigurationError
from gatehouse.kfp import local_runner
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.store import ArtifactStore

RUN = "20240110-000000-abcd"


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_orchestrator, "run_local_pipeline", local_runner.run_local_pipeline)


def test_a_refusal_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_ID, RUN)
    store = ArtifactStore.open(tmp_path / "store")

    @dsl.pipeline(name="requires")  # type: ignore[untyped-decorator]  # kfp has no types
    def pipeline() -> None:
        require(store=store.address, verdict="fail", reasons=["tailnum: null"]).set_retry(num_retries=2)

    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "root"))
    with pytest.raises(RuntimeError, match="require"):
        pipeline()
    (failed,) = (event.body for _, event in events(store, RUN) if event.event == "failed")
    assert (failed["error"], failed["exit_code"]) == ("VerdictError", 2) and "tailnum: null" in failed["message"]


@dsl.component(base_image="python:3.11")  # type: ignore[untyped-decorator]  # kfp has no types
def judge() -> NamedTuple("Outputs", [("verdict", str), ("rows", int)]):  # type: ignore[valid-type]
    return ("pass", 3)


@dsl.component(base_image="python:3.11")  # type: ignore[untyped-decorator]  # kfp has no types
def same(text: str) -> str:
    return text


@dsl.component(base_image="python:3.11")  # type: ignore[untyped-decorator]  # kfp has no types
def note(path: str) -> None:
    open(path, "w").close()


def _conditional(output: Any, path: Path) -> Any:
    @dsl.pipeline(name="conditional")  # type: ignore[untyped-decorator]  # kfp has no types
    def pipeline() -> None:
        with dsl.If(output(judge()) == "pass"):
            note(path=str(path))

    return pipeline


def test_a_condition_on_a_named_output_is_refused_while_kfp_skips_it(tmp_path: Path) -> None:
    """If the second part fails, KFP mended its runner: remove the refusal, and the section of the docs."""
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "root"))
    named = _conditional(lambda task: task.outputs["verdict"], tmp_path / "named")
    with pytest.raises(ConfigurationError, match="'verdict' of judge"):
        named()
    local_runner.run_unprepared(pipeline_spec=named.pipeline_spec, arguments={})
    assert not (tmp_path / "named").exists()
    _conditional(lambda task: same(text=task.outputs["verdict"]).output, tmp_path / "passed")()
    assert (tmp_path / "passed").exists()
