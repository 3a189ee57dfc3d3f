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
    @dsl.pipeline(name="own")
    def own() -> None:
        file = project / "project.yaml"
        ended = gh.report_end(store=store, project="own", pipeline="own", when="never")
        with dsl.ExitHandler(ended):
            source, contract = gh.config(file, "source"), gh.config(project / "contract.yaml")
            taken = gh.snapshot(store=store, source=source, contract=contract, location=location, window=WINDOW).outputs
            gh.require(verdict=taken["verdict"], reasons=taken["reasons"], subject="The contract", store=store)
            rows = gh.compute_features(
                store=store,
                snapshot=taken["snapshot"],
                definitions=gh.config(project / "features"),
                project="flights",
                as_of=taken["as_of"],
                service="flight_delay",
            ).outputs["training_set"]
            spec, fitting = gh.config(file, "split"), gh.config(file, "transformation")
            parts = gh.split(
                store=store, training_set=rows, spec=spec, transformation=fitting, model_name=MODEL
            ).outputs
            settings = {"spec": gh.config(file, "training"), "seed": seed, "model_name": MODEL}
            trained = gh.train(
                store=store, split=parts["split"], transformation=parts["transformation"], **settings
            ).set_memory_limit("3G")
            model, policy = trained.outputs["model"], gh.config(project / "policy.yaml")
            policy["champion"] = {"metric": "log_loss", "tolerance": 1.0}
            measured = {"split": parts["split"], "spec": gh.config(file, "evaluation")}
            judged = gh.evaluate(store=store, model=model, model_name=MODEL, policy=policy, **measured)
            evaluation = judged.outputs["evaluation"]
            gh.register(store=store, model_name=MODEL, model=model, evaluation=evaluation)

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

    # The examples of components that need a champion score its rows, and withdraw it.
    rows = next(
        path for path in copy.paths(results["retrieve_training_set"]["training_set"]) if path.suffix == ".parquet"
    )
    for name, inputs in (
        ("score_dataset", {"rows": str(rows)}),
        ("rollback", {"version": len(versions)}),
    ):
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
