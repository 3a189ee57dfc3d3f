"""The stand-in answers as a real server did: it replays `tests/stand_ins/kfp_recorded.jsonl` in the same order.

The file holds what Kubeflow Pipelines 2.17.0 was asked and answered, without long specs and long lists. Compared are
the status, the fields and their types, every value but times, descriptions and what the server draws, and the words of
errors.
"""

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from tests.stand_ins.kfp_api import KfpServer, Objects, serving

RECORDED: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "stand_ins" / "kfp_recorded.jsonl").read_text().splitlines()
]
PIPELINE = """\
pipelineInfo: {name: any}
root:
  inputDefinitions:
    parameters:
      store: {parameterType: STRING, isOptional: true}
      version: {parameterType: NUMBER_INTEGER, isOptional: true}
schemaVersion: 2.1.0
"""
FREE = ("pipeline_spec", "parameters", "description", "tags", "next_page_token", "total_size", "tag_name", "commit_sha")
SHAPES = ("task_details", "state_history", "child_tasks")
"""Lists of which the file holds samples."""
SCHEDULED = re.compile(r"^(flights-monitoring-b34a3b)[0-9a-z]{5}(-1-)\d+$")
OWN_ID = {
    "experiments": "experiment_id",
    "pipelines": "pipeline_id",
    "pipelines/upload_version": "pipeline_version_id",
    "runs": "run_id",
    "recurringruns": "recurring_run_id",
}


@dataclass
class Named(Objects):
    """Objects that get the ids of the recorded ones, and what happened on the real server between the requests."""

    ids: list[str] = field(default_factory=list)

    def _id(self) -> str:
        return self.ids.pop(0) if self.ids else super()._id()

    def experiment(self, name: str, identity: str) -> None:
        self.ids = [identity]
        self.create_experiment({"display_name": name})

    def pipeline(self, name: str, identity: str, version: str) -> None:
        self.ids = [identity]
        self.create_pipeline({"name": name, "description": "d", "tags": {"project": "x"}})
        self.version_of(identity, f"{name}-1", version)

    def version_of(self, pipeline: str, name: str, identity: str) -> None:
        self.ids = [identity]
        query = {"pipelineid": pipeline, "name": name, "description": "d", "tags": '{"project": "x"}'}
        self.upload_version(query, ("any.yaml", PIPELINE.encode()))

    def started(
        self, name: str, identity: str, state: str, experiment: str, version: str = "", parameters: Any = None
    ) -> None:
        source = {"pipeline_version_reference": {"pipeline_version_id": version}, "description": "d"}
        spec = {"pipeline_spec": yaml.safe_load(PIPELINE)}
        config = {"runtime_config": {"parameters": parameters}} if parameters else {}
        self.ids = [identity]
        self.create_run({"display_name": name, "experiment_id": experiment} | (source if version else spec) | config)
        if state != "PENDING":
            self.end(identity, state)

    def at(self, moment: str) -> None:
        self.clock = datetime.fromisoformat(moment).timestamp()

    def fell_due(self, run: str) -> None:
        self.clock += 241
        self.ids = [run]
        self.fire()

    def end(self, run: str, state: str) -> None:
        self.begin_task(run, "say", state)
        # Nothing reported runs before: of those the history knows the beginning and the end.
        if self.clock > datetime.fromisoformat("2026-11-27T00:19:40Z").timestamp() and state != "RUNNING":
            self.set_state(run, "RUNNING")
        self.set_state(run, state)


SEMANTICS, FLIGHTS = "7ce56046-c4d6-4d7a-91fe-163b0e3892e3", "3fec588f-534f-466e-82f1-64ba4562c9a9"
DIST, TJ = "362e68af-d12a-4a5b-b9f7-7caacc3f93cb", "f18ad3e4-9d75-4c57-bd1e-ecafeed5415d"
TRAINING, DIST_VERSION = "7abca423-4907-4bb9-98b0-8c14ebd1d7fa", "2de94d27-f417-4f21-8069-6a641b509ed3"
PROMOTION, TJ_VERSION = "93577167-db32-42fc-8d9f-9364117c1fda", "b620fcd4-dac8-4030-9b32-1670138c8aa3"
RUN_OF_DIST, FIRED = "7a7acc53-2316-4a75-b1d8-85cf701ffe3e", "22e1bbc1-11eb-40ea-8700-d0ef3888f321"
RUN_OF_PROMOTION = "d7ac857b-9a13-40fa-ad40-08d64a71b331"
BETWEEN: dict[str, list[tuple[Any, ...]]] = {
    "runs of small pipelines": [
        ("end", "3a32f6fa-f7ac-44d6-b700-f8a82250e6e4", "FAILED"),
        ("started", "hello2", "3737528c-a730-4ca4-830a-6dcf6d26d629", "FAILED", SEMANTICS),
        ("started", "hello3", "d3ce393f-c16e-454e-9763-56d1dff37b6a", "SUCCEEDED", SEMANTICS),
        ("started", "retry1", "87628ff7-3a93-4ee7-b3f6-71441003147d", "FAILED", SEMANTICS),
    ],
    "a run of another project": [
        ("experiment", "flights", FLIGHTS),
        ("version_of", TRAINING, "sha256-cf920ee1d229e353609b50d58a7f60cc", "ac20e21f-ac9d-4d8d-b7a9-f0c54b3b861d"),
        ("version_of", TRAINING, "sha256-third", "00000000-0000-0000-0000-000000000003"),
        ("at", "2026-11-27T00:20:33Z"),
        ("started", "exit-plain", "2e424084-c31b-4652-95fc-285e19a39fe3", "FAILED", SEMANTICS),
        ("started", "exit-after", "2a059cc0-ad07-4aa0-93c9-d5a805e43f56", "SUCCEEDED", SEMANTICS),
        ("pipeline", "dist-training", "1841c271-b21f-4d94-ac58-c6640fceb14c", DIST_VERSION),
        ("experiment", "dist", DIST),
        ("started", "dist-training-0eb9a1a1cb08", RUN_OF_DIST, "PENDING", DIST, DIST_VERSION),
    ],
    "it began": [("end", RUN_OF_DIST, "RUNNING")],
    "a promotion ended": [
        ("pipeline", "flights-promotion", "96355216-9ac3-441d-a74f-4d8d7e0437ba", PROMOTION),
        (
            "started",
            "flights-promotion-a98c1ad60ce5",
            RUN_OF_PROMOTION,
            "SUCCEEDED",
            FLIGHTS,
            PROMOTION,
            {"version": 9},
        ),
    ],
    "monitoring was uploaded": [
        ("pipeline", "tj-training", "5522a5ee-4eeb-4627-bdc3-500371854bd2", TJ_VERSION),
        ("experiment", "tj", TJ),
        ("started", "tj-training-13dc94c6cad7", "47a4bac0-f4bc-4a49-a396-48f6d9840405", "RUNNING", TJ, TJ_VERSION),
        (
            *("pipeline", "flights-monitoring", "103c3da8-5b96-47c8-bca2-97ae0fac76ea"),
            "ba1bc136-2f2e-44a0-9a3f-f7742880025c",
        ),
    ],
    "the schedule fell due": [
        ("fell_due", FIRED),
        ("begin_task", FIRED, "snapshot", "SUCCEEDED"),
        ("begin_task", FIRED, "validate", "FAILED"),
        ("begin_task", FIRED, "monitor", ""),
    ],
    "the cancelling was reported": [("set_state", FIRED, "CANCELING")],
    "everything else": [("set_state", FIRED, "SUCCEEDED")],
    "one was deleted": [("delete_recurring_run", "9e0662f3-18ab-4b59-b9fa-b7a1997dd322", {})],
}
"""What happened between the recorded requests: methods of `Named` with their arguments."""


@pytest.fixture(scope="module")
def replayed() -> list[tuple[int, Any]]:
    """Status and answer of each request again."""
    with serving(objects=Named(clock=datetime.fromisoformat("2026-11-26T23:53:30Z").timestamp())) as server:
        (default,) = server.objects.experiments.values()
        default |= {"experiment_id": "e30e9db2-fde5-447c-82a5-a09a3e9da0e8"}
        server.objects.experiments = {default["experiment_id"]: default}
        return list(_replay(server))


def _replay(server: KfpServer) -> Iterator[tuple[int, Any]]:
    tokens: dict[str, str] = {}
    objects: Any = server.objects
    for record in RECORDED:
        if "before" in record:
            for step, *arguments in BETWEEN[record["before"]]:
                getattr(objects, step)(*arguments)
        path, body = record["path"], record.get("request")
        for recorded, token in tokens.items():
            path = path.replace(recorded, token)
        own = OWN_ID.get(path.partition("?")[0], "")
        objects.ids = [record["answer"][own]] if record["method"] == "POST" and own in record["answer"] else []
        url = f"{server.endpoint}/apis/v2beta1/{path}"
        sent: dict[str, Any] = {}
        if body == "<file>":
            sent = {"fields": {"uploadfile": ("any.yaml", PIPELINE)}}
        elif body is not None:
            spec = {"pipeline_spec": yaml.safe_load(PIPELINE)} if "pipeline_spec" in body else {}
            sent = {"body": json.dumps(body | spec)}
        answer = urllib3.request(record["method"], url, **sent)
        content = answer.json()
        if "next_page_token" in record["answer"]:
            tokens[record["answer"]["next_page_token"]] = content.get("next_page_token", "")
        yield answer.status, content


def _fields(node: Any) -> Any:
    """The fields and types of a value, without the values."""
    if isinstance(node, dict):
        return sorted((key, None if key in SHAPES else _fields(item)) for key, item in node.items())
    return type(node).__name__


SAMPLES: dict[str, list[Any]] = {key: [] for key in SHAPES}


def _collect(node: Any) -> None:
    for key, entry in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if key in SAMPLES:
            SAMPLES[key] += [_fields(item) for item in entry]
        _collect(entry)


_collect(RECORDED)


def _differences(answer: Any, real: Any, key: str = "", where: str = "") -> Iterator[str]:
    if key in FREE:
        if type(answer) is not type(real) and real != "<pruned>":
            yield f"{where}: expected {type(real).__name__}, found {answer!r}"
    elif key in SHAPES:
        yield from (f"{where}: no such item was seen: {item}" for item in answer if _fields(item) not in SAMPLES[key])
        if key == "state_history" and "state" in (real[0] if real else {}) and "task_details" not in where:
            states = [[entry.get("state") for entry in history] for history in (answer, real)]
            if states[0] != states[1]:
                yield f"{where}: expected {states[1]}, found {states[0]}"
    elif isinstance(real, dict) and isinstance(answer, dict):
        for name in sorted(real.keys() ^ answer.keys()):
            yield f"{where}.{name}: {'is missing' if name in real else 'was never seen'}"
        for name in sorted(real.keys() & answer.keys()):
            yield from _differences(answer[name], real[name], name, f"{where}.{name}")
    elif isinstance(real, list) and isinstance(answer, list):
        if len(answer) < len(real):
            yield f"{where}: expected {len(real)} items, found {len(answer)}"
        for number, (item, expected) in enumerate(zip(answer, real, strict=False)):
            yield from _differences(item, expected, "", f"{where}[{number}]")
    elif key.endswith("_at"):
        if real.startswith("1970") != answer.startswith("1970"):
            yield f"{where}: expected {real}, found {answer}"
    elif SCHEDULED.sub(r"\1\2", str(answer)) != SCHEDULED.sub(r"\1\2", str(real)):
        yield f"{where}: expected {real!r}, found {answer!r}"


def _words(message: str) -> str:
    """The words of an error, without what a parser of another language says, and which of several versions it names."""
    return re.split(r": proto:|\. Error: ", re.sub(r"\(e\.g\. [0-9a-f-]+\)", "", message))[0]


@pytest.mark.parametrize(
    "number", range(len(RECORDED)), ids=[f"{item['method']} {item['path'][:60]}" for item in RECORDED]
)
def test_the_stand_in_answers_as_the_server_did(replayed: list[tuple[int, Any]], number: int) -> None:
    record, (status, answer) = RECORDED[number], replayed[number]
    real = record["answer"]
    assert status == record["status"], answer
    if status == 200:
        assert not list(itertools.islice(_differences(answer, real), 20))
        return
    detail, expected = answer["details"][0], real["details"][0]
    assert (answer["code"], _words(detail["message"])) == (real["code"], _words(expected["message"]))
    assert answer.keys() == real.keys() and detail.keys() == expected.keys()
    assert _words(answer["message"]) in _words(real["message"]), "the cause"
