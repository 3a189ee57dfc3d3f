"""The policy: the example's specs keep it, and each rule is broken by an example of its own."""

import dataclasses
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from gatehouse.kfp.compilation.policy import RULES, breaches
from gatehouse.kfp.compilation.specification import Compiled, read_spec
from gatehouse.store.stage import TOLERATE

ROOT = Path(__file__).parents[3]
Body = dict[str, Any]
CHANGES: list[tuple[str, str, Callable[[Body, Body], None]]] = []
"""By rule: what is found, and what breaks it in the spec and in what the platform adds."""


def _breaks(rule: str, message: str) -> Callable[[Callable[[Body, Body], None]], None]:
    return lambda change: CHANGES.append((rule, message, change))


def _tasks(spec: Body) -> Body:
    """The tasks inside the exit handler."""
    tasks: Body = spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    return tasks


def _task(spec: Body, name: str) -> Body:
    task: Body = _tasks(spec)[name]
    return task


def _container(spec: Body, name: str) -> Body:
    container: Body = spec["deploymentSpec"]["executors"][f"exec-{name}"]["container"]
    return container


def _pod(platform: Body, name: str) -> Body:
    pod: Body = platform["deploymentSpec"]["executors"][f"exec-{name}"]
    return pod


def _fix(spec: Body, value: Any) -> None:
    _task(spec, "split")["inputs"]["parameters"]["spec"]["runtimeValue"]["constant"] = value


_breaks("component", "there is no component 'other'")(
    lambda spec, _: _container(spec, "split")["args"].__setitem__(-1, "other")
)
_breaks("resources", "task exit-handler-1/split: has no resourceMemoryLimit")(
    lambda spec, _: _container(spec, "split")["resources"].pop("resourceMemoryLimit")
)
_breaks("retries", "task exit-handler-1/split: retries: expected some")(
    lambda spec, _: _task(spec, "split").pop("retryPolicy")
)
_breaks("retries", "task exit-handler-1/split: retries: expected a backoffMaxDuration of at least")(
    lambda spec, _: _task(spec, "split")["retryPolicy"].update(backoffMaxDuration="300s")
)
_breaks("retries", "found 0s")(lambda spec, _: _task(spec, "split")["retryPolicy"].pop("backoffMaxDuration"))
_breaks("timeout", "task exit-handler-1/split: has no timeout")(
    lambda _, platform: _pod(platform, "split").pop("activeDeadlineSeconds")
)
_breaks("cache", "task exit-handler-1/register: cache: expected enableCache=False")(
    lambda spec, _: _task(spec, "register").update(cachingOptions={"enableCache": True})
)
_breaks("rights", "its pod may run as root")(
    lambda _, platform: _pod(platform, "split").update(securityContext={"runAsUser": "0"})
)
_breaks("rights", "its pod is privileged")(
    lambda _, platform: _pod(platform, "split").update(securityContext={"privileged": True})
)
_breaks("image-tag", "image registry:5000/ml/gatehouse: expected a version")(
    lambda spec, _: _container(spec, "split").update(image="registry:5000/ml/gatehouse")
)
_breaks("start", "installs packages when it starts")(
    lambda spec, _: _container(spec, "split")["command"].append("python3 -m pip install pandas")
)
_breaks("image-digest", "is not named by digest")(
    lambda spec, _: _container(spec, "split").update(image="gatehouse/gatehouse:0.1.0")
)
for _digest in ("abc", "0" * 64):
    _breaks("image-digest", f"image a/control@sha256:{_digest} is not named by digest")(
        lambda spec, _, digest=_digest: _container(spec, "split").update(image=f"a/control@sha256:{digest}")
    )
_breaks("platform", "is for this machine only")(
    lambda spec, _: spec["pipelineInfo"].update(
        description="Train.\n\nproject: flights\nplatform: this-machine\ngatehouse: 0.1.0"
    )
)
_breaks("platform", "`store` has no default")(
    lambda spec, _: spec["root"]["inputDefinitions"]["parameters"]["store"].update(defaultValue="")
)
_breaks("ascii", r"holds '\xe9'")(lambda spec, _: _fix(spec, "é"))
_breaks("size", "20000 bytes, expected at most 16384")(lambda spec, _: _fix(spec, "x" * 20_000))
_breaks("secrets", "task exit-handler-1/split: spec: holds 'password'")(lambda spec, _: _fix(spec, '{"password": "x"}'))
_breaks("secrets", "holds ''")(lambda spec, _: _fix(spec, "postgresql://reader:hunter2@db/flights"))
_breaks("secrets", "the variable TOKEN: holds 'AKIAABCDEFGHIJKLMNOP'")(
    lambda spec, _: _container(spec, "split").update(env=[{"name": "TOKEN", "value": "AKIAABCDEFGHIJKLMNOP"}])
)


@_breaks("after-handler", "task step: waits for exit-handler-1, the group of an exit handler")
def _after_handler(spec: Body, _: Body) -> None:
    spec["root"]["dag"]["tasks"]["step"] = deepcopy(_task(spec, "split")) | {"dependentTasks": ["exit-handler-1"]}


def _rules_of(breach: str) -> str:
    return breach.rpartition("[")[2].partition(":")[0]


def test_every_spec_of_the_example_keeps_the_policy(compiled: Path, released: Path) -> None:
    for folder, release in ((compiled, False), (released, True)):
        specs = list(folder.glob("*.yaml"))
        assert len(specs) == 6
        for path in specs:
            assert list(breaches(read_spec(path), release=release)) == []


@pytest.fixture(scope="module")
def training(released: Path) -> Compiled:
    return read_spec(released / "flights-training.yaml")


@pytest.mark.parametrize(
    ("rule", "message", "change"), CHANGES, ids=[f"{rule}-{n}" for n, (rule, *_) in enumerate(CHANGES)]
)
def test_each_breach_of_the_policy_is_found_by_its_rule(
    training: Compiled, rule: str, message: str, change: Callable[[Body, Body], None]
) -> None:
    spec, platform = deepcopy(training.spec), deepcopy(training.platform)
    change(spec, platform)
    text = json.dumps([spec, platform])
    result = list(breaches(dataclasses.replace(training, text=text, spec=spec, platform=platform), release=True))
    assert any(message in item and _rules_of(item) == rule for item in result), result


def test_every_rule_has_a_breach_here_and_its_reason_in_the_documentation() -> None:
    assert {rule for rule, *_ in CHANGES} == set(RULES)
    documented = (ROOT / "docs" / "specs.md").read_text()
    for rule in RULES.values():
        assert f"| `{rule.name}` | {rule.why[0].upper()}{rule.why[1:]}." in documented


def test_a_task_whose_failure_is_let_pass_is_not_cached(released: Path) -> None:
    training = read_spec(released / "flights-training.yaml")
    spec = deepcopy(training.spec)
    assert _task(spec, "split")["cachingOptions"]["enableCache"]
    _container(spec, "split")["env"] = [{"name": TOLERATE, "value": "split"}]
    (result,) = breaches(dataclasses.replace(training, spec=spec))
    assert result.startswith("task exit-handler-1/split: cache: expected enableCache=False")
    _task(spec, "split")["cachingOptions"] = {}
    assert list(breaches(dataclasses.replace(training, spec=spec))) == []
