"""What the server refuses, and with which code and words: read in the source of the API server, held by the stand-in.

With GATEHOUSE_TEST_KFP_ENDPOINT the same requests go to that server instead; see `tests/stand_ins/kfp_api.py`.
"""

import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import urllib3

from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.specs import version_name
from tests.stand_ins.kfp_api import PIPELINE, serving

NAME = "gatehouse-test-refusals"
PREDICATE = {"operation": "EQUALS", "key": "colour", "string_value": "red"}
DAILY = {"cron_schedule": {"cron": "0 0 4 * * *"}}

REFUSED: dict[str, tuple[str, str, dict[str, Any], int, str]] = {
    "a field that the API does not know": ("POST", "runs", {"name": "x"}, 400, 'unknown field "name"'),
    "a run without a name": ("POST", "runs", {}, 500, "Run name cannot be empty"),
    "a run without a pipeline": ("POST", "runs", {"display_name": "x"}, 500, "empty pipeline spec manifest"),
    "a run of a version that is not there": (
        "POST",
        "runs",
        {"display_name": "x", "pipeline_version_reference": {"pipeline_version_id": "none"}},
        500,
        "error fetching manifest",
    ),
    "a parameter that is missing": ("POST", "runs", {"parameters": {}}, 400, "word"),
    "a parameter that the pipeline lacks": ("POST", "runs", {"parameters": {"word": "a", "loud": 1}}, 400, "loud"),
    "a parameter of another type": ("POST", "runs", {"parameters": {"word": 1}}, 400, "word"),
    "a value that is none of the choices": ("POST", "runs", {"parameters": {"word": "a", "tone": "x"}}, 400, "tone"),
    "a recurring run without a name": ("POST", "recurringruns", {}, 500, "name cannot be empty"),
    "more at once than ten": ("POST", "recurringruns", {"max_concurrency": "11"}, 400, "at most 10. Received 11"),
    "none at once": ("POST", "recurringruns", {"display_name": "x", "trigger": DAILY}, 400, "at most 10. Received 0"),
    "a bad cron": (
        "POST",
        "recurringruns",
        {"max_concurrency": "1", "trigger": {"cron_schedule": {"cron": "0 0 25 * * *"}}},
        400,
        "not a supported format",
    ),
    "an interval of nothing": (
        "POST",
        "recurringruns",
        {"max_concurrency": "1", "trigger": {"periodic_schedule": {"interval_second": "0"}}},
        400,
        "invalid period schedule interval 0",
    ),
    "a pipeline of the same name": ("POST", "pipelines", {"name": NAME}, 409, "already exist"),
    "a pipeline without a name": ("POST", "pipelines", {}, 400, "name is required"),
    "a tag with a dot": ("POST", "pipelines", {"name": "x", "tags": {"a.b": "c"}}, 400, "a.b"),
    "a run that is not there": ("GET", "runs/none", {}, 404, "Run none not found"),
    "a pipeline that is not there": ("GET", "pipelines/names/none", {}, 404, "none not found"),
    "an experiment that is not there": ("GET", "runs", {"experiment_id": "none"}, 404, "Experiment none not found"),
    "a filter on what is no column": (
        "GET",
        "runs",
        {"filter": quote(json.dumps({"predicates": [PREDICATE]}))},
        400,
        "unrecognized field",
    ),
    "a filter that is no JSON": ("GET", "runs", {"filter": "red"}, 400, "failed to parse valid filter"),
    "an order by what is no column": ("GET", "runs", {"sort_by": "colour"}, 400, "Invalid sorting field"),
    "an order of three words": ("GET", "runs", {"sort_by": "a b c"}, 400, "invalid sort by format"),
    "a page token that is none": ("GET", "runs", {"page_token": "red!"}, 400, "Invalid page token"),
    "a page of less than nothing": ("GET", "runs", {"page_size": -1}, 400, "page size should be greater than 0"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[KfpApi, dict[str, Any]]]:
    """A server of yours, or the stand-in; and what a run or a recurring run of a pipeline there is."""
    with serving() as stand_in:
        endpoint = os.environ.get("GATEHOUSE_TEST_KFP_ENDPOINT", "") or stand_in.endpoint
        named = {name: os.environ.get(f"GATEHOUSE_TEST_KFP_{name.upper()}", "") for name in ("namespace", "token")}
        api = KfpApi.connect(endpoint, **named)
        pipeline = api.pipeline(NAME)
        version = api.upload_version(pipeline.id, PIPELINE)
        source = {"pipeline_id": pipeline.id, "pipeline_version_id": version.id}
        yield api, {"display_name": NAME, "pipeline_version_reference": source}


def sent(api: KfpApi, method: str, path: str, body: dict[str, Any]) -> tuple[int, str]:
    """Status and text of an answer, as it comes."""
    token = os.environ.get("GATEHOUSE_TEST_KFP_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"{api.endpoint}/apis/v2beta1/{path}"
    if method == "GET":
        answer = urllib3.request(method, f"{url}?{urlencode(body)}", headers=headers)
    else:
        answer = urllib3.request(method, url, headers=headers, json=body)
    return answer.status, answer.data.decode()


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(server: tuple[KfpApi, dict[str, Any]], case: str) -> None:
    api, valid = server
    method, path, body, status, words = REFUSED[case]
    if "parameters" in body:
        body = valid | {"runtime_config": body}
    elif "max_concurrency" in body:
        body = valid | {"runtime_config": {"parameters": {"word": "a"}}} | body
    found, text = sent(api, method, path, body)
    assert found == status and words in json.loads(text)["message"], text


def test_an_upload_is_refused_in_its_own_form(server: tuple[KfpApi, dict[str, Any]]) -> None:
    api, valid = server
    pipeline = valid["pipeline_version_reference"]["pipeline_id"]
    asked = {"pipelineid": pipeline, "name": version_name(PIPELINE)}
    for query, text, status in ((asked, PIPELINE, 409), (asked | {"name": "x"}, "a: 1", 400), ({}, PIPELINE, 400)):
        url = f"{api.endpoint}/apis/v2beta1/pipelines/upload_version?{urlencode(query)}"
        answer = urllib3.request("POST", url, fields={"uploadfile": ("pipeline.yaml", text)})
        assert answer.status == status and set(answer.json()) == {"error_message", "error_details"}
