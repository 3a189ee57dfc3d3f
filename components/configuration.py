"""Reads configuration from files as a pipeline is built: for the inputs of components that take an object."""

import importlib
from pathlib import Path
from typing import Any

_KINDS = {
    "calibration": "gatehouse.training.calibration.spec:CalibrationSpec",
    "contract": "gatehouse.data.validation.contract:Contract",
    "evaluation": "gatehouse.evaluation.spec:EvaluationSpec",
    "monitoring": "gatehouse.monitoring.spec:MonitoringSpec",
    "policy": "gatehouse.evaluation.spec:GatePolicy",
    "search": "gatehouse.tuning.spec:CommandSearchSpec",
    "source": "gatehouse.data.sources.catalog:SourceSpec",
    "split": "gatehouse.data.splitting.spec:SplitSpec",
    "training": "gatehouse.training.spec:TrainSpec",
    "transformation": "gatehouse.training.transformation.spec:TransformationSpec",
    "tuning": "gatehouse.tuning.spec:ExperimentSpec",
}


def config(path: str | Path, kind: str = "") -> dict[str, Any]:
    """Read and check a file with configuration, in YAML or JSON, as the object that a component takes.

    A folder is a repository of feature definitions, for the input `definitions`. Of a `project.yaml`, the section is
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
    module, _, name = place.partition(":")
    model: Any = RootModel.__class_getitem__(getattr(importlib.import_module(module), name))
    spec = load_model(str(path), text, model, problems)
    if spec is None:
        raise ConfigurationError("\n".join(problems))
    body = getattr(spec.root, kind, None) if in_project else spec.root
    if body is None or isinstance(body, str):
        raise ConfigurationError(
            f"{path}: expected a section {kind}, found {body or 'none'}. Give the file that has it."
        )
    return dict(parameter_of(body))
