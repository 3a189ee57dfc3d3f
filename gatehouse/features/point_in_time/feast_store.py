"""Opens the feature repository in Feast, with all its files inside a workspace of the artifact store."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gatehouse.features.point_in_time.feast_import import quickly

with quickly():
    from feast import FeatureStore, RepoConfig

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.definitions.settings import SETTINGS_FILE, read_settings, store_problems
from gatehouse.features.point_in_time import feast_definitions
from gatehouse.features.table_files import Files


@contextmanager
def applied(repository: Repository, tables: Mapping[str, Files], workspace: Path) -> Iterator[FeatureStore]:
    """Link the feature tables, apply the definitions, and yield the Feast store; its registry is in `workspace`.

    Args:
        repository: A repository in a folder where files may be written.
        tables: The Parquet files of every view that is read.
        workspace: A temporary directory.

    Raises:
        ConfigurationError: if `feature_store.yaml` does not load, or names another offline store.
    """
    data = repository.folder / "data"
    data.mkdir(exist_ok=True)
    for view, files in tables.items():
        folder = workspace / "feature_tables" / view
        folder.mkdir(parents=True)
        for name, path in files.items():
            (folder / name).symlink_to(path.resolve())
        (data / f"{view}.parquet").symlink_to(folder)
    with _quiet():
        config = _config(repository.folder, workspace)
        store = FeatureStore(config=config)
        store.apply([*feast_definitions.feast_objects(repository).values()])
        yield store


def _config(folder: Path, workspace: Path) -> RepoConfig:
    body = read_settings(folder)
    for problem in store_problems(body):
        if problem.startswith("offline_store"):
            raise ConfigurationError(f"{SETTINGS_FILE}: {problem}.")
    body["registry"] = str(workspace / "registry.db")
    # Feast only retrieves offline here; our own code writes and reads the online store.
    body["online_store"] = {"type": "sqlite", "path": str(workspace / "online.db")}
    try:
        return RepoConfig(**body, repo_path=folder)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"feature_store.yaml: {' '.join(str(error).split())}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress Feast's warnings and log messages below the level of an error."""
    logger = logging.getLogger("feast")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
