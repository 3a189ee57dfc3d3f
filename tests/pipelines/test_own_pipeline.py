"""A pipeline of a user's own, made of components alone, trains a model that is registered."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, dsl, local

from gatehouse import components as gh
from gatehouse.errors import ConfigurationError
from gatehouse.registry.ledger import Ledger
from gatehouse.store.run import RUN_ID, end_of, events
from gatehouse.store.store import ArtifactStore
from tests.kfp.test_examples import EXAMPLES
from tests.small_example import MODEL, WINDOW
from tests.source_tree import ROOT


def own_pipeline(project: Path, store: str, location: str, seed: int) -> Any:
    file, policy = project / "project.yaml", gh.config(project / "policy.yaml")
    policy["champion"] = {"metric": "log_loss", "tolerance": 1.0}

    @dsl.pipeline(name="own")  # type: ignore[untyped-decorator]  # kfp has no types
    def own() -> None:
        ended = gh.report_end(store=store, project="own", pipeline="own", when="never")
        with dsl.ExitHandler(ended):
            source, contract = gh.config(file, "source"), gh.config(project / "contract.yaml")
            data = gh.snapshot(store=store, source=source, contract=contract, location=location, window=WINDOW).outputs
            rows = gh.compute_features(
                snapshot=data["snapshot"],
                validation=data["validation"],
                definitions=gh.config(project / "features"),
                project="flights",
                service="flight_delay",
                tables=True,
            ).outputs
            parts = gh.split(data=rows["training_set"], leakage=rows["leakage"], spec=gh.config(file, "split")).outputs
            spec, fitted = gh.config(file, "training"), gh.config(file, "transformation")
            trained = gh.train(split=parts["split"], spec=spec, transformation=fitted, seed=seed, model_name=MODEL)
            model, spec = trained.set_memory_limit("3G").outputs["model"], gh.config(file, "evaluation")
            judged = gh.evaluate(model=model, split=parts["split"], spec=spec, policy=policy, model_name=MODEL)
            gh.register(model=model, evaluation=judged.outputs["evaluation"], model_name=MODEL)

    return own


@pytest.mark.timeout(300)
def test_a_model_that_train_trained_in_a_pipeline_of_ones_own_is_registered(
    copy: ArtifactStore, project: Path, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RUN_ID, raising=False)
    before = len(Ledger(copy, MODEL).state().versions)
    pipeline = own_pipeline(project, copy.address, str(raw), seed=3)
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "root"))
    pipeline()
    (run,) = (path.name for path in (tmp_path / "root").iterdir())
    assert {event.stage for _, event in events(copy, run)} >= {"snapshot", "train", "evaluate", "register"}
    end = end_of(copy, run)
    assert end is not None and end["state"] == "succeeded"
    versions = Ledger(copy, MODEL).state().versions
    results = {event.stage: event.body["result"] for _, event in events(copy, run) if "result" in event.body}
    assert len(versions) == before + 1, results["register"]["reasons"]

    # The examples of components that need a champion score its rows, which the run wrote, and withdraw it.
    (rows,) = (tmp_path / "root" / run).glob("compute-features/training_set")
    for name, inputs in (("score", {"rows": str(rows)}), ("promote", {"version": len(versions)})):
        example = runpy.run_path(str(EXAMPLES[name]))["example"]
        example(store=copy.address, model_name=MODEL, **inputs)
    assert Ledger(copy, MODEL).state().champion == before

    # On a cluster it is the same pipeline, with all that the tasks need.
    compiler.Compiler().compile(pipeline, str(tmp_path / "own.yaml"))
    spec, platform = yaml.safe_load_all((tmp_path / "own.yaml").read_text())
    tasks = next(component["dag"]["tasks"] for component in spec["components"].values() if "dag" in component)
    assert all("enableCache" not in task.get("cachingOptions", {}) for task in tasks.values())
    train = spec["deploymentSpec"]["executors"]["exec-train"]["container"]
    assert (train["resources"]["resourceMemoryLimit"], train["resources"]["resourceCpuLimit"]) == ("3G", "2")
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert all(pod["fieldPathAsEnv"][0]["name"] == RUN_ID and pod["activeDeadlineSeconds"] for pod in pods.values())
    assert len(pods) == len(tasks) + 1


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("split.yaml", "strategy: time\ngap: 3 cows\n", "split.yaml:2: gap"),
        ("policy.yaml", "bars: {}\nwarning: stop\n", "policy.yaml:2: warning"),
        ("search.yaml", "", "search.yaml: "),
        ("spec.yaml", "a: 1", "found 'spec'"),
    ],
)
def test_configuration_is_refused_with_its_line_as_a_pipeline_is_built(
    tmp_path: Path, name: str, text: str, place: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationError, match=place):
        gh.config(tmp_path / name)


@pytest.mark.parametrize("kind", ["policy", "contract", "calibration", "search"])
def test_a_section_that_a_project_does_not_have_is_refused(kind: str) -> None:
    with pytest.raises(ConfigurationError, match=f"project.yaml: expected a section {kind}"):
        gh.config(ROOT / "pipelines" / "projects" / "flights" / "project.yaml", kind)
