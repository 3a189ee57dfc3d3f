"""Every line of a shell block that is no command of ours is held by a rule: what it names is there."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from kfp.cli.cli import cli as kfp

from tests.docs.test_commands import _BLOCK, _pages
from tests.source_tree import ROOT

_INLINE = re.compile(r"`((?:[A-Z_]+=\S+ )?(?:make|kubectl|kfp|bash) [^`\n]+)`")
_SHELL = re.compile(r"^([ ]*)```(?:bash|sh|console)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_PROGRAMS = r"(?:[A-Z_]+=\S+ )?(?:make|kubectl|kfp|curl|docker|bash|python) "
WRITTEN = {
    "canary/inferenceservice.yaml": "gatehouse models handoff flight-delays@canary --percent 10 --online --out canary",
    "kueue.yaml": "gatehouse kueue manifests pipelines/projects/flights/platforms/cluster.yaml > kueue.yaml",
    "compiled/returns-training.yaml": "gatehouse compile returns --platform returns/platforms/cluster.yaml --output c",
    "returns": "gatehouse init returns --from orders.csv",
    "features/views/orders_row.sql": "gatehouse init returns --from orders.csv",
    "features/definitions.py": "gatehouse init returns --from orders.csv",
}
"""Files that a command of the same page writes."""
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def _commands(text: str) -> Iterator[str]:
    """Lines of shell blocks; of other blocks and of sentences, those of programs that a rule knows."""
    text = re.sub(r"<<'END'\n.*?^\s*END$", "<<END", text, flags=re.MULTILINE | re.DOTALL)
    blocks = [block.replace("\\\n", " ") for _, block in _SHELL.findall(text)]
    for block in blocks:
        lines = [line.strip() for line in block.splitlines() if line.strip()]
        typed = [line[2:] for line in lines if line.startswith("$ ")]
        yield from (line for line in typed or lines if not line.startswith("gatehouse "))
    others = "\n".join(block for _, block in _BLOCK.findall(text))
    yield from (line.strip() for line in others.splitlines() if re.match(_PROGRAMS, line.strip()))
    yield from re.findall(rf"^    ({_PROGRAMS}.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    yield from _INLINE.findall(text)


def _wrong(line: str, page: str) -> str:
    """What is wrong with a line; empty where nothing is."""
    line = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line)
    if line.startswith("curl "):
        routes = (ROOT / "gatehouse/server/predictor.py").read_text(encoding="utf-8")
        return "" if "/v2/models/" in line and "/infer" in routes and "/infer " in line else "no such route"
    words = shlex.split(line, comments=True)
    named: list[str] = []
    match words:
        case ["make", *targets]:
            lacking = [one for one in targets if "=" not in one and one not in TARGETS]
            return f"no target {lacking}" if lacking else ""
        case ["kubectl", "apply", *_] if "-f" in words:
            named = [words[words.index("-f") + 1]]
        case ["kubectl"] | ["kubectl", "apply"] | ["export", "PATH=$PWD/.venv/bin:$PATH"]:
            return ""
        case ["kubectl", "create", "configmap" | "secret" as kind, *given]:
            names = given[1:] if kind == "secret" else given
            keys = [word.split("=")[1] for word in given if word.startswith("--from-literal=")]
            settings = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
            lacking = [one for one in (names[0], *keys) if f"`{one}`" not in settings]
            return f"no setting {lacking}" if lacking else ""
        case ["kubectl", "create", "token", *_] | ["kubectl", "port-forward", *_] | ["python", "-", *_]:
            return ""
        case ["kfp", *given]:
            return _wrong_kfp(given) or _not_there([word for word in given if word.endswith(".yaml")], page)
        case ["bash" | "python", file, *_] if not file.startswith("-"):
            named = [file]
        case ["cd", file] | ["sed", "-i", _, file]:
            named = [file]
        case ["bash" | "python", "-m" | "-X", *_]:
            return ""
        case _:
            return "no rule holds it"
    return _not_there(named, page)


def _not_there(files: list[str], page: str) -> str:
    lacking = [one for one in files if not (ROOT / one).exists() and WRITTEN.get(one, "\0") not in page]
    return f"neither here nor written by the page: {lacking}" if lacking else ""


def _wrong_kfp(given: list[str]) -> str:
    """As kfp's own parser says it."""
    import click

    command, context = kfp, click.Context(kfp, info_name="kfp")
    try:
        while isinstance(command, click.Group):
            _, given, _ = command.make_parser(context).parse_args([*given])
            name, found, given = command.resolve_command(context, given)
            assert found is not None, name
            command, context = found, click.Context(found, info_name=name, parent=context)
        command.make_parser(context).parse_args([*given])
    except click.UsageError as error:
        return error.format_message()
    return ""


@pytest.mark.parametrize("page", _pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_other_commands_name_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert {line: wrong for line in _commands(text) if (wrong := _wrong(line, text))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "make tests",
        "kubectl apply -f docs/role.yaml",
        "kubectl create secret generic others -n NS",
        "bash images/builds.sh",
        "kfp run make -e returns",
        "curl localhost:8080/v1/predict",
        "ls",
    ],
)
def test_what_is_wrong_with_one_is_found(line: str) -> None:
    assert _wrong(line, "")
