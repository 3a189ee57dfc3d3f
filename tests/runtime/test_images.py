"""What images are built from: a bill of materials that follows from the locks, and a build that downloads nothing."""

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from gatehouse.kfp.doctor.images import image_finding
from gatehouse.runtime.images import LOCKS
from tests.ports import free_port
from tests.source_tree import ROOT

SCHEMAS = ROOT / "tests" / "cyclonedx"


def _bill(image: str) -> str:
    script = [sys.executable, str(ROOT / "images" / "sbom.py"), image]
    return subprocess.run(script, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module", params=["training", "training-gpu"])
def bill(request: pytest.FixtureRequest) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(_bill(request.param))
    return body


def test_the_bill_is_cyclonedx(bill: dict[str, Any]) -> None:
    schemas = {path: json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")}
    registry: Registry[Any] = Registry().with_resources(
        [(path.name, Resource.from_contents(schema)) for path, schema in schemas.items()]
    )
    (form,) = [schema for path, schema in schemas.items() if path.name.startswith("bom")]
    assert [
        error.message for error in Draft7Validator({**form, "$id": "bom"}, registry=registry).iter_errors(bill)
    ] == []


def test_the_bill_lists_all_that_is_pinned_and_what_asked_for_it(bill: dict[str, Any]) -> None:
    locks = LOCKS[bill["metadata"]["component"]["name"].removeprefix("gatehouse-")]
    text = "".join((ROOT / "locks" / f"{lock}.lock").read_text() for lock in locks)
    assert [f"{item['name']}=={item['version']}" for item in bill["components"]] == sorted(
        re.findall(r"^[a-z0-9][\w.-]*==[^\s\\]+", text, re.MULTILINE), key=lambda pin: pin.split("==")[0]
    )
    needs = {
        dependency["ref"].split("@")[0]: {on.split("@")[0] for on in dependency["dependsOn"]}
        for dependency in bill["dependencies"]
    }
    assert "pkg:pypi/torch" in needs["pkg:pypi/gatehouse"]
    assert "pkg:pypi/alembic" in needs["pkg:pypi/optuna"]
    reached, pending = set(), ["pkg:pypi/gatehouse"]
    while pending:
        module = pending.pop()
        if module not in reached:
            reached.add(module)
            pending.extend(needs[module])
    assert reached == needs.keys(), "something is in the image that nothing asks for"


def test_each_image_has_a_digest_and_locks() -> None:
    assert list(yaml.safe_load((ROOT / "images" / "digests.lock").read_text())) == list(LOCKS)


def test_what_is_installed_comes_from_the_context_alone(tmp_path: Path) -> None:
    """With wheels in the context nothing is downloaded, digests are checked, and no project is left in the image."""
    context = tmp_path / "context"
    for folder in ("locks", "wheels", "gatehouse"):
        (context / folder).mkdir(parents=True)
    digest = _wheel(context / "wheels", "one")
    _wheel(context / "gatehouse", "gatehouse", "pipelines/projects/a", "feature_repo/b", "cli")
    (context / "locks" / "some.lock").write_text(f"one==1 --hash=sha256:{digest}\n")
    assert (ended := _installed(tmp_path, context)).returncode == 0, ended.stderr
    content = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("env/lib/*/site-packages/**/*.py")}
    assert {name.split("site-packages/")[1] for name in content} == {
        "one/__init__.py",
        "gatehouse/__init__.py",
        "gatehouse/cli.py",
    }
    (context / "locks" / "some.lock").write_text(f"one==1 --hash=sha256:{'0' * 64}\n")
    assert "do not match the hashes" in " ".join(_installed(tmp_path, context).stderr.split()).lower()


@pytest.mark.parametrize(
    ("build", "error"), [("none", "no CPU build of torch"), ("cuda", "found the CUDA build"), ("cpu", "")]
)
def test_the_image_for_cpus_has_the_cpu_build_of_torch_or_is_not_built(tmp_path: Path, build: str, error: str) -> None:
    context = tmp_path / "context"
    for folder in ("locks", "wheels", "gatehouse"):
        (context / folder).mkdir(parents=True)
    _wheel(context / "gatehouse", "gatehouse", "pipelines/projects/a", "feature_repo/b")
    (context / "locks" / "torch.lock").write_text("torch==1\n")
    if build != "none":
        _wheel(context / "wheels", "torch", requires="nvidia-cublas" if build == "cuda" else "sympy")
    ended = _installed(tmp_path, context, TORCH_INDEX=tmp_path.as_uri())
    assert (ended.returncode == 0) == (build == "cpu")
    assert error in ended.stderr


def _installed(folder: Path, context: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    shutil.rmtree(folder / "env", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", str(ROOT / "images" / "install.sh"), str(folder / "env"), str(context)],
        cwd=ROOT,
        env=os.environ | {"PATH": path} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _wheel(folder: Path, name: str, *modules: str, requires: str = "") -> str:
    """A wheel of empty modules; the digest of the file."""
    path = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for module in ("__init__", *modules):
            archive.writestr(f"{name}/{module}.py", "")
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
        metadata += f"Requires-Dist: {requires}\n" if requires else ""
        archive.writestr(f"{name}-1.dist-info/METADATA", metadata)
        archive.writestr(f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{name}-1.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """A real registry on this machine, empty."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("needs docker-registry")
    settings, address = tmp_path / "registry.yaml", f"127.0.0.1:{free_port()}"
    storage = {"filesystem": {"rootdirectory": str(tmp_path / "registry")}}
    settings.write_text(yaml.safe_dump({"version": 0.1, "storage": storage, "http": {"addr": address}}))
    with subprocess.Popen([program, "serve", str(settings)], stderr=subprocess.DEVNULL) as server:
        while server.poll() is None and image_finding("", f"{address}/a@sha256:{'1' * 64}").outcome != "failed":
            time.sleep(0.05)
        yield address
        server.terminate()


@pytest.mark.parametrize("program", ["docker", "podman", "buildah"])
def test_the_lock_gets_the_digest_that_the_registry_has(tmp_path: Path, registry: str, program: str) -> None:
    """The first engine that works builds a tiny image instead, and does the rest as it does."""
    real = shutil.which(program)
    if real is None or subprocess.run([real, "info"], capture_output=True, check=False).returncode:
        pytest.skip(f"needs {program} that works")
    for folder in ("images", "locks"):
        shutil.copytree(ROOT / folder, tmp_path / "clone" / folder)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "Containerfile").write_text(f"FROM scratch\nCOPY Containerfile /\n# {registry}\n")
    tag = f"localhost/gatehouse-test-{registry.partition(':')[2]}:1"
    tiny = f"build --quiet --tag {tag} --file {tmp_path}/tiny/Containerfile {tmp_path}/tiny"
    scripts = dict.fromkeys(("docker", "podman", "buildah"), "exit 1") | {
        program: f'[ "$1" != build ] || exec {real} {tiny}\nexec {real} "${{@/#gatehouse\\/control:*/{tag}}}"',
        "python": f'[ "$1" = -m ] || exec {sys.executable} "$@"',  # The wheel takes long, and nothing needs it.
    }
    for name, text in scripts.items():
        (path := tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)
    (insecure := tmp_path / "registries.conf").write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
    environment = os.environ | {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHON": "python",
        "PYTHONPATH": str(ROOT),
        "REGISTRY": f"{registry}/ml",
        "CONTAINERS_REGISTRIES_CONF": str(insecure),
    }
    script = ["bash", str(tmp_path / "clone" / "images" / "build.sh"), "control"]
    ended = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    pinned = yaml.safe_load((tmp_path / "clone" / "images" / "digests.lock").read_text())["control"]
    assert pinned.startswith(f"{registry}/ml/control@sha256:")
    assert image_finding("control", pinned).outcome == "passed"
    version = importlib.metadata.version("gatehouse")
    subprocess.run([real, "rmi", tag, f"{registry}/ml/control:{version}"], capture_output=True, check=True)
    subprocess.run([real, "pull", pinned], env=environment, capture_output=True, check=True)
    subprocess.run([real, "rmi", pinned], capture_output=True, check=True)


@pytest.fixture(scope="module")
def engine() -> str:
    """A container engine that answers, and the image that was built of the stages that steer a run."""
    import gatehouse

    name = shutil.which("docker")
    if name is None or subprocess.run([name, "info"], capture_output=True, check=False).returncode:
        pytest.skip("needs a running Docker daemon")
    image = f"gatehouse/control:{gatehouse.__version__}"
    if subprocess.run([name, "image", "inspect", image], capture_output=True, check=False).returncode:
        subprocess.run(["bash", str(ROOT / "images" / "build.sh"), "control"], check=True, timeout=1500)
    return image


@pytest.mark.timeout(1800)
def test_a_pipeline_runs_in_the_image_through_kfps_docker_runner(engine: str, tmp_path: Path) -> None:
    from kfp import dsl, local

    from gatehouse.components import resolve

    assert resolve.component_spec.implementation.container.image == engine

    @dsl.pipeline
    def before_any_champion() -> int:
        return resolve(store="/tmp/store", model_name="delay").outputs["version"]

    local.init(runner=local.DockerRunner(), pipeline_root=str(tmp_path))
    assert before_any_champion().output == 0
