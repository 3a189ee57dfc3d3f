"""The published JSON schema of contracts: current, and of one mind with the models about what a contract is."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from gatehouse.cli.data import app
from gatehouse.data.validation.contract import contract_schema, parse_contract

ROOT = Path(__file__).parents[3]
SCHEMA = ROOT / "docs" / "contract.schema.json"
CONTRACTS = ("pipelines/projects/flights/contract.yaml", "gatehouse/project/templates/project/contract.yaml")


class _Loader(yaml.SafeLoader):
    """Leaves times as the text that they are in JSON."""


_Loader.add_constructor("tag:yaml.org,2002:timestamp", yaml.SafeLoader.construct_yaml_str)


def _body(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    """A validator of the published file."""
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_published_schema_is_current_and_printed_by_the_command() -> None:
    assert SCHEMA.read_text() == contract_schema(), "run `make docs`"
    assert CliRunner().invoke(app, ["contract-schema"]).stdout == contract_schema()


@pytest.mark.parametrize("path", CONTRACTS)
def test_it_accepts_our_contracts(validator: jsonschema.Draft202012Validator, path: str) -> None:
    assert list(validator.iter_errors(_body((ROOT / path).read_text()))) == []


@pytest.mark.parametrize(
    "column",
    [
        {"type": "int64", "max": {"value": 3, "severity": "warn", "owner": "ops"}},
        {"type": "timestamp", "min": "2020-01-01T00:00:00Z"},
        {"type": {"value": "string", "severity": "warn"}, "warn": {"allowed": ["a", "b"]}},
    ],
)
def test_it_accepts_each_form_of_a_rule(validator: jsonschema.Draft202012Validator, column: dict[str, Any]) -> None:
    body = {"version": 1, "tables": {"t": {"columns": {"a": column}}}}
    parse_contract(yaml.safe_dump(body))
    validator.validate(body)


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": {"a": {"type": "int64", "maximum": 3}}},
        {"columns": {"a": {"type": "int"}}},
        {"columns": {"a": {"type": "int64", "max": {"value": 3, "severity": "fatal"}}}},
        {"columns": {"a": {"type": "int64", "completeness": 2}}},
        {"columns": {"a": {"min": 1}}},
        {"columns": {}},
        {"columns": {"a": {"type": "int64"}}, "unique": "a"},
        {"columns": {"a": {"type": "int64"}}, "foreign_keys": [{"columns": ["a"]}]},
        {"columns": {"a": {"type": "int64"}}, "uniqe": [["a"]]},
    ],
)
def test_it_refuses_what_the_models_refuse(validator: jsonschema.Draft202012Validator, wrong: dict[str, Any]) -> None:
    body = {"version": 1, "tables": {"t": wrong}}
    with pytest.raises(Exception, match="in the contract"):
        parse_contract(yaml.safe_dump(body))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(body)
