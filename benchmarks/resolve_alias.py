"""NAME@ALIAS to a folder on this machine, with the store gone: ours, beside MLflow's client for the same alias.

Ours answers from its copy of the ledger's last word and looks whether a verified file was touched. MLflow's client asks
its database on this machine, which is up, for the alias and its source, and copies the same files out of a folder. Both
in one process, in turns. Ends with 1 where the p99 of ours is above the limit.

    python benchmarks/resolve_alias.py --store STORE --model flight-delays
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _race import seconds_of

from gatehouse.registry.alias import Resolver

P99_MS = 10.0


def main() -> int:
    """Measure, print, and say whether the limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="A store on this machine with a champion.")
    parser.add_argument("--model", default="flight-delays")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--mlflow-calls", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(options.store, folder / "store")
        Resolver(str(folder / "store"), options.model, folder / "cache").refresh()
        (folder / "store").rename(folder / "away")

        def opened() -> Resolver:
            return Resolver(str(folder / "store"), options.model, folder / "cache")

        resolver = opened()
        files = resolver.resolve("champion").path
        mlflow_lookup = _mlflow(folder, options.model, files)
        taken: dict[str, list[float]] = {"ours": [], "ours, opened anew": [], "MLflow": []}
        for turn in range(options.calls):
            taken["ours"].append(seconds_of(lambda: resolver.resolve("champion")))
            if turn % max(1, options.calls // options.mlflow_calls) == 0:
                taken["ours, opened anew"].append(seconds_of(lambda: opened().resolve("champion")))
                taken["MLflow"].append(seconds_of(mlflow_lookup))
    size = sum(path.stat().st_size for path in files.rglob("*")) if files.exists() else 0
    print(f"{options.model}@champion, milliseconds{f', {size:,} bytes' if size else ''}:")
    for name, seconds in taken.items():
        middle, last = (float(np.percentile(seconds, at)) * 1000 for at in (50, 99))
        print(f"{name:<24} p50 {middle:8.3f}   p99 {last:8.3f}   ({len(seconds)} calls)")
    ratio = np.percentile(taken["MLflow"], 50) / np.percentile(taken["ours"], 50)
    print(f"MLflow takes {ratio:.0f} times as long at p50")
    return 0 if np.percentile(taken["ours"], 99) * 1000 <= P99_MS else 1


def _mlflow(folder: Path, name: str, files: Path) -> Callable[[], object]:
    """MLflow with the same files under the same alias; gives the call that loads them."""
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    client = mlflow.MlflowClient()
    shutil.copytree(files, folder / "artifacts")
    client.create_registered_model(name)
    client.create_model_version(name, source=str(folder / "artifacts"))
    client.set_registered_model_alias(name, "champion", "1")
    target = folder / "loaded"
    return lambda: mlflow.artifacts.download_artifacts(artifact_uri=f"models:/{name}@champion", dst_path=str(target))


if __name__ == "__main__":
    sys.exit(main())
