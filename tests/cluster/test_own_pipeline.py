"""A user's own pipeline of components, imported and loaded from their files, on a real cluster."""

import json
import os
import re
import subprocess
from contextlib import suppress
from typing import Any

import pytest
from kfp import components, dsl

from gatehouse import components as gh
from gatehouse.registry.ledger import Ledger
from gatehouse.store.run import events
from gatehouse.store.store import ArtifactStore
from tests.cluster.conftest import MINUTES, Cluster, start
from tests.cluster.test_cluster import PIPELINE_ROOT
from tests.source_tree import ROOT

pytestmark = pytest.mark.timeout(3600)
KINDS = ("local", "pytorchjob", "trainjob")
SECONDS_TO_END, SECONDS_TO_COME_BACK = 60.0, 90.0
"""A script that ignores SIGTERM has 100 seconds; one that has ended at it keeps no pod."""

SCRIPT = """
import os, pathlib, time, torch, torch.distributed as dist
import pandas as pd

dist.init_process_group("gloo")
rows = pd.read_parquet(os.environ["GATEHOUSE_INPUT_DATA"])
x, y = torch.tensor(rows[["a", "b"]].to_numpy(), dtype=torch.float32), torch.tensor(rows["label"].to_numpy())
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
saved, first = pathlib.Path(os.environ["GATEHOUSE_CHECKPOINTS"]) / "last.pt", 0
if saved.exists():
    first, weights = torch.load(saved, weights_only=True)
    model.load_state_dict(weights)
print(f"first={first}", flush=True)
for epoch in range(first, 40):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad(), loss.backward(), optimizer.step()
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"epoch={epoch} loss={loss.item():.4f}", flush=True)
        if epoch % 10 == 9:
            torch.save((epoch + 1, model.state_dict()), f"{saved}.new")
            os.rename(f"{saved}.new", saved)
    time.sleep(float(os.environ["PAUSE"]))
if dist.get_rank() == 0:
    from safetensors.torch import save_file
    save_file(model.state_dict(), os.environ["GATEHOUSE_OUTPUT"] + "/weights.safetensors")
"""


def own(image: str) -> tuple[Any, Any]:
    """Two components of the user's own, in an image that has pandas and torch."""

    @dsl.component(base_image=image, packages_to_install=[], install_kfp_package=False)
    def make(rows: dsl.Output[dsl.Dataset], broken: bool = False) -> None:
        import numpy as np
        import pandas as pd

        random = np.random.default_rng(0)
        table = pd.DataFrame(random.normal(size=(600, 2)), columns=["a", "b"])
        table["label"] = (table["a"] + table["b"] > 0).astype("int64") + (7 if broken else 0)
        table.to_parquet(rows.path)

    @dsl.component(base_image=image, packages_to_install=[], install_kfp_package=False)
    def score(
        rows: dsl.Input[dsl.Dataset],
        model: dsl.Input[dsl.Model],
        champion: dsl.Input[dsl.Model],
        scores: dsl.Output[dsl.Dataset],
    ) -> None:
        import os

        import pandas as pd
        import torch
        from safetensors.torch import load_file

        table = pd.read_parquet(rows.path)
        x = torch.tensor(table[["a", "b"]].to_numpy(), dtype=torch.float32)
        for column, file in (
            ("score", f"{model.path}/weights.safetensors"),
            ("old", f"{champion.path}/weights.safetensors"),
        ):
            table[column] = None
            if os.path.exists(file):
                weights = load_file(file)
                table[column] = torch.softmax(x @ weights["weight"].T + weights["bias"], 1)[:, 1].numpy()
        table.to_parquet(scores.path)

    return make, score


def pipeline(cluster: Cluster, kind: str, *, broken: bool = False, pause: float = 0.0) -> Any:
    images = cluster.images
    make, score = own(images["training"])
    store = cluster.store.address
    loaded = {
        name: components.load_component_from_file(str(ROOT / "components" / f"{name}.yaml"))
        for name in ("snapshot/of_dataset", "register/component")
    }

    def small(component: Any, **inputs: Any) -> Any:
        return component(**inputs).set_memory_limit("2G").set_container_image(images[component.needs.image])

    @dsl.pipeline(name="own")
    def built() -> None:
        rows = make(broken=broken).output
        loaded["snapshot/of_dataset"](store=store, dataset=rows, name=f"own-{kind}")
        contract = {"columns": {"label": {"type": "int64", "allowed": [0, 1]}}, "extra_columns": "allow"}
        checked = small(gh.validate, data=rows, contract=contract)
        kept = small(gh.require, verdict=checked.outputs["verdict"], reasons=checked.outputs["reasons"])
        trained = small(
            gh.launch,
            script=SCRIPT,
            data=rows,
            kind=kind,
            nodes=1 if kind == "local" else 2,
            processes=2 if kind == "local" else 1,
            image="" if kind == "local" else images["training"],
            resources={} if kind == "local" else {"cpu": "250m", "memory": "1Gi"},
            settings={} if kind == "local" else {"labels": {"gatehouse-test": f"own-{kind}"}},
            environment={"PAUSE": str(pause)},
            store=store,
        ).after(kept)
        model = trained.outputs["model"]
        champion = small(gh.resolve, store=store, model_name=f"own-{kind}").after(trained).outputs
        scores = score(rows=rows, model=model, champion=champion["model"]).output
        bars = {"bars": {"roc_auc": {"min": 0.9}}}
        before = {"champion_score": "old", "champion": champion["model"]}
        judged = small(gh.evaluate, scores=scores, model=model, policy=bars, store=store, **before)
        loaded["register/component"](
            store=store, model_name=f"own-{kind}", model=model, evaluation=judged.outputs["evaluation"], data="made"
        )

    return built


def printed(cluster: Cluster, name: str, run: str) -> str:
    """What the script printed, in the artifact `log` of KFP."""
    kept = ArtifactStore.open(f"{os.environ.get(PIPELINE_ROOT, 's3://mlpipeline/v2/artifacts')}/{name}/{run}")
    keys = [key for key in kept.objects.list("") if key.endswith("/log")]
    return "".join(kept.objects.get_bytes(key).decode() for key in keys)


def champion(cluster: Cluster, kind: str) -> int:
    return Ledger(cluster.store, f"own-{kind}").state().champion


@pytest.fixture(scope="module")
def runs(cluster: Cluster) -> dict[str, str]:
    """The runs by what they show: one with rows that break the contract, and those that tests add."""
    return {"broken": start(cluster, pipeline(cluster, "broken", broken=True), "own-broken")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_script_goes_on_after_its_pod_was_deleted_and_its_model_is_champion(
    cluster: Cluster, runs: dict[str, str], kind: str
) -> None:
    run = runs[kind] = start(cluster, pipeline(cluster, kind, pause=1.5), f"own-{kind}")
    label = f"gatehouse-test=own-{kind}"
    if kind == "local":  # The pod of the task.
        label = f"pipeline/runid={run}"

    def pods() -> dict[str, str]:
        """Names of the running pods by their uid: a pod that comes back may have the same name."""
        listed = json.loads(cluster.kubectl("get", "pods", "-l", label, "-o", "json"))["items"]
        running = [pod["metadata"] for pod in listed if pod["status"].get("phase") == "Running"]
        return {about["uid"]: about["name"] for about in running if kind != "local" or "-impl-" in about["name"]}

    def halfway() -> list[str]:
        words = ("-c", "main") if kind == "local" else ()
        uids = []
        for uid, name in pods().items():
            with suppress(subprocess.CalledProcessError):  # It has no container yet.
                uids += [uid] * ("epoch=19 " in cluster.kubectl("logs", name, *words))
        return uids

    (uid, *_) = cluster.until("epoch 19", halfway)
    cluster.kubectl("delete", "pod", pods()[uid], "--wait=false")
    cluster.until("the end of the pod, with its process", lambda: uid not in pods(), SECONDS_TO_END)
    if kind != "local":
        cluster.until("a pod in its place", lambda: len(pods()) == 2, SECONDS_TO_COME_BACK)
    cluster.require_success(run)
    assert champion(cluster, kind) == 1
    firsts = [int(number) for number in re.findall(r"first=(\d+)", printed(cluster, f"own-{kind}", run))]
    assert max(firsts) > 0, "it went on from a checkpoint"


def test_rows_that_break_the_contract_end_the_run_red(cluster: Cluster, runs: dict[str, str]) -> None:
    assert cluster.api.wait(runs["broken"], MINUTES * 60).state == "FAILED"
    assert not Ledger(cluster.store, "own-broken").state().versions


def test_what_meets_the_world_runs_again_in_an_unchanged_run(cluster: Cluster, runs: dict[str, str]) -> None:
    cluster.api.wait(runs["local"], MINUTES * 60)
    again = start(cluster, pipeline(cluster, "local", pause=1.5), "own-local")
    cluster.require_success(again)
    first, second = ({event.stage for _, event in events(cluster.store, run)} for run in (runs["local"], again))
    assert {"snapshot", "launch", "register"} <= first & second
