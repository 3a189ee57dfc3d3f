"""Where KFP tries a failed task again, what failed for good does no work again, through KFP's own local runner."""

from pathlib import Path

import pytest
from kfp import dsl, local

from gatehouse.components import require
from gatehouse.kfp import local_runner
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.store import ArtifactStore

RUN = "20240110-000000-abcd"


def test_a_permanent_error_ends_each_retry_at_once_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(RUN_ID, RUN)
    store = ArtifactStore.open(tmp_path / "store")

    @dsl.pipeline(name="requires")
    def pipeline() -> None:
        task = require(store=store.address, verdict="fail", reasons=["tailnum: null"])
        task.set_retry(num_retries=2, backoff_duration="0s")

    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "root"))
    with pytest.raises(RuntimeError, match="require"):
        local_runner.run_unprepared(pipeline_spec=pipeline.pipeline_spec, arguments={})  # It tries again, as Argo does.
    failed = [event.body for _, event in events(store, RUN) if event.event == "failed"]
    assert [(body["error"], body["exit_code"]) for body in failed] == [("VerdictError", 2)] * 3
    assert len({body["message"] for body in failed}) == 1 and "tailnum: null" in failed[0]["message"]
    # The first attempt looked, the others repeated what it found.
    output = capfd.readouterr().out
    assert output.count("gatehouse.errors.VerdictError: ") == 1
    assert output.count("gatehouse.errors.RepeatedError: ") == 2
