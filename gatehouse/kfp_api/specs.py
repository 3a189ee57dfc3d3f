"""Compiled pipelines: the name of a version, its parameters, and the same pipeline without caching."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from gatehouse.configuration.yaml_lines import nearest, value_text
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.plural import counted
from gatehouse.store.canonical import canonical_json, sha256_bytes

_DIGITS = 32
_TYPES: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "STRING": ("a text", str),
    "NUMBER_INTEGER": ("a whole number", int),
    "NUMBER_DOUBLE": ("a number", (int, float)),
    "BOOLEAN": ("true or false", bool),
    "LIST": ("a list", list),
    "STRUCT": ("keys with values", dict),
}


def version_name(text: str) -> str:
    """The name of a compiled pipeline's version: the digest of its content, without the version of the SDK."""
    spec, platform = parts_of(text)
    content = {"spec": {key: value for key, value in spec.items() if key != "sdkVersion"}, "platform": platform}
    return f"sha256-{sha256_bytes(canonical_json(content).encode())[:_DIGITS]}"


def parts_of(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pipeline spec and the platform spec of a compiled pipeline; the second is empty if there is none."""
    spec, *platform = yaml.load_all(text, Loader=yaml.CSafeLoader)
    return spec, platform[0] if platform else {}


def upload_of(answer: Mapping[str, Any], cache: bool = True) -> str:
    """The YAML of a version for upload, from the API's answer; without `cache` no task is cached."""
    spec = copy.deepcopy(dict(answer.get("pipeline_spec", answer)))
    if not cache:
        for task in tasks_of(spec):
            task.pop("cachingOptions", None)
    documents = [spec, *filter(None, [answer.get("platform_spec")])]
    return yaml.dump_all(documents, Dumper=yaml.CSafeDumper, sort_keys=True)


def tasks_of(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every task of a pipeline and of its nested pipelines."""
    for holder in (spec["root"], *spec.get("components", {}).values()):
        yield from holder.get("dag", {}).get("tasks", {}).values()


def parameters_of(spec: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters of a pipeline by name, as its spec describes them."""
    parameters: dict[str, dict[str, Any]] = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    return parameters


def parsed_parameters(spec: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """The values of parameters for the API, from text: strings as they are, others in YAML.

    Raises ConfigurationError, listing every value that the server would refuse.
    """
    described = parameters_of(spec)
    values: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            kind = described.get(name, {}).get("parameterType")
            values[name] = text if kind == "STRING" else yaml.load(text, Loader=yaml.CSafeLoader)
        except yaml.YAMLError:
            values[name] = text
    check_parameters(spec, values)
    return values


def check_parameters(spec: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Refuse values that the server would refuse.

    Raises ConfigurationError, listing every parameter that is missing, unknown, of another type or not among the
    choices.
    """
    if problems := list(problems_of(parameters_of(spec), values)):
        listed = "".join(f"\n  - {problem}" for problem in problems)
        name = spec.get("pipelineInfo", {}).get("name", "")
        count = f"{counted(len(problems), 'problem')}"
        raise ConfigurationError(f"{count} with the parameters of the pipeline {name}:{listed}")


def problems_of(parameters: Mapping[str, dict[str, Any]], values: Mapping[str, Any]) -> Iterator[str]:
    """Problems of parameter values, each of which begins with the name of one of the `parameters` parameters."""
    for name in values:
        if name not in parameters:
            offered = f"{', '.join(sorted(parameters)) or 'none'}{nearest(name, parameters)}"
            yield f"{name}: the pipeline has no such parameter; it has {offered}"
    for name, described in parameters.items():
        if name not in values:
            if not described.get("isOptional") and "defaultValue" not in described:
                yield f"{name}: expected a value, as it has no default"
            continue
        value, kind = values[name], described["parameterType"]
        words, types = _TYPES.get(kind, (kind, ()))
        if not isinstance(value, types) or (isinstance(value, bool) and kind != "BOOLEAN"):
            yield f"{name}: expected {words}, found {value_text(value)}"
        elif (choices := described.get("literals")) and value not in choices:
            yield f"{name}: expected one of {', '.join(map(str, choices))}, found {value_text(value)}"
