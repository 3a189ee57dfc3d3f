"""What is no YAML, or would never end to be read, is told with its line; so is a file that cannot be read."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from gatehouse.cli.init import create_project
from gatehouse.cli.place import DEFAULT_STORE, prices_of, store_address
from gatehouse.configuration.yaml_lines import load_model
from gatehouse.configuration.yaml_text import read_text
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.settings import read_settings
from gatehouse.project.checking import check_project


class _Anything(BaseModel, extra="allow"):
    pass


_BOMB = "x0: &x0 [1]\n" + "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]\n" for n in range(1, 20))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a:\n  b: 1\n\tc: 2\n", "f:3: is not YAML: found a tab before the key; indent with spaces"),
        ("a:\n\tb: 1\n", "f:2: is not YAML: found a tab"),
        ("a: 1\nb: c: d\n", "f:2: is not YAML: found a second ': ' in a line"),
        ("a: 1\nb: [1, 2\nc: 3\n", "f:2: is not YAML: found [ that is never closed"),
        ("a: 1\nb: 'c\n", "f:2: is not YAML: found ' that is never closed"),
        ("a: 1\nb: @c\n", "f:2: is not YAML: found a value that begins with @; put it in quotes"),
        ("a: 1\nb: *c\n", "f:2: is not YAML: found a value that begins with *"),
        ("a: 1\nb: !c d\n", "f:2: is not YAML: found a value that begins with !"),
        ("a: 1\nb:2\nc: 3\n", "f:2: is not YAML: expected a key with its colon and a space"),
        ("a: 1\n---\nb: 2\n", "f:2: is not YAML: found a second document"),
        ("a:\n  b: 1\n c: 2\n", "f:3: is not YAML: found a line that is indented otherwise"),
        (
            "a: 1\nb:\u00a02\n",
            "f:2: is not YAML: found NO-BREAK SPACE, which is no colon and no space; write `key: value`",
        ),
        ("a: 1\nb\uff1a 2\nc: 3\n", "f:2: is not YAML: found FULLWIDTH COLON, which is no colon and no space"),
        ("a: 1\nb: {\n", "f:2: is not YAML: found a [ or { that is never closed, or a comma with nothing before it"),
        ("a: 1\nb: [, 1]\n", "f:2: is not YAML: found a [ or { that is never closed, or a comma"),
        ("a: 1\n: 2\n", "f:2: is not YAML: found a colon with no key before it; write the key"),
        ("a: 1\n? [b]\n: 2\n", "f:2: is not YAML: found a list or a section as a key; write a text"),
        ("a: 1\nb: 1:30\n", "f:2: found 1:30, which YAML reads as 90; write the number in digits alone, or put"),
        ("a: 1\nb: [0300]\n", "f:2: found 0300, which YAML reads as 192; write"),
        ("a: 1\nb: !!int c\n", "f:2: is not YAML: a value cannot be read; put it in quotes, or correct it"),
        ("a: 1\nb: !!set [1]\n", "f:2: is not YAML: a value cannot be read"),
        ("a: 1\nb: 0x_\n", "f:2: is not YAML: a value cannot be read"),
        ("a: 1\nb: !!timestamp c\n", "f:2: is not YAML: a value cannot be read"),
        ("a: 1\nb: &c {d: *c}\n", "f:2: is not YAML: found the alias *c inside of &c, so that it never ends; remove"),
        ("a: 1\nb: &c {<<: *c}\n", "f:2: is not YAML: found the alias *c inside of &c"),
        ("a: 1\nb: &c [1, [*c]]\n", "f:2: is not YAML: found the alias *c inside of &c"),
        ("a: 1\nb: " + "[" * 3000, "f:2: is not YAML: found more than 100 lists or sections inside of each other"),
        ("a: 1\nb: " + "{c: " * 100_000, "f:2: is not YAML: found more than 100 lists or sections"),
        ("a: 1\n" + _BOMB, "f:7: is not YAML: found aliases that stand for more than 100,000 values; write fewer"),
        ("a: 1\nb: c\x00d\n", "f:2: is not YAML: control characters are not allowed"),
    ],
)
def test_what_is_no_yaml_is_told_with_its_line_and_what_to_do(text: str, told: str) -> None:
    problems: list[str] = []
    read = load_model("f", text, _Anything, problems)
    assert read is None and [problem.startswith(told) for problem in problems] == [True], problems
    assert "<unicode" not in "".join(problems) and not re.search(r"{\w*}", "".join(problems))


def test_aliases_and_levels_that_a_person_writes_are_read() -> None:
    deep = "[" * 99 + "]" * 99
    text = f"a: &a {{x: 1}}\nb: {{<<: *a, y: 2}}\nc: [*a, *a]\nd: {deep}\n"
    read = load_model("f", text, _Anything, problems := [])
    assert read is not None and not problems
    assert read.model_dump()["b"] == {"x": 1, "y": 2} and read.model_dump()["c"] == [{"x": 1}, {"x": 1}]


def test_a_key_that_stands_twice_under_an_alias_is_told_once() -> None:
    problems: list[str] = []
    load_model("f", "a: &a {x: 1, x: 2}\nb: *a\n", _Anything, problems)
    assert problems == ["f:1: x: stands twice; keep one of them"]


@pytest.mark.parametrize("value", ["&m {retrain: *m}", "[" * 100_000])
def test_no_command_reads_a_project_that_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    project = create_project("returns", tmp_path)
    _replace(project / "project.yaml", "monitoring: {}", f"monitoring: {value}")
    _replace(project / "features/feature_store.yaml", "online_store:", f"flags: {value}\nonline_store:")
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    assert "project.yaml:82: is not YAML: found " in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"project\.yaml:82: is not YAML: found "):
        prices_of(project)
    monkeypatch.chdir(project)
    assert store_address("") == str(project / DEFAULT_STORE)
    with pytest.raises(ConfigurationError, match=r"feature_store\.yaml:7: is not YAML: found "):
        read_settings(project / "features")


def test_a_day_that_is_none_is_a_text() -> None:
    read = load_model("f", "a: 2024-13-01\n", _Anything, [])
    assert read is not None and read.model_dump() == {"a": "2024-13-01"}


def _replace(path: Path, before: str, after: str) -> None:
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after, 1))


class _Snapshots(BaseModel, extra="forbid"):
    name: str
    snapshots: dict[str, str] = {}


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("1", "a whole number"),
        ("1.5", "a number"),
        ("true", "true or false"),
        ("~", "nothing"),
        ("2024-01-01", "a time"),
        ("0x10", "a whole number"),
    ],
)
def test_a_key_that_is_no_text_is_told_with_its_line(key: str, kind: str) -> None:
    told = f"expected a text as the key, found {kind}; write the name of a key, or put it in quotes"
    for text in (f"name: n\n{key}: 3\n", f"name: n\nsnapshots:\n  {key}: s\n"):
        problems: list[str] = []
        assert load_model("f", text, _Snapshots, problems) is None
        assert problems == [f"f:{text.count(chr(10))}: {key}: {told}"]


def test_what_else_is_wrong_is_told_beside_a_key_that_is_no_text() -> None:
    problems: list[str] = []
    load_model("f", "nam: n\n1: 3\nsnapshots: {2: s, on: [3]}\n", _Snapshots, problems)
    assert [each.partition(": expected")[0] for each in problems] == [
        "f:2: 1",
        "f:3: 2",
        "f:3: snapshots.on",
        "f:1: nam: there is no such key (did you mean name?)",
    ]


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize("file", ["project.yaml", "contract.yaml", "policy.yaml"])
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (Path.unlink, "expected a file in {}, found none; `gatehouse init` writes one"),
        (_folder, "expected a file in {}, found a folder"),
        (_link, "expected a file that can be read, found none \\(Too many levels of symbolic links\\)"),
        (lambda path: path.write_bytes(b"a: \xe9"), "expected text in UTF-8, found the byte 0xe9 in line 1"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, file: str, spoil: Callable[[Path], Any], told: str) -> None:
    project = create_project("returns", tmp_path)
    spoil(project / file)
    with pytest.raises(ConfigurationError, match=f"(?s)^1 problem.*  - {file}: {told.format(project)}"):
        check_project(project)


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)  # Who runs tests as root may read everything.
    assert read_text(tmp_path / "f", "f", problems := []) is None
    assert problems == ["f: expected a file that you may read, found one that you may not; change its permissions"]


def test_a_query_that_is_no_text_and_settings_that_are_empty_are_told(tmp_path: Path) -> None:
    project = create_project("returns", tmp_path)
    (project / "features/views/order_content.sql").write_bytes(b"SELECT 1 -- \xe9")
    (project / "features/staging/orders.sql").write_bytes(b"SELECT 1 -- \xe9")
    with pytest.raises(ConfigurationError) as caught:
        check_project(project)
    for name in ("views/order_content.sql", "staging/orders.sql"):
        assert f"  - features/{name}: expected text in UTF-8, found the byte 0xe9 in line 1" in str(caught.value)
    (project / "features/feature_store.yaml").write_text("# nothing\n")
    with pytest.raises(ConfigurationError, match="expected keys with Feast's settings, found an empty file"):
        read_settings(project / "features")
