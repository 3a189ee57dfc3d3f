"""Feast's settings of a feature repository: what `feature_store.yaml` says."""

from pathlib import Path
from typing import Any

import yaml

from gatehouse.errors import ConfigurationError

SETTINGS_FILE = "feature_store.yaml"


def read_settings(folder: Path) -> dict[str, Any]:
    """What `feature_store.yaml` in a folder says.

    Raises:
        ConfigurationError: if it is not there, is no YAML, or holds something else than keys.
    """
    path = folder / SETTINGS_FILE
    if not path.is_file():
        raise ConfigurationError(f"{SETTINGS_FILE}: expected Feast's settings in the feature repository, found none.")
    try:
        body = yaml.safe_load(path.read_text()) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{SETTINGS_FILE}:{mark.line + 1}" if mark else SETTINGS_FILE
        reason = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ConfigurationError(f"{where}: is not YAML: {reason}") from error
    if not isinstance(body, dict):
        raise ConfigurationError(f"{SETTINGS_FILE}: expected keys with Feast's settings, found {body!r}.")
    return body


def feast_name(project: str) -> str:
    """The name that a project has in Feast, which makes names of SQL tables of it."""
    return project.replace("-", "_")
