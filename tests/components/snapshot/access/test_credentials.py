"""Credentials reach neither a spec nor a message, however they are written into an address."""

from typing import Any

import pytest
from pydantic import ValidationError

from gatehouse.components.snapshot.access.credentials import holds_credentials, redacted
from gatehouse.components.snapshot.sources.catalog import parse_source

ODBC = "mssql+pyodbc:///?odbc_connect=DRIVER%3D%7BODBC+Driver+18%7D%3BUID%3Dme%3BPWD%3D{}%3BEncrypt%3Dyes"


@pytest.mark.parametrize(
    ("url", "holds"),
    [
        ("postgresql://me:hunter2@host/db", True),
        ("postgresql://me:hun/ter2@host/db", True),
        ("postgresql://me@host/db?password=hunter2", True),
        ("http://host:80/a@b", False),
        ("postgresql://me@host/db?sslpassword=hunter2", True),
        ("postgresql://me@host/db?p%61ssword=hunter2", True),
        (ODBC.format("hunter2"), True),
        (ODBC.format("%7Bhunter2%3B1%7D"), True),
        ("mssql+pyodbc://me@host/db?Pwd=hunter2", True),
        ("postgresql://me@host/db?sslmode=require", False),
        ("sqlite:///data/passwords.db", False),
        (ODBC.split("%3BPWD")[0], False),
    ],
)
def test_a_password_is_found_wherever_it_stands(url: str, holds: bool) -> None:
    assert holds_credentials(url) == holds


@pytest.mark.parametrize(
    "more",
    [
        {"kind": "sql", "tables": {"t": {"columns": {"a": "int64"}, "table": "t", "order_by": ["a"]}}},
        {"kind": "redis_stream", "tables": {"t": {"columns": {"a": "int64"}, "stream": "t"}}},
    ],
)
def test_a_spec_with_a_password_is_refused_without_showing_it(more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="holds a password") as caught:
        parse_source({"name": "s", "url": ODBC.format("hunter2")} | more)
    assert "hunter2" not in str(caught.value)


def test_a_message_is_shown_without_the_url_and_its_password() -> None:
    url = "postgresql://reader:s3cr3t%2Fpass@host/db?sslpassword=0ther"
    message = f"cannot reach {url}\n(password s3cr3t/pass, as sent s3cr3t%2Fpass, 0ther)"
    assert redacted(message, url) == "cannot reach *** (password ***, as sent ***, ***)"


def test_a_password_that_is_not_quoted_is_not_shown() -> None:
    url = "postgresql://reader:s3/cr3t@host/db"
    assert "cr3t" not in redacted(f"cannot reach {url[5:]}: no user with s3/cr3t", url)


def test_the_address_of_files_holds_no_password() -> None:
    table = {"member": "t.csv", "columns": {"a": "int64"}}
    with pytest.raises(ValidationError, match=r"path\n.*holds a password: leave it out") as caught:
        parse_source({"name": "s", "kind": "files", "path": "s3://me:hunter2@bucket", "tables": {"t": table}})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "said"),
    [("hunter2", "hunter2"), ("%7Bhunter2%3B1%7D", "hunter2;1"), ("%7Bhunter2%3B1%7D", "{hunter2;1}")],
)
def test_a_message_is_shown_without_the_password_of_a_connection_string(written: str, said: str) -> None:
    message = f"login failed: DRIVER={{ODBC Driver 18}};UID=me;PWD={said};Encrypt=yes. The password {said} is wrong."
    assert "hunter" not in redacted(message, ODBC.format(written))
    assert "UID=me" in redacted(message, ODBC.format(written))
