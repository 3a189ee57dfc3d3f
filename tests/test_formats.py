"""Recorded defaults: a digest leaves out what equals its default, so a default that changes is a new format."""

import ast
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gatehouse.store.canonical import canonical_json
from gatehouse.store.code import source_of
from gatehouse.store.identity import Spec, identity_of, is_operational
from gatehouse.store.source_tree import specs_of
from gatehouse.store.stage import declared_stages
from tests.source_tree import COMPONENTS, ROOT

RECORD = Path(__file__).parent / "formats.json"
"""Version and defaults by model; `python -m tests.test_formats` adds new fields and models to it."""


def _models() -> Iterator[type[Spec]]:
    """Every specification of the components, once all modules that can hold one are imported."""
    for path in sorted(COMPONENTS.rglob("*.py")):
        text = path.read_text()
        if "Spec)" in text or "(StageModel)" in text:
            name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            importlib.import_module(f"gatehouse.{name}".removesuffix(".__init__"))
    pending: list[type[Spec]] = [Spec]
    seen: set[type[Spec]] = set()
    while pending:
        model = pending.pop()
        if model not in seen and (model is Spec or model.__module__.startswith("gatehouse.")):
            seen.add(model)
            pending.extend(model.__subclasses__())
    # Without models that another test made while it ran.
    yield from sorted((model for model in seen - {Spec} if _stands_in_its_module(model)), key=_name)


def _stands_in_its_module(model: type[BaseModel]) -> bool:
    found: Any = sys.modules[model.__module__]
    for name in model.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is model


def _name(model: type[BaseModel]) -> str:
    return f"{model.__module__.removeprefix('gatehouse.components.')}.{model.__qualname__}"


def _defaults(model: type[Spec]) -> dict[str, Any]:
    found = {}
    for name, field in model.model_fields.items():
        if not field.is_required() and not is_operational(field):
            value = field.get_default(call_default_factory=True)
            found[name] = identity_of(value) if isinstance(value, BaseModel) else json.loads(_json(value))
    return found


def _json(value: Any) -> str:
    return json.dumps(value, default=lambda other: sorted(other) if isinstance(other, frozenset) else str(other))


def _recorded() -> dict[str, Any]:
    body: dict[str, Any] = json.loads(RECORD.read_text())
    return body


def test_a_changed_default_is_a_new_version_of_its_format() -> None:
    recorded, checked, wrong = _recorded(), 0, []
    for model in _models():
        known = recorded.get(_name(model))
        if known is None or known["version"] != model.format_version:
            continue
        now = _defaults(model)
        for name in known["defaults"].keys() & now.keys():
            checked += 1
            if now[name] != known["defaults"][name]:
                wrong.append(f"{_name(model)}.{name}: {known['defaults'][name]!r} became {now[name]!r}")
    assert checked > 20
    assert not wrong, "raise format_version of these models, and record them again"


def test_every_model_in_a_key_is_told_from_its_source() -> None:
    """Else its fields would be in code digests: a new one, or another description, would run stages again."""
    memoised = [stage for stage in declared_stages().values() if stage.declared.effects.memo]
    models = {module: set[str]() for stage in memoised for module in stage.sources().modules}
    for model in _models():
        if model.__module__ in models:
            models[model.__module__].add(model.__name__)
    assert sum(map(len, models.values())) > 50
    for module, names in models.items():
        source = source_of(module)
        assert source is not None
        assert names <= specs_of(ast.parse(source.read_bytes())), "name Spec as the last base of the others"


def test_every_default_is_recorded() -> None:
    recorded = _recorded()
    current = {_name(model): (model.format_version, _defaults(model)) for model in _models()}
    missing = [
        name
        for name, (version, defaults) in current.items()
        if recorded.get(name, {}).get("version") != version or defaults.keys() - recorded[name]["defaults"].keys()
    ]
    assert not missing, "run `python -m tests.test_formats`"
    assert recorded.keys() <= current.keys(), "models that are gone: run `python -m tests.test_formats`"


def record() -> None:
    """Write what is not recorded yet; a default that changed under the same version stays as it was."""
    recorded = _recorded() if RECORD.is_file() else {}
    body = {}
    for model in _models():
        known = recorded.get(_name(model), {})
        same = known.get("version") == model.format_version
        body[_name(model)] = {
            "version": model.format_version,
            "defaults": _defaults(model) | (known["defaults"] if same else {}),
        }
    # A line for each model: a difference shows what changed in which.
    lines = (f"{json.dumps(name)}: {json.dumps(json.loads(canonical_json(each)))}" for name, each in body.items())
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record()
