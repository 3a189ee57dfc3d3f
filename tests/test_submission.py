"""A submission against a server that fails at every call in turn: there is one run in the end, and nothing doubled."""

from contextlib import suppress

import pytest

from gatehouse.components.kfp_api.client import KfpApi
from gatehouse.components.kfp_api.connection import KfpError
from gatehouse.submission import Submission, Upload
from tests.kfp_api import FAULTS, PERSISTENT, PIPELINE, KfpServer, impatient, serving
from tests.kfp_objects import Objects

WANTED = Submission(Upload("talks", "say", PIPELINE), {"word": "hello"}, experiment="talks")


def _counts(server: KfpServer) -> list[int]:
    objects = server.objects
    kept = objects.pipelines, objects.pipeline_versions, objects.experiments, objects.runs
    return [len(each) for each in kept]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_call_ends_in_one_run(fault: str) -> None:
    with serving() as server:
        once = WANTED.send(KfpApi.connect(server.endpoint, patience=PERSISTENT))
        wanted = _counts(server)
        for number in range(len(server.calls)):
            server.objects, before = Objects(), len(server.calls)
            server.faults = {before + number: fault}
            with suppress(KfpError):
                WANTED.send(KfpApi.connect(server.endpoint, patience=impatient(fault)))
            # With a short wait a busy machine may end it before.
            assert fault == "slow" or len(server.calls) > before + number, "the fault befell no call"
            server.down, server.faults = False, {}
            run = WANTED.send(KfpApi.connect(server.endpoint, patience=PERSISTENT))
            told = f"call {number}: {server.calls[before:]}"
            assert (run.name, _counts(server)) == (once.name, wanted), told
            wrote = len(server.writes)
            assert WANTED.send(KfpApi.connect(server.endpoint, patience=PERSISTENT)).id == run.id, told
            assert len(server.writes) == wrote, told
