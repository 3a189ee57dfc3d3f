"""A submission against a server that fails at every call in turn: there is one run in the end, and nothing doubled."""

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from gatehouse.kfp.submission import Submission, Upload
from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.connection import KfpError
from tests.stand_ins.kfp_api import FAULTS, PERSISTENT, PIPELINE, KfpServer, Objects, impatient, serving

SUBMISSION = Submission(Upload("talks", "say", PIPELINE), {"word": "hello"}, experiment="talks")


def _counts(server: KfpServer) -> list[int]:
    objects = server.objects
    kept = objects.pipelines, objects.pipeline_versions, objects.experiments, objects.runs
    return [len(item) for item in kept]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_call_ends_in_one_run(fault: str) -> None:
    with serving() as server:
        once = SUBMISSION.send(KfpApi.connect(server.endpoint, patience=PERSISTENT))
        expected = _counts(server)
        for number in range(len(server.calls)):
            server.objects, before = Objects(), len(server.calls)
            server.faults = {before + number: fault}
            with suppress(KfpError):
                SUBMISSION.send(KfpApi.connect(server.endpoint, patience=impatient(fault)))
            # With a short wait a busy machine may end it before.
            assert fault == "slow" or len(server.calls) > before + number, "the fault befell no call"
            server.down, server.faults = False, {}
            run = SUBMISSION.send(KfpApi.connect(server.endpoint, patience=PERSISTENT))
            message = f"call {number}: {server.calls[before:]}"
            assert (run.name, _counts(server)) == (once.name, expected), message
            wrote = len(server.writes)
            assert SUBMISSION.send(KfpApi.connect(server.endpoint, patience=PERSISTENT)).id == run.id, message
            assert len(server.writes) == wrote, message


def _on(day: str, revision: str = "", **changes: Any) -> Submission:
    return replace(SUBMISSION, upload=replace(SUBMISSION.upload, date=day, revision=revision), **changes)


def test_what_people_see_begins_with_a_date_and_ends_with_the_digest(kfp_server: KfpServer) -> None:
    run = _on("2026-11-27", "v1.2-3-g1a2b3c4").send(KfpApi.connect(kfp_server.endpoint))
    (version,) = kfp_server.objects.pipeline_versions.values()
    assert re.fullmatch(r"2026-11-27 v1\.2-3-g1a2b3c4 sha256-[0-9a-f]{12}", version["display_name"])
    assert version["name"].startswith(version["display_name"].split()[-1]) and len(version["name"]) == 39
    assert re.fullmatch(r"2026-11-27, [0-9a-f]{12}", run.name)


@pytest.mark.parametrize("word", ["", "20130101-20130102"])
def test_the_same_is_found_on_another_day_and_at_another_commit(kfp_server: KfpServer, word: str) -> None:
    api = KfpApi.connect(kfp_server.endpoint)
    first = _on("2026-11-27", "1a2b3c4", word=word).send(api)
    wrote = list(kfp_server.writes)
    later = _on("2026-11-28", "5d6e7f8", word=word)
    assert later.send(api).id == first.id and kfp_server.writes == wrote
    again = later.again(api).send(api)
    assert again.name.endswith(f"{later.key}-2") and later.again(api).attempt == 3
    assert later.find(api) == first and len(kfp_server.objects.pipeline_versions) == 1


def test_each_thing_that_a_run_depends_on_is_in_its_digest() -> None:
    changes: list[dict[str, Any]] = [{"parameters": {"word": "bye"}}, {"experiment": "other"}, {"service_account": "a"}]
    changes += [
        {"plugins_input": {"mlflow": {"experiment_name": "talks"}}},
        {"upload": Upload("talks", "say", PIPELINE.replace("sha256:00", "sha256:01"))},
    ]
    keys = {replace(SUBMISSION, **change).key for change in [{}, *changes]}
    assert len(keys) == 1 + len(changes)


def test_two_who_upload_the_same_under_other_dates_make_one_version(kfp_server: KfpServer) -> None:
    """As at midnight, or from two checkouts: the server allows a name once."""
    api, objects = KfpApi.connect(kfp_server.endpoint, patience=PERSISTENT), kfp_server.objects
    upload, other = objects.upload_version, _on("2026-11-28", "5d6e7f8").upload

    def after_another(query: dict[str, str], file: tuple[str, bytes]) -> dict[str, object]:
        upload(query | {"display_name": other.display_name}, file)
        return upload(query, file)

    objects.upload_version = after_another  # type: ignore[method-assign, assignment]
    _on("2026-11-27", "1a2b3c4").send(api)
    assert [version["display_name"] for version in objects.pipeline_versions.values()] == [other.display_name]
