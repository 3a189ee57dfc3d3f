"""The contract's form: what it refuses, all at once and by path, and that ours keeps what it promises."""

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatehouse.data.validation.contract import Contract, contract_text, parse_contract, published_contract
from gatehouse.errors import ConfigurationError
from gatehouse.store.identity import identity_of

ROOT = Path(__file__).parents[3]


def _contract(**table: Any) -> str:
    body = {"columns": {"a": {"type": "int64"}, "at": {"type": "timestamp"}}} | table
    return yaml.safe_dump({"version": 1, "tables": {"t": body}})


@pytest.mark.parametrize(
    "text",
    [
        (ROOT / "pipelines/projects/flights/contract.yaml").read_text(),
        (ROOT / "gatehouse/project/templates/project/contract.yaml").read_text(),
        _contract(columns={"at": {"type": "timestamp", "min": "2013-01-01T00:00:00+02:00"}}, max_rows=9),
        _contract(columns={"a": {"type": {"value": "int64", "severity": "warn"}, "allowed": [1, 2]}}),
    ],
)
def test_the_published_text_of_a_contract_says_the_same(text: str) -> None:
    contract = parse_contract(text)
    again = published_contract(contract_text(contract))
    assert identity_of(again) == identity_of(_untold(contract))


def _untold(contract: Contract) -> Contract:
    tables = {name: table.model_copy(update={"description": ""}) for name, table in contract.tables.items()}
    return contract.model_copy(update={"description": "", "metadata": {}, "tables": tables})


_TEXTS = st.text(min_size=1, max_size=8)
_NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1)


@given(
    least=_NUMBERS,
    share=st.floats(0, 1),
    shift=st.floats(0, exclude_min=True, allow_infinity=False),
    values=st.lists(_TEXTS, min_size=1, max_size=4),
    name=_TEXTS,
    owner=_TEXTS,
    at=st.datetimes(),
)
@example(
    least=1e-05, share=1e-05, shift=1e300, values=["\U0001f6eb"], name="\U0001f6eb", owner="~", at=datetime(1, 1, 1)
)
@settings(max_examples=100, deadline=None)
@pytest.mark.filterwarnings("error::UserWarning")
def test_any_numbers_and_texts_of_a_contract_are_published_as_they_are(
    least: float, share: float, shift: float, values: list[str], name: str, owner: str, at: datetime
) -> None:
    columns = {
        "number": {"type": "double", "min": least, "completeness": share, "mean_shift": shift},
        "text": {"type": "string", "allowed": values, "owner": owner},
        "at": {"type": "timestamp", "min": at.isoformat()},
        f"other {name}": {"type": "bool"},
    }
    contract = Contract.model_validate({"version": 1, "owner": owner, "tables": {f"t{name}": {"columns": columns}}})
    assert published_contract(contract_text(contract)) == contract


def test_words_for_people_are_no_part_of_what_is_published() -> None:
    body = yaml.safe_load(_contract())
    described = {**body, "description": "What we agreed.", "metadata": {"wiki": "page 7"}}
    described["tables"] = {"t": {**body["tables"]["t"], "description": "One row a flight."}}
    assert contract_text(parse_contract(yaml.safe_dump(described))) == contract_text(
        parse_contract(yaml.safe_dump(body))
    )
    assert contract_text(parse_contract(_contract(owner="ops"))) != contract_text(parse_contract(_contract()))


def test_every_problem_is_named_at_once_with_its_path() -> None:
    text = _contract(columns={"a": {"type": "int", "completeness": 2}, "b": {"type": "string", "low": 1}}, min_rows=-1)
    with pytest.raises(ConfigurationError) as raised:
        parse_contract(text)
    message = str(raised.value)
    for path in ("t.columns.a.type", "t.columns.a.completeness", "t.columns.b.low", "t.min_rows"):
        assert re.search(rf"contract\.yaml:\d+: tables\.{re.escape(path)}: ", message), path
    assert message.startswith("4 problems")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"columns": {"a": {"type": "string", "min": 1}}}, "cannot bound a column of type string"),
        ({"columns": {"a": {"type": "int64", "pattern": "x"}}}, "expected a column of type string"),
        ({"columns": {"a": {"type": "string", "pattern": "["}}}, "expected a regular expression"),
        ({"columns": {"a": {"type": "string", "allowed": [True]}}}, "cannot be values of a column of type string"),
        ({"columns": {"a": {"type": "int64", "min": 3, "max": 2}}}, "expected min <= max"),
        ({"columns": {"a": {"type": "int64", "warn": {"min": 3, "max": 2}}}}, "expected min <= max"),
        ({"columns": {"a": {"type": "double", "sensitive": True, "psi": 0.1}}}, "none is kept of a sensitive column"),
        ({"columns": {"a": {"type": "string", "sensitive": True, "protected": True}}}, "names the groups"),
        ({"columns": {"a": {"type": "int64", "nullable": False, "completeness": 1}}}, "keep one of the two"),
        ({"unique": [["a", "b"]]}, "lists no column 'b'"),
        ({"unique": [[]]}, "at least 1 of them"),
        ({"freshness": {"column": "a", "within": "P1D"}}, "expected a timestamp column"),
        ({"min_rows": 3, "max_rows": 2}, "expected min_rows <= max_rows"),
        ({"foreign_keys": [{"columns": ["a"], "table": "u"}]}, "the contract has no table 'u'"),
        ({"foreign_keys": [{"columns": ["a"], "table": "t", "to": ["z"]}]}, "lists no column 'z'"),
        ({"expressions": [{"name": "x", "sql": "a < 1"}, {"name": "x", "sql": "a < 2"}]}, "different names"),
        ({"expressions": [{"name": "x", "sql": "at < now()"}]}, "differs from run to run"),
        ({"expressions": [{"name": "x", "sql": "true) OR (true"}]}, "expected one SQL expression"),
        ({"expressions": [{"name": "x", "sql": "(a > 1"}]}, "expected one SQL expression"),
        ({"expressions": [{"name": "x", "sql": "a > 1; DROP TABLE t"}]}, "expected one SQL expression"),
        *(
            ({"columns": {"a": {"type": "string", "pattern": pattern}}}, "is not known to RE2")
            for pattern in ("(?=a)b", "a(?!b)", "(?<=a)b", r"(a)\1", "(?>a)b")
        ),
    ],
)
def test_a_rule_that_means_nothing_is_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_contract(_contract(**table))


@pytest.mark.parametrize("pattern", [r"\(?a", "(?:a|b)+", "(?P<n>a)", r"\\(?:1)", "(?i)a", r"\(?=a"])
def test_a_pattern_that_re2_knows_is_accepted(pattern: str) -> None:
    parse_contract(_contract(columns={"a": {"type": "string", "pattern": pattern}}))


def test_every_function_that_differs_from_run_to_run_is_refused() -> None:
    unstable = "stability IN ('VOLATILE', 'CONSISTENT_WITHIN_QUERY')"
    query = f"SELECT DISTINCT function_name FROM duckdb_functions() WHERE {unstable}"
    calls = [f"{name}() = 1" for (name,) in duckdb.sql(query).fetchall()]
    for sql in (*calls, "age(a) > INTERVAL 1 DAY", "a < CURRENT_DATE"):
        with pytest.raises(ConfigurationError, match="differs from run to run"):
            parse_contract(_contract(expressions=[{"name": "x", "sql": sql}]))
    for sql in ("age(a, b) > INTERVAL 1 DAY", "stats > 1", "average = 2", "a IN (1, 2) AND b <> ');('"):
        parse_contract(_contract(expressions=[{"name": "x", "sql": sql}]))


@pytest.mark.parametrize("text", ["tables: [", "", "- a", "version: 1"])
def test_what_is_no_contract_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"contract\.yaml"):
        parse_contract(text)


def test_protected_columns_are_kept_as_such_and_none_may_be_sensitive_at_the_source() -> None:
    contract = parse_contract(_contract(columns={"a": {"type": "string", "protected": True}, "b": {"type": "int64"}}))
    assert contract.protected() == published_contract(contract_text(contract)).protected() == {"a": "t"}
    with pytest.raises(ConfigurationError, match=r"tables\.t\.columns\.a\.protected: an evaluation names the groups"):
        contract.hiding({"t": frozenset(["a"])})
