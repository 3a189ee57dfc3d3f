"""What carriers and errors say may be read by what decides: then it has a version, or it is in no artifact."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatehouse.store.carriers import FORMATS, is_in
from gatehouse.store.code import source_digests, source_of
from gatehouse.store.stage import declared_stages
from tests.source_tree import COMPONENTS, ROOT

RECORD = Path(__file__).parent / "carriers.json"
"""Digest and version of the modules that write what is read; `python -m tests.store.test_carriers`."""
_STORE = "gatehouse.store"
WIDE = {_STORE: [f"{_STORE}.{name}" for name in ("manifest", "canonical", "identity", "objects.listed_files")]}
"""Packages in which some modules alone write what has the version."""
READ = {
    "evaluation.origins": "an evaluation that cannot read its lineage is not remembered",
    "evaluation.seen": "an evaluation that cannot read its lineage is not remembered; the words of DuckDB end the run",
    "features.computing.compute": "the words end the run",
    "features.definitions.loading": "the words end the run",
    "features.definitions.repository": "the words end the run",
    "integration.candidate": "a suite that failed is not remembered",
    "integration.serving": "a suite that failed is not remembered",
    "messages.values": "the words of Unfit are in the digest, those of json have the version of Python in the key",
    "snapshot.guards": "the words go into the record of the delivery",
    "snapshot.sources.csv_rows": "the words end the run",
    "snapshot.sources.messages": "the words of Unfit are in the digest",
    "snapshot.sources.sql": "the words end the run",
    "splitting.checks": "the words of CannotRun are in the digest, as it has no name in Error",
    "training.data.batches": "the error is raised by the thread that waits for it",
    "training.program": "the words end the run",
    "training.transformation.columns": "the words end the run",
    "tuning.configuration": "the words end the run",
    "tuning.parameters": "the words end the run",
    "tuning.training_trials": "the words go into a record beside the experiment",
    "validation.checks": "the words are those of DuckDB, whose version is in the key",
    "validation.contract": "the words end the run",
    "validation.rules": "the words are those of DuckDB, whose version is in the key",
}
"""Modules that read the words of an error, each with the reason why no key must hold them."""


def _recorded_now() -> dict[str, list[str]]:
    found = {}
    for carrier, version in FORMATS.items():
        names = [one for one in _all_modules() if any(is_in(one, package) for package in WIDE.get(carrier, [carrier]))]
        assert names, carrier
        found[carrier] = [version, *source_digests(names).values()]
    return found


def _all_modules() -> Iterator[str]:
    for folder, paths in (
        (COMPONENTS.parent, COMPONENTS.rglob("*.py")),
        (ROOT / "gatehouse", ROOT.glob("gatehouse/*.py")),
    ):
        for path in sorted(paths):
            name = path.relative_to(folder).with_suffix("").as_posix().replace("/", ".")
            yield f"gatehouse.{name}".removesuffix(".__init__")


def _deciding() -> list[str]:
    """Modules of the stages whose results are remembered; a snapshot remembers by itself."""
    stages = [one for name, one in declared_stages().items() if one.declared.effects.memo or name == "snapshot"]
    return sorted({name for stage in stages for name in stage.sources().modules})


@pytest.mark.parametrize("carrier", FORMATS)
def test_a_carrier_whose_writing_is_read_has_the_digest_of_its_version(carrier: str) -> None:
    recorded: dict[str, list[str]] = json.loads(RECORD.read_text())
    assert recorded.get(carrier) == _recorded_now()[carrier], (
        f"{carrier} was edited. If what deciding code reads of it is another now, raise its version in FORMATS; then "
        "run `python -m tests.store.test_carriers`."
    )


def test_no_words_of_an_error_become_data() -> None:
    """The words of errors are in no digest, so an artifact that held them would have a key that lies."""
    reading = {}
    for module in _deciding():
        source = source_of(module)
        assert source is not None
        if lines := sorted(_read_words(ast.parse(source.read_bytes()))):
            reading[module.removeprefix("gatehouse.components.")] = lines
    assert reading.keys() - READ.keys() == set(), f"lines of these modules use an error as a value: {reading}"
    assert READ.keys() - reading.keys() == set(), "modules that do not do so any more"


def _read_words(tree: ast.AST) -> Iterator[int]:
    """Lines in which a caught error is used, but not to raise, to log, to ask its type or one of its attributes."""
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or not handler.name:
            continue
        harmless: set[int] = set()
        for node in ast.walk(handler):
            if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _asks(node.func)):
                harmless |= {id(each) for each in ast.walk(node)}
            elif isinstance(node, ast.Attribute) and node.attr not in ("args", "message", "msg"):
                harmless.add(id(node.value))
        for node in ast.walk(handler):
            if isinstance(node, ast.Name) and node.id == handler.name and id(node) not in harmless:
                yield node.lineno


def _asks(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return isinstance(function.value, ast.Name) and function.value.id == "logger"
    return isinstance(function, ast.Name) and function.id in ("type", "isinstance")


def test_nothing_that_decides_asks_how_a_metric_is_shown() -> None:
    """Title and form of a metric are in no digest."""
    shown = re.compile(r"\b(metric\w*(\([^()]*\))?|each|found|one)\.(title|caveat|text\()")
    for module in _deciding():
        source = source_of(module)
        assert source is not None
        if not module.endswith("metrics.catalogue.metric"):
            assert not shown.search(source.read_text()), module


if __name__ == "__main__":
    RECORD.write_text(
        "{\n" + ",\n".join(f'"{key}": {json.dumps(one)}' for key, one in _recorded_now().items()) + "\n}\n"
    )
