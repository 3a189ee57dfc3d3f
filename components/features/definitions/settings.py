"""Feast's settings of a feature repository: what `feature_store.yaml` says."""

from pathlib import Path
from typing import Any

import yaml

from gatehouse.errors import ConfigurationError
from gatehouse.yaml_lines import not_text, not_yaml

SETTINGS_FILE = "feature_store.yaml"


def read_settings(folder: Path) -> dict[str, Any]:
    """Read `feature_store.yaml` in a folder.

    Raises:
        ConfigurationError: if the file is missing, is not YAML, or is not a mapping.
    """
    path = folder / SETTINGS_FILE
    if not path.is_file():
        raise ConfigurationError(f"{SETTINGS_FILE}: expected Feast's settings in the feature repository, found none.")
    try:
        text = path.read_text()
        body = yaml.load(text, Loader=yaml.CSafeLoader) or {}
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{SETTINGS_FILE}: {not_text(error)}") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:  # ValueError: impossible date. TypeError: `!!set [1]`.
        raise ConfigurationError(not_yaml(SETTINGS_FILE, text, error)) from error
    if not isinstance(body, dict):
        raise ConfigurationError(f"{SETTINGS_FILE}: expected keys with Feast's settings, found {body!r}.")
    return body


def feast_name(project: str) -> str:
    """The name of a project in Feast, which uses it in names of SQL tables."""
    return project.replace("-", "_")
