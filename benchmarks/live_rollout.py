"""The flights example live: December is replayed, an equal candidate rises to champion, and a worse one goes back.

    python benchmarks/live_rollout.py --store build/live --html live.html

A predictor serves, clients ask for the flights of the test part in their order, and each outcome is known a day after
the decision. The predictor is killed after each part; another process sends what it left. The first run trains three
models, which takes some minutes; a repeat goes on where it was.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.evaluation.stage import EvaluateRequest, evaluate
from gatehouse.registry.explanation import provenance_of
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.stage import RegisterRequest, ResolveRequest, register, resolve
from gatehouse.reports.contents import rendered
from gatehouse.store.store import ArtifactStore
from gatehouse.training.stage import train
from tests.server.replay import replay

NAME, PROJECT = "flight-delays", Path(__file__).parents[1] / "pipelines" / "projects" / "flights"
POLICY = GatePolicy.model_validate(
    {
        "champion": {"metric": "brier", "tolerance": 1.0},  # Lenient: live outcomes shall decide.
        "must_beat_baseline": [],
        "better_than_guessing": None,
        "live_required": True,
        "live": {"metrics": {"brier": 0.01}, "outcomes": 1000},
        "rollout": {"shares": [0.05, 0.25, 0.5], "min_hours": 0, "outcomes": 100},
    }
)


def main() -> None:
    """Run the example, then both rollouts, and print each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="folder of the store")
    parser.add_argument("--each", type=int, default=6000, help="flights between two looks")
    parser.add_argument("--html", type=Path, help="where the page of the last look goes")
    options = parser.parse_args()
    if not options.store.is_dir() or not Ledger(ArtifactStore.open(options.store), NAME).records():
        command = [sys.executable, "-m", "gatehouse.cli.main", "run", str(PROJECT), "--store", str(options.store)]
        subprocess.run(command, check=True)
    store = ArtifactStore.open(options.store)
    first = Ledger(store, NAME).state().versions[0].model
    request = provenance_of(store, first)["request"]
    spec = request["spec"]
    equal = spec | {"model": spec["model"] | {"max_depth": 5}}
    overfitted = {"max_depth": 10, "min_child_weight": 0.1}
    worse = spec | {"model": spec["model"] | overfitted, "optimizer": {"learning_rate": 1.0}}
    worse |= {"data": spec.get("data", {}) | {"train_fraction": 0.02}}
    for called, changed in (("an equal candidate", equal), ("a worse candidate", worse)):
        model = train(train.request.model_validate(request | {"spec": changed}), store).model
        beside = resolve(ResolveRequest(model_name=NAME, candidate=model, policy=POLICY), store)
        judged = EvaluateRequest(
            model=model,
            champion=beside.champion,
            floor=beside.floor,
            split=request["split"],
            spec=EvaluationSpec(bootstrap_samples=50),
            policy=POLICY,
        )
        entered = register(
            RegisterRequest(model_name=NAME, model=model, evaluation=evaluate(judged, store).evaluation), store
        )
        print(f"{called} is {NAME}:{entered.version}: {entered.decision}")
        keys = list(store.manifest(store.manifest(first).derived_from["training_set"]).details["entity_keys"])
        outcomes = options.store / "outcomes.parquet"
        for step in replay(store, NAME, POLICY, _december(store, first), keys, "label", options.each, outcomes):
            print(f"  {step.decision}, {step.share:.0%}: {'; '.join(step.reasons)}")
    page = rendered(store, Ledger(store, NAME).state().live[-1][1].evaluation)
    if options.html:
        shutil.copyfile(page, options.html)


def _december(store: ArtifactStore, model: str) -> pa.Table:
    """The rows of the test part in order of their decisions."""
    inputs = store.manifest(model).derived_from
    rows = pq.ParquetDataset(store.paths(inputs["training_set"])).read()
    test = pq.read_table(store.path(inputs["split"], "test.parquet"))["row"]
    return rows.take(test).sort_by("decision_time")


if __name__ == "__main__":
    main()
