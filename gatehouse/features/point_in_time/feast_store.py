"""Opens the feature repository in Feast, with its files in a workspace, and retrieves training sets through it."""

import importlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.on_demand import with_on_demand
from gatehouse.features.database import rows_of, write_parquet
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.definitions.settings import SETTINGS_FILE, read_settings, store_problems
from gatehouse.features.table_files import Files
from gatehouse.runtime.importing import without
from gatehouse.store.database import quoted


@contextmanager
def quickly() -> Iterator[None]:
    """Inside this context, importing Feast takes a quarter of the time and prints nothing.

    Feast lets typeguard check every call of its classes, for which typeguard parses the whole module again for each
    method, and imports PyTorch, if it is installed, to return tensors. We need neither.
    """
    typeguard: Any = importlib.import_module("typeguard")  # Feast requires it.
    checked = typeguard.typechecked

    def unchecked(target: object = None, **_: object) -> object:
        return target if target is not None else unchecked

    typeguard.typechecked = unchecked
    try:
        with warnings.catch_warnings(), without("torch"):
            warnings.simplefilter("ignore")
            yield
    finally:
        typeguard.typechecked = checked


with quickly():
    from feast import FeatureStore, RepoConfig

from gatehouse.features.point_in_time import feast_definitions  # noqa: E402  # imports Feast


@contextmanager
def applied(repository: Repository, tables: Mapping[str, Files], workspace: Path) -> Iterator[FeatureStore]:
    """Link the feature tables, apply the definitions, and yield the Feast store; its registry is in `workspace`.

    Raises ConfigurationError if `feature_store.yaml` does not load, or names another offline store.
    """
    data = repository.folder / "data"
    data.mkdir(exist_ok=True)
    for view, files in tables.items():
        folder = workspace / "feature_tables" / view
        folder.mkdir(parents=True)
        for name, path in files.items():
            (folder / name).symlink_to(path.resolve())
        (data / f"{view}.parquet").symlink_to(folder)
    body = read_settings(repository.folder)
    for problem in store_problems(body):
        if problem.startswith("offline_store"):
            raise ConfigurationError(f"{SETTINGS_FILE}: {problem}.")
    body["registry"] = str(workspace / "registry.db")
    # Feast only retrieves offline here; our own code writes and reads the online store.
    body["online_store"] = {"type": "sqlite", "path": str(workspace / "online.db")}
    logger = logging.getLogger("feast")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                store = FeatureStore(config=RepoConfig(**body, repo_path=repository.folder))
            except (TypeError, ValueError) as error:
                raise ConfigurationError(f"{SETTINGS_FILE}: {' '.join(str(error).split())}") from error
            store.apply([*feast_definitions.feast_objects(repository).values()])
            yield store
    finally:
        logger.setLevel(level)


@dataclass(frozen=True)
class TrainingSet:
    """A training set and the kinds of its columns.

    Attributes:
        table: Entity keys, decision_time, label, label_time, columns kept by the label view, request values, features
            of feature views, features of on-demand views; sorted by decision time and keys.
        views: Features by view, as the service lists them.
    """

    table: pa.Table
    views: dict[str, list[str]]
    numeric: list[str]
    categorical: list[str]


def retrieve(feast: FeatureStore, repository: Repository, service: str, rows: pa.Table, workspace: Path) -> TrainingSet:
    """Join the feature service `service` to the entity rows through Feast.

    `rows` has entity keys, decision_time, label, label_time, columns kept by the label view, request values. Raises
    ConfigurationError if there is no such service, or as `with_on_demand`.
    """
    definition = repository.service(service)
    path = workspace / "entity_rows.parquet"
    write_parquet(rows, path)
    keys = ", ".join(map(quoted, repository.entity_keys))
    query = f"SELECT {keys}, decision_time AS event_timestamp FROM {rows_of([path])}"
    views = {name: list(repository.views[name].spec.features) for name in definition.views}
    stored = [name for names in views.values() for name in names]
    joined = feast.get_historical_features(
        entity_df=query, features=[f"{view}:{name}" for view, names in views.items() for name in names]
    ).to_arrow()
    on_demand = [repository.on_demand[name] for name in definition.on_demand]
    kinds = {name: kind for view in definition.views for name, kind in repository.views[view].spec.features.items()}
    kinds |= {name: kind for view in on_demand for name, kind in view.spec.features.items()}
    table = rows.drop_columns([*repository.request_values().keys() - repository.request_values(service).keys()])
    for name in stored:
        table = table.append_column(name, joined.column(name))
    return TrainingSet(
        table=with_on_demand(on_demand, table, alone=True),
        views=views,
        numeric=[name for name, kind in kinds.items() if kind != "categorical"],
        categorical=[name for name, kind in kinds.items() if kind == "categorical"],
    )
