"""Reads and checks configuration as a pipeline is built: from files, and from dictionaries that a component gets."""

import importlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_KINDS = {
    "calibration": "gatehouse.training.model_spec:CalibrationSpec",
    "contract": "gatehouse.data.validation.contract:Contract",
    "deployment": "gatehouse.deployment.spec:DeploySpec",
    "engine": "gatehouse.pieces.engine:Engine",
    "evaluation": "gatehouse.evaluation.spec:EvaluationSpec",
    "integration": "gatehouse.evaluation.spec:IntegrationSpec",
    "monitoring": "gatehouse.monitoring.spec:MonitoringSpec",
    "labels": "gatehouse.evaluation.labelled_scores:LabelSpec",
    "policy": "gatehouse.evaluation.spec:GatePolicy",
    "retraining": "gatehouse.monitoring.spec:RetrainSpec",
    "roles": "gatehouse.data.splitting.publication:Roles",
    "search": "gatehouse.tuning.spec:CommandSearchSpec",
    "source": "gatehouse.data.sources.catalog:SourceSpec",
    "split": "gatehouse.data.splitting.spec:SplitSpec",
    "submission": "gatehouse.monitoring.spec:SubmissionSpec",
    "training": "gatehouse.training.spec:TrainSpec",
    "transformation": "gatehouse.training.model_spec:TransformationSpec",
    "tuning": "gatehouse.tuning.spec:ExperimentSpec",
}


def config(path: str | Path, kind: str = "") -> dict[str, Any]:
    """Read and check a file with configuration, in YAML or JSON, as the object that a component takes.

    A folder is a repository of feature definitions, for the input `definitions`. The section of a `project.yaml` is
    taken that `kind` names.

    Args:
        path: The file, or the folder.
        kind: calibration, contract, evaluation, monitoring, policy, search (for the component `search`), source, split,
            training, transformation or tuning (for `tune`); by default the name of the file without its ending.

    Raises ConfigurationError that lists every problem with its line.
    """
    from pydantic import RootModel

    from gatehouse.configuration.yaml_lines import load_model, read_text
    from gatehouse.errors import ConfigurationError
    from gatehouse.store.parameters import parameter_of

    path, problems = Path(path), list[str]()
    text = "" if path.is_dir() else read_text(path, str(path), problems)
    if text is None:
        raise ConfigurationError("\n".join(problems))
    if path.is_dir():
        from gatehouse.features.definitions.published import published_files
        from gatehouse.features.definitions.repository import read_repository

        return {"files": {name: content.decode() for name, content in published_files(read_repository(path)).items()}}
    kind = kind or path.stem
    if kind not in _KINDS:
        raise ConfigurationError(f"{path}: kind: expected {', '.join(_KINDS)}, found {kind!r}. Give the kind too.")
    in_project = path.name == "project.yaml"
    place = "gatehouse.project.project_file:ProjectFile" if in_project else _KINDS[kind]
    model: Any = RootModel.__class_getitem__(_named(place))
    spec = load_model(str(path), text, model, problems)
    if spec is None:
        raise ConfigurationError("\n".join(problems))
    body = getattr(spec.root, kind, None) if in_project else spec.root
    if body is None or isinstance(body, str):
        raise ConfigurationError(
            f"{path}: expected a section {kind}, found {body or 'none'}. Give the file that has it."
        )
    return dict(parameter_of(body))


def checked_configuration(kind: str, body: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A dictionary that the input `where` of a component gets, checked, in the form that KFP carries.

    A reference of published configuration, and one with outputs of tasks in it, is checked by the task that reads it.
    Raises ConfigurationError that lists every problem with its key.
    """
    try:
        json.dumps(body)
        from pydantic import RootModel
    except TypeError:
        return dict(body)
    except ImportError:
        warnings.warn(f"{where} is checked by its task alone: pydantic is not installed here.", stacklevel=4)
        return dict(body)
    from gatehouse.store.parameters import as_parameter, checked

    if body and body.keys() != {"reference"} and body.get("kind") != "Experiment":  # One of Katib.
        whole = body
        if kind == "contract" and "tables" not in body:  # A contract may be what it has of one table.
            from gatehouse.data.validation.datasets import contract_of_one_table

            whole = contract_of_one_table(body)
        if kind == "roles":  # The label has an input of its own.
            whole = {"label": ""} | dict(body)
        model: Any = RootModel.__class_getitem__(_named(_KINDS[kind]))
        checked(where, model, whole)
    return as_parameter(body)


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
