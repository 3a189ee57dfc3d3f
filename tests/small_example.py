"""The example project cut small: three carriers for four weeks, a network of one layer, one trial.

What it is cut from is real, and every stage runs as in the example, in seconds instead of minutes.
"""

import csv
import io
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import yaml

import gatehouse
from gatehouse.kfp.local_run import LocalRun, run_pipeline
from gatehouse.store.store import ArtifactStore

WINDOW = "2013-01-01/2013-01-29"
MODEL = "flight-delays"
CARRIERS = ("US", "VX", "WN")
"""Together they fly from all three airports, with aircraft that are on record."""
_PACKAGE = Path(gatehouse.__file__).parent
EXAMPLE = _PACKAGE / "pipelines" / "projects" / "flights"
"""The project of the example, whole."""
PLANTED = {
    name: f"planted-{name.lower()}"
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "MLFLOW_TRACKING_PASSWORD",
        "MLFLOW_TRACKING_TOKEN",
        "REDIS_PASSWORD",
    )
} | {
    "GATEHOUSE_ALERT_WEBHOOK": "https://hooks.example/planted-webhook",
    "WAREHOUSE": "postgresql://reader:planted-database@db.example/flights",
}
"""Secrets that the first run of the example has in its environment, and that nobody may find anywhere afterwards."""
_FLIGHTS = "flights.csv.zip"
Row = dict[str, str]


def write_raw_files(archive: Path, folder: Path, months: Collection[str] = ("1",)) -> None:
    """Take the flights of `CARRIERS` in some months, and the other tables whole, out of the source archive."""
    folder.mkdir(parents=True)
    with tarfile.open(archive) as members:
        for member in members.getmembers():
            if member.name.endswith((".csv", ".csv.zip")):
                (folder / Path(member.name).name).write_bytes(members.extractfile(member).read())  # type: ignore[union-attr]
    change_flights(
        folder,
        lambda rows: (row for row in rows if row["carrier"] in CARRIERS and row["month"] in months),
        replace=True,
    )


def change_flights(folder: Path, change: Callable[[Iterable[Row]], Iterable[Row]], *, replace: bool = False) -> None:
    """Write the raw flights of a folder anew, each row as a dictionary of texts."""
    with zipfile.ZipFile(folder / _FLIGHTS) as archive, archive.open(archive.namelist()[0]) as stream:
        reader = csv.DictReader(io.TextIOWrapper(stream))
        out = io.StringIO()
        writer = csv.DictWriter(out, reader.fieldnames or (), lineterminator="\n")
        writer.writeheader()
        writer.writerows(change(reader))
    with zipfile.ZipFile(folder / _FLIGHTS, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("flights.csv", out.getvalue())


def write_project(folder: Path, **changes: Any) -> Path:
    """The example project with boundaries, budgets and bars for the small tables; `changes` are dotted keys."""
    shutil.copytree(EXAMPLE, folder)
    shutil.copytree(_PACKAGE / "feature_repo", folder / "features", ignore=shutil.ignore_patterns("__pycache__"))
    project = yaml.safe_load((folder / "project.yaml").read_text())
    project["features"]["repo"] = "features"
    project["split"] = {"train_until": "2013-01-19", "validation_until": "2013-01-23", "gap": "PT24H"}
    training = project["training"]
    training["model"] |= {"hidden": [32]}
    training["data"] |= {"batch_size": 256}
    training["optimizer"] |= {"learning_rate": 0.003}
    training["stopping"] |= {"epochs": 2}
    training["parallelism"] |= {"processes": 1}
    project["tuning"]["max_trial_count"] = 1
    project["tuning"]["trial_settings"] = {"stopping.epochs": 1, "data.train_fraction": 0.5}
    project["tuning"]["parameters"] = [{"name": "model.dropout", "type": "double", "min": 0, "max": 0.2}]
    project["evaluation"]["min_slice_rows"] = 50
    policy = yaml.safe_load((folder / "policy.yaml").read_text())
    policy |= {"bars": {"roc_auc": {"min": 0.5}}, "must_beat_baseline": [], "slices": {"roc_auc": 0.0}}
    policy["better_than_guessing"] = None
    for dotted, value in changes.items():
        section, _, key = dotted.partition("__")
        (policy if section == "policy" else project[section])[key] = value
    (folder / "project.yaml").write_text(yaml.safe_dump(project))
    (folder / "policy.yaml").write_text(yaml.safe_dump(policy))
    return folder


def run(project: Path, store: ArtifactStore, source: Path, *, until: str = "", **arguments: Any) -> LocalRun:
    """Run the training pipeline on the raw files of a folder, all of it or until a stage."""
    parameters = {"source": str(source), "window": WINDOW} | arguments
    return run_pipeline(project, "training", store, parameters, watch=lambda _: None, until=until)


def explain(outcome: LocalRun) -> str:
    """What is known of a run that failed."""
    return f"{outcome.failure}\n{outcome.log.read_text()[-3000:]}"
