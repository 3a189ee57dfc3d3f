"""A project with a view, a label and a view on demand, a store with their tables, and `gatehouse features` on both."""

import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from gatehouse.cli.features import app
from gatehouse.errors import ConfigurationError, MissingArtifactError
from gatehouse.features.computing.stage import ComputeRequest, compute_features
from gatehouse.project.project import load_project
from gatehouse.store.manifest import Column
from gatehouse.store.store import ArtifactStore
from tests.small_example import EXAMPLE

NOON = datetime(2013, 6, 1, 12, tzinfo=UTC)
DEFINITIONS = """
from datetime import timedelta
from gatehouse.features.definitions import *

driver = Entity(name="driver")
trips = FeatureView(name="trips", description="What a driver did.", entities=("driver",), ttl=timedelta(hours=2),
    available=Available("event_timestamp", lag=timedelta(minutes=5)),
    features={"fare": "numeric", "town": "categorical"})
paid = LabelView(name="paid", entities=("driver",), arrives=Available("ended"))
pay = FeatureService(name="pay", views=("trips",))
tipped = OnDemandView(name="tipped", description="How generous.", views=("trips",), request={"tip": "numeric"},
    features={"tip_share": "numeric"})
whole = FeatureService(name="whole", views=("trips",), on_demand=("tipped",))
"""
VIEW = "SELECT driver, ended AS event_timestamp, fare, upper(town) AS town FROM raw.trips"
LABEL = "SELECT driver, ended AS decision_time, fare > 1 AS label, ended, 0.5 AS tip FROM raw.trips"
TIPPED = "SELECT tip / fare AS tip_share FROM rows"


@dataclass
class Place:
    """A project in a folder, a store with a snapshot of its table, and the commands on both."""

    project: Path
    store: ArtifactStore

    def compute(self, parent: str = "", snapshot: str = "") -> str:
        loaded = load_project(self.project)
        loaded.definitions.publish(self.store)
        snapshot = snapshot or str(next(iter(self.store.references("snapshots"))))
        request = ComputeRequest(
            snapshot=snapshot, definitions=str(loaded.definitions.reference), project=loaded.name, parent=parent
        )
        return compute_features.function(request, self.store).feature_tables

    def run(self, *arguments: object, code: int = 0) -> Result:
        options = ["--project", str(self.project), "--store", self.store.address]
        result = CliRunner().invoke(app, [*map(str, arguments), *options])
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    def json(self, *arguments: object, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def fails(self, *arguments: object) -> str:
        error = self.run(*arguments, code=1).exception
        assert isinstance(error, (ConfigurationError, MissingArtifactError)), repr(error)
        return str(error)


def rides() -> pa.Table:
    times = pa.array([NOON, NOON + timedelta(minutes=30), NOON], pa.timestamp("us", "UTC"))
    return pa.table({"driver": ["007", "007", "8"], "ended": times, "fare": [1.5, 2.5, 9.0], "town": ["a", "b", "a"]})


def snapshot(store: ArtifactStore, table: pa.Table, as_of: datetime, path: Path) -> str:
    pq.write_table(table, path)
    columns = [Column(field.name, str(field.type), True) for field in table.schema]
    trips = store.publish("datasets", "trips", {"p.parquet": path}, columns=columns, rows=table.num_rows)
    details = {"as_of": as_of.isoformat()}
    return str(store.publish("snapshots", "s", {"s.json": "1"}, derived_from={"trips": trips}, details=details))


def write_features(project: Path, files: dict[str, str]) -> None:
    """Write the example project with other feature definitions, which stand in its folder `repo`."""
    shutil.copytree(EXAMPLE, project)
    text = (project / "project.yaml").read_text().replace("../../../feature_repo", "repo")
    (project / "project.yaml").write_text(text.replace("service: flight_delay", "service: pay"))
    settings = (EXAMPLE.parents[2] / "feature_repo/feature_store.yaml").read_text()
    for name, body in {**files, "feature_store.yaml": settings}.items():
        (project / "repo" / name).parent.mkdir(parents=True, exist_ok=True)
        (project / "repo" / name).write_text(body)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a project, and a store with a snapshot; a second store that has feature tables as well."""
    folder = tmp_path_factory.mktemp("made")
    files = {"definitions.py": DEFINITIONS, "views/trips.sql": VIEW, "labels/paid.sql": LABEL}
    write_features(folder / "project", files | {"on_demand/tipped.sql": TIPPED})
    snapshot(ArtifactStore.open(folder / "empty"), rides(), NOON + timedelta(hours=1), folder / "trips.parquet")
    shutil.copytree(folder / "empty", folder / "computed")
    Place(folder / "project", ArtifactStore.open(folder / "computed")).compute()
    return folder


@pytest.fixture
def empty(made: Path, tmp_path: Path) -> Place:
    """The project, with a snapshot and no feature tables yet."""
    return _copy(made, "empty", tmp_path)


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Place:
    """The same with feature tables."""
    return _copy(made, "computed", tmp_path)


def _copy(made: Path, store: str, folder: Path) -> Place:
    for name, called in (("project", "project"), (store, "store")):
        shutil.copytree(made / name, folder / called)
    return Place(folder / "project", ArtifactStore.open(folder / "store"))


def ask(folder: Path, *rows: str) -> Path:
    (path := folder / "rows.csv").write_text("\n".join(["driver,event_timestamp,note", *rows]) + "\n")
    return path
