"""`gatehouse deploy`: the platform's profile, manifests for GitOps, and the component with the same effect."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gatehouse import components
from gatehouse.cli import main as cli
from gatehouse.errors import ConfigurationError
from gatehouse.registry.ledger import CHAMPION
from gatehouse.store.store import ArtifactStore
from tests.components import call
from tests.deployment.conftest import answering, on
from tests.server.live import Live


def run(*words: str) -> str:
    cli.register("deploy")
    result = CliRunner().invoke(cli.app, ["deploy", *words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def profile(live: Live, tmp_path: Path) -> Path:
    live.promote(1, CHAMPION)
    volumes = [{"claim": "store", "path": str(live.store.address)}]
    body: dict[str, Any] = {"name": "near", "store": str(live.store.address), "pods": {"volumes": volumes}}
    body |= {"images": {"training": "training@sha256:1"}, "deploy": {"namespace": "ml", "replicas": 2}}
    (tmp_path / "near.yaml").write_text(yaml.safe_dump(body))
    return tmp_path / "near.yaml"


def test_a_file_has_the_manifests_and_nothing_is_applied(profile: Path, tmp_path: Path) -> None:
    file, where = tmp_path / "gitops" / "delays.yaml", ("delays", "--platform", str(profile))
    assert run(*where, "--file", str(file)).split() == [str(file)]
    first = file.read_bytes()
    kinds = [body["kind"] for body in yaml.safe_load_all(first)]
    assert kinds == ["Service", "Deployment"]
    run(*where, "--file", str(file))
    assert file.read_bytes() == first
    run(*where, "--kind", "kserve", "--file", str(file))
    assert [body["kind"] for body in yaml.safe_load_all(file.read_bytes())] == ["InferenceService"]
    with pytest.raises(ConfigurationError, match="--rollback"):
        run(*where, "--file", str(file), "--rollback")


def test_command_and_component_have_the_same_effect(
    live: Live,
    predictor: str,
    profile: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with on(live, answering(predictor), monkeypatch) as cluster:
        result = json.loads(run("delays", "--platform", str(profile), "--json"))
        assert (result["version"], result["address"]) == (1, "http://delays.ml.svc") and len(cluster.pods) == 2
        assert "delays.ml.svc" in run("delays", "--platform", str(profile))
        pods = {*cluster.pods}
        volumes = [{"claim": "store", "path": str(live.store.address)}]
        settings = {"replicas": 2, "image": "training@sha256:1", "volumes": volumes}
        output = call(components.deploy, tmp_path, store=str(live.store.address), model="delays", settings=settings)
        assert (output.version, output.address) == (1, "http://delays.ml.svc") and {*cluster.pods} == pods
        store = ArtifactStore.open(live.store.address)
        by_both = [
            store.manifest(output.deployment.metadata["reference"]).files,
            store.manifest(result["deployment"]).files,
        ]
        assert by_both[0] == by_both[1]
