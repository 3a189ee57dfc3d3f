"""Every duration of every file takes one form, and says of any other what to write instead."""

import itertools
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from gatehouse.configuration.duration import Duration, in_iso, iso
from gatehouse.features.definitions.declarations import Available
from gatehouse.project.project_file import ProjectFile
from gatehouse.store.stage import declared_stages

declared_stages()


def _fields(model: type[BaseModel]) -> Iterator[tuple[type[BaseModel], str]]:
    for each in model.__subclasses__():
        if each.__module__.startswith("gatehouse.") and not each.__name__.startswith("_"):
            yield from ((each, name) for name, field in each.model_fields.items() if _holds(field.annotation))
        yield from _fields(each)


def _holds(annotation: Any) -> bool:
    return annotation is timedelta or any(_holds(each) for each in get_args(annotation))


FIELDS = sorted(set(_fields(BaseModel)), key=str)


def _told(model: type[BaseModel], name: str, value: Any) -> str:
    """What is said of a value of one field, whatever is said of others."""
    others = {"column": "c"} if model is Available else {}
    try:
        model.model_validate(others | {name: value})
    except ValidationError as error:
        return " ".join(each["msg"] for each in error.errors() if name in each["loc"])
    except Exception as error:
        return str(error)
    return ""


def test_fields_are_found() -> None:
    names = {name for _, name in FIELDS}
    assert ProjectFile and len(FIELDS) > 20
    assert {"gap", "horizon", "window", "ttl", "lag", "within", "interval", "availability_lag"} <= names


@pytest.mark.parametrize(("model", "name"), FIELDS)
def test_every_duration_is_iso_8601_and_nothing_else(model: type[BaseModel], name: str) -> None:
    for value in ("P1D", "PT12H", "P1DT12H", "P2W", "PT1M30S", timedelta(days=1)):
        assert not _told(model, name, value), value
    for value in ("1 day", "1d", "24:00:00", "1 days, 01:00:00", "-P1D", "P1M", "p1d", "P", "PT", "", 6, 1.5, True):
        assert ", found " in _told(model, name, value), value


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ("6h", "gap: PT6H"),
        ("6 hours", "gap: PT6H"),
        ("1d", "gap: P1D"),
        ("1 Day", "gap: P1D"),
        ("1.5 h", "gap: PT90M"),
        ("30 min", "gap: PT30M"),
        ("30m", "gap: PT30M"),
        ("45s", "gap: PT45S"),
        ("2 weeks", "gap: P14D"),
        ("1h30m", "gap: PT90M"),
        ("1 day, 6 hours", "gap: PT30H"),
        ("P\uff16D", "gap: P6D"),
        ("6x", "gap: P1D"),
        ("h", "gap: P1D"),
        ("-P30D", "gap: P30D"),
        ("99999999999h", "gap: P1D"),
        (6, "gap: P6D or gap: PT6H or gap: PT6S"),
        ("1 day", "gap: P1D"),
        ("36:00:00", "gap: PT36H"),
        ("p1dt1h", "gap: PT25H"),
        ("P1M", "gap: P30D"),
        ("soon", "gap: P1D"),
        (-3, "gap: P1D"),
        (0, "gap: P0D"),
        ("0 days", "gap: P0D"),
        (24, "gap: P24D or gap: P1D or gap: PT24S"),
        (2592000, "gap: P2592000D or gap: P108000D or gap: P30D"),
        (0.1, "gap: PT144M or gap: PT6M or gap: PT0.1S"),
        (float("inf"), "gap: P1D"),
        (float("nan"), "gap: P1D"),
        (10**12, "gap: P1D"),
    ],
)
def test_the_line_to_write_is_said(value: Any, lines: str) -> None:
    with pytest.raises(ValueError, match=rf"found {re.escape(repr(value))}; write {lines}$"):
        in_iso(value, "gap")
    for line in lines.split(" or "):
        form = line.removeprefix("gap: ")
        assert in_iso(form, "gap") == form and isinstance(TypeAdapter(Duration).validate_python(form), timedelta)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("PT1.5M30S", "of which only the last number may have a fraction; write gap: PT2M"),
        ("P1.5DT6H", "of which only the last number may have a fraction; write gap: PT42H"),
        ("P99999999999D", "which is longer than 999,999,999 days; write a shorter one"),
        ("PT99999999999999H", "which is longer than 999,999,999 days; write a shorter one"),
        ("P3000000Y", "which is longer than 999,999,999 days; write a shorter one"),
    ],
)
def test_what_pydantic_does_not_read_is_refused_with_the_reason(value: str, told: str) -> None:
    with pytest.raises(ValueError, match=rf"such as P1D or PT12H, found {re.escape(repr(value))}, {told}$"):
        in_iso(value, "gap")


def test_every_duration_that_is_accepted_is_read() -> None:
    parts = ("", "1Y"), ("", "2W"), ("", "3D", "1.5D"), ("", "4H", "1.5H"), ("", "5M", "1.5M"), ("", "6S", "1.5S")
    for years, weeks, days, *times in itertools.product(*parts):
        form = f"P{years}{weeks}{days}" + ("T" if any(times) else "") + "".join(times)
        try:
            accepted = in_iso(form, "gap")
        except ValueError:
            continue
        assert isinstance(TypeAdapter(timedelta).validate_python(accepted), timedelta), form


@pytest.mark.parametrize(
    "span",
    [
        timedelta(0),
        timedelta(days=400),
        timedelta(minutes=90),
        timedelta(seconds=1.5),
        timedelta(days=30, seconds=1),
        timedelta(days=30, microseconds=10),
        timedelta(days=999_999_999),
    ],
)
def test_what_is_offered_is_accepted(span: timedelta) -> None:
    assert TypeAdapter(Duration).validate_python(iso(span)) == span
