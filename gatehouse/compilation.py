"""Compiles the pipelines of a project to YAML, and holds committed specs against the code and the policy."""

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gatehouse.components.artifacts.stage import declared_stages
from gatehouse.errors import GatehouseError
from gatehouse.project import Project

_MAX_CONSTANT_BYTES = 16 * 1024


class SpecError(GatehouseError):
    """A compiled spec is stale or breaks the policy; the message lists every finding."""


def compile_project(project: Project, folder: Path) -> list[Path]:
    """Compile every pipeline of `project` into `folder/<project>-<pipeline>.yaml`; returns the files."""
    from kfp import compiler

    from gatehouse.pipelines.catalog import build, names

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names():
        target = folder / f"{project.name}-{name}.yaml"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            compiler.Compiler().compile(build(name, project).function, str(target))
        written.append(target)
    return written


def check_project(project: Project, folder: Path, release: bool = False) -> None:
    """Fail unless the specs in `folder` are what the code compiles to, and keep the policy.

    Specs are compared parsed, without the version of the SDK that wrote them.

    Args:
        project: The project whose specs are checked.
        folder: Where the committed specs are.
        release: Require that images are named by digest.

    Raises:
        SpecError: naming every stale or missing spec and every breach.
    """
    findings: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        for fresh in compile_project(project, Path(directory)):
            committed = folder / fresh.name
            if not committed.is_file():
                findings.append(f"{committed} is missing")
            elif _parsed(committed) != _parsed(fresh):
                findings.append(f"{committed} is not what the code compiles to")
            findings.extend(f"{fresh.name}: {breach}" for breach in breaches(fresh, release))
    if findings:
        listed = "".join(f"\n  - {finding}" for finding in findings)
        raise SpecError(f"{len(findings)} findings in the compiled specs; compile again with `make compile`:{listed}")


def _parsed(path: Path) -> list[Any]:
    documents = list(yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader))
    for document in documents:
        if isinstance(document, dict):
            document.pop("sdkVersion", None)
    return documents


def breaches(path: Path, release: bool = False) -> Iterator[str]:
    """What in one compiled spec breaks the policy: resources, retries, timeout, cache, ASCII, secrets, images."""
    text = path.read_text()
    if not text.isascii():
        yield "is not ASCII"
    spec, *platform = yaml.load_all(text, Loader=yaml.CSafeLoader)
    executors = spec["deploymentSpec"]["executors"]
    settings = _platform_settings(platform)
    for name, task in _leaf_tasks(spec):
        label = spec["components"][task["componentRef"]["name"]]["executorLabel"]
        stage = label.removeprefix("exec-").replace("-", "_")
        yield from (f"task {name}: {finding}" for finding in _task_breaches(task, stage))
        yield from (f"task {name}: {finding}" for finding in _executor_breaches(executors[label], release))
        if "activeDeadlineSeconds" not in settings.get(label, {}):
            yield f"task {name}: has no timeout"


def _platform_settings(platform: list[Any]) -> dict[str, Any]:
    if not platform:
        return {}
    executors: dict[str, Any] = platform[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    return executors


def _leaf_tasks(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    dags = [spec["root"]["dag"], *(item["dag"] for item in spec["components"].values() if "dag" in item)]
    for dag in dags:
        for name, task in dag["tasks"].items():
            if "executorLabel" in spec["components"][task["componentRef"]["name"]]:
                yield name, task


def _task_breaches(task: dict[str, Any], stage: str) -> Iterator[str]:
    if stage not in declared_stages():
        yield f"there is no stage {stage!r}: no stage.py declares it"
        return
    effects = declared_stages()[stage].declared.effects
    if bool(task.get("cachingOptions", {}).get("enableCache", False)) != effects.memo:
        yield f"cache: expected enableCache={effects.memo}"
    if bool(task.get("retryPolicy", {}).get("maxRetryCount")) != effects.retry_safe:
        yield f"retries: expected {'some' if effects.retry_safe else 'none'}"
    for name, parameter in task.get("inputs", {}).get("parameters", {}).items():
        constant = parameter.get("runtimeValue", {}).get("constant")
        if isinstance(constant, str):
            yield from _constant_breaches(name, constant)


def _constant_breaches(name: str, constant: str) -> Iterator[str]:
    if len(constant.encode()) > _MAX_CONSTANT_BYTES:
        yield f"{name}: {len(constant.encode())} bytes, expected at most {_MAX_CONSTANT_BYTES}"
    for forbidden in ("{{$", "python3"):
        if forbidden in constant:
            yield f"{name}: holds {forbidden!r}, which KFP's local runner rewrites"
    for word in ("password", "secret_key", "access_key", "BEGIN PRIVATE KEY"):
        if word in constant:
            yield f"{name}: holds {word!r}; secrets reach tasks as Kubernetes secrets only"


def _executor_breaches(executor: dict[str, Any], release: bool) -> Iterator[str]:
    container = executor["container"]
    resources = container.get("resources", {})
    for wanted in ("resourceCpuRequest", "resourceCpuLimit", "resourceMemoryRequest", "resourceMemoryLimit"):
        if wanted not in resources:
            yield f"has no {wanted}"
    if release and "@sha256:" not in container["image"]:
        yield f"image {container['image']} is not named by digest"
