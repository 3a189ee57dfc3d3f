"""The YAML of the page on tuning is an experiment that a project takes, with all that the page says of it."""

import re

import pytest
import yaml
from typer.testing import CliRunner

from gatehouse.cli.tuning import app
from gatehouse.project.platforms import Platform
from gatehouse.runtime.images import image
from gatehouse.training.spec import train_spec
from gatehouse.tuning.access import storage
from gatehouse.tuning.access.storage import STORAGE
from gatehouse.tuning.algorithms import Algorithm, EarlyStopping
from gatehouse.tuning.configuration import infeasible
from gatehouse.tuning.spec import ExperimentSpec
from tests.source_tree import ROOT

PAGE = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
SNIPPETS = [each for each in BLOCKS if each.startswith("tuning:")]
MANIFESTS = list(yaml.safe_load_all((ROOT / "docs" / "tuning-storage.yaml").read_text(encoding="utf-8")))


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) >= 5


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_every_snippet_is_an_experiment(snippet: str) -> None:
    spec = ExperimentSpec.model_validate(yaml.safe_load(snippet)["tuning"])
    base = train_spec({"model": {"architecture": "tabular_mlp"}, "stopping": {"epochs": 6}})
    assert infeasible(spec, base) == []


@pytest.mark.parametrize("union", [Algorithm, EarlyStopping], ids=["algorithm", "early_stopping"])
def test_the_page_names_every_algorithm(union: object) -> None:
    models = union.__origin__.__args__  # type: ignore[attr-defined]  # The union inside of its annotations.
    names = [model.model_fields["name"].default for model in models]
    assert len(names) >= 5
    assert [name for name in names if f"| `{name}`" not in PAGE] == []


def test_the_manifest_serves_the_database_to_the_pods_that_search_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    by_kind = {each["kind"]: each for each in MANIFESTS}
    pods = by_kind["Deployment"]["spec"]["template"]
    (container,) = pods["spec"]["containers"]
    (profile,) = (yaml.safe_load(each) for each in BLOCKS if each not in SNIPPETS)
    search = Platform.model_validate({"name": "cluster", "store": "gs://b/g", **profile}).of("train")

    served: list[object] = []
    monkeypatch.setenv(STORAGE, "postgresql://the-secret")
    monkeypatch.setattr(storage, "serve", lambda *given: served.extend(given[:3]))
    result = CliRunner().invoke(app, container["command"][2:])
    (port,) = by_kind["Service"]["spec"]["ports"]
    assert container["command"][:2] == ["gatehouse", "tuning"] and result.exit_code == 0
    assert served == ["postgresql://the-secret", "0.0.0.0", port["port"]]

    (variable,) = container["env"]
    assert variable["name"] == STORAGE and "secretKeyRef" in variable["valueFrom"]
    assert container["image"] == image("training")
    assert container["ports"] == [{"name": port["targetPort"], "containerPort": port["port"]}]
    assert container["readinessProbe"] == {"tcpSocket": {"port": port["targetPort"]}}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pods["spec"]["volumes"] == [{"name": "tmp", "emptyDir": {}}], "Python and libraries write to /tmp"
    assert container["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]
    (given,) = search.environment
    assert (given.variable, given.source, given.name) == (STORAGE, "config_map", "gatehouse-tuning")
    address = by_kind["ConfigMap"]["data"][given.key]
    assert address == f"grpc://{by_kind['Service']['metadata']['name']}:{port['port']}"

    policy = by_kind["NetworkPolicy"]["spec"]
    labels = pods["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == by_kind["Service"]["spec"]["selector"] == labels
    assert by_kind["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    (way,) = policy["ingress"]
    assert [one["podSelector"]["matchLabels"] for one in way["from"]] == [search.labels]
    assert [one["port"] for one in way["ports"]] == [port["port"]]
    assert "secretKeyRef" not in str([each for each in MANIFESTS if each["kind"] != "Deployment"])
