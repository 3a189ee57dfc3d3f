"""Opens a Feast repository as Feast's users write it, with a registry of its own, so that theirs stays as it is."""

import importlib
import json
import os
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path, PurePosixPath
from traceback import extract_tb
from typing import Any

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.settings import SETTINGS_FILE, read_settings
from gatehouse.features.point_in_time.feast_store import quickly
from gatehouse.runtime.importing import unpack_tar
from gatehouse.store.hidden_values import error_words
from gatehouse.store.objects.listed_files import list_objects

with quickly():
    from feast import FeatureService, FeatureStore, RepoConfig
    from feast.repo_operations import parse_repo

_WITH_EFFECTS = ("registry", "online_store", "batch_engine", "feature_server", "mlflow", "openlineage")
"""Settings of what Feast writes elsewhere when it applies definitions."""
_APPLIED = (
    *("projects", "data_sources", "entities", "feature_views", "stream_feature_views", "label_views"),
    *("on_demand_feature_views", "feature_services"),
)


def unpacked(place: str, folder: Path) -> Path:
    """The folder with `feature_store.yaml` at `place`: a folder, a .zip or tar archive, or an address of either.

    Archives and objects are written into the empty `folder`. Raises ConfigurationError if there is no such repository,
    or several, or a file of it would be written outside of `folder`.
    """
    path = Path(place.removeprefix("file://"))
    if "://" in place.removeprefix("file://"):
        path, objects = folder / "objects", list_objects(place, {})
        for address, (size, read) in objects.items():
            name = address.removeprefix(place).strip("/") or PurePosixPath(address).name
            _require_inside([name], place)
            target = path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(read(0, size) if size else b"")
        if list(objects) == [place]:
            path = path / PurePosixPath(place).name
    if path.is_file():
        archive, path = path, folder / "unpacked"
        try:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as zipped:
                    _require_inside(zipped.namelist(), place)
                    zipped.extractall(path)
            else:
                with tarfile.open(archive) as tar:
                    unpack_tar(tar, path)
        except (tarfile.TarError, zipfile.BadZipFile, OSError) as error:
            raise ConfigurationError(
                f"{place}: expected a .zip or .tar.gz archive with files inside it: {error_words(error)}."
            ) from error
    settings = sorted(path.rglob(SETTINGS_FILE), key=lambda file: len(file.parts))
    if not settings or (len(settings) > 1 and len(settings[0].parts) == len(settings[1].parts)):
        listed = ", ".join(str(file.relative_to(path)) for file in settings) or "none"
        raise ConfigurationError(f"{place}: expected a Feast repository with one {SETTINGS_FILE}, found {listed}.")
    return settings[0].parent.resolve()


def _require_inside(names: Sequence[str], place: str) -> None:
    for name in names:
        if ".." in (path := PurePosixPath(name.replace("\\", "/"))).parts or path.is_absolute():
            raise ConfigurationError(f"{place}: expected files inside the repository, found {name}.")


@contextmanager
def opened(folder: Path, workspace: Path, provider: str, offline_store: str = "") -> Iterator[FeatureStore]:
    """Run the Python files of a repository, and yield a Feast store with their definitions, which writes nothing else.

    The registry is in `workspace`. `provider` is the class that retrieves, and `offline_store` a type in place of the
    repository's own. Raises ConfigurationError if the settings or definitions do not load.
    """
    settings: dict[str, Any] = json.loads(os.path.expandvars(json.dumps(read_settings(folder))))  # as Feast reads it
    settings = {name: value for name, value in settings.items() if name not in _WITH_EFFECTS}
    settings |= {"registry": str(workspace / "registry.db"), "online_store": None, "provider": provider}
    if offline_store:
        settings["offline_store"] = {"type": offline_store}
    imported, written = set(sys.modules), sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    try:
        with chdir(folder):
            try:
                store = FeatureStore(config=RepoConfig(**settings, repo_path=folder))
                contents = parse_repo(folder)
                for project in contents.projects:
                    if project.name != store.project:
                        raise ConfigurationError(f"expected the project {store.project}, found {project.name}")
                store.apply([definition for kind in _APPLIED for definition in getattr(contents, kind)])
            except (Exception, SystemExit) as error:
                frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename.startswith(str(folder))]
                file = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else SETTINGS_FILE
                cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
                raise ConfigurationError(f"The Feast repository does not load: {file}: {cause}") from error
            yield store
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = written
        for name in set(sys.modules) - imported:
            if (getattr(sys.modules[name], "__file__", "") or "").startswith(str(folder)):
                del sys.modules[name]


def requested(store: FeatureStore, service: str, features: Sequence[str]) -> FeatureService | list[str]:
    """The selection: a feature service by name, else `view:feature` names, else the only service.

    Raises ConfigurationError if the repository has no such name, or the request is not clear.
    """
    services = {item.name: item for item in store.list_feature_services()}
    names = {f"{view.name}:{feature.name}" for view in store.list_all_feature_views() for feature in view.features}
    service = service or ("" if features or len(services) != 1 else next(iter(services)))
    for key, choice, choices in (*(("features", name, names) for name in features), ("service", service, services)):
        if choice not in choices and (choice or not features):
            raise ConfigurationError(
                f"{key}: the Feast repository has no {choice!r}{nearest(choice, choices)}: expected one of "
                f"{', '.join(sorted(choices)) or 'none'}."
            )
    if service and features:
        raise ConfigurationError(f"Expected service or features, found both: {service} and {', '.join(features)}.")
    return list(features) or services[service]
