"""Opens the feature repository in Feast, with all its files inside a workspace of the artifact store."""

import importlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.definitions.settings import SETTINGS_FILE, read_settings, store_problems
from gatehouse.features.table_files import Files
from gatehouse.runtime.importing import without


@contextmanager
def quickly() -> Iterator[None]:
    """Inside this context, importing Feast takes a quarter of the time and prints nothing.

    Feast lets typeguard check every call of its classes, for which typeguard parses the whole module again for each
    method, and imports PyTorch, if it is installed, to return tensors. We need neither.
    """
    typeguard: Any = importlib.import_module("typeguard")  # Feast requires it.
    checked = typeguard.typechecked
    typeguard.typechecked = _unchecked
    try:
        with warnings.catch_warnings(), without("torch"):
            warnings.simplefilter("ignore")
            yield
    finally:
        typeguard.typechecked = checked


def _unchecked(target: object = None, **_: object) -> object:
    return target if target is not None else _unchecked


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
