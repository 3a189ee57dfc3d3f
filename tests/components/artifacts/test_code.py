"""Code digests: what changes them and what does not."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from gatehouse.components.artifacts import code
from gatehouse.components.artifacts.code import code_digest, import_closure


def test_the_closure_holds_imports_of_imports_and_nothing_of_others() -> None:
    closure = import_closure("gatehouse.components.artifacts.stage")
    assert "gatehouse.components.artifacts.manifest" in closure
    assert "gatehouse.errors" in closure
    assert not any("training" in name or "kfp" in name for name in closure)


def test_a_stage_does_not_depend_on_another_stage_s_code() -> None:
    assert not any(".evaluation." in name for name in import_closure("gatehouse.components.splitting.stage"))


def test_the_digest_names_the_distributions_versions() -> None:
    module = "gatehouse.components.artifacts.canonical"
    assert code_digest(module) != code_digest(module, ("pydantic",))
    assert code_digest(module, ("no-such-distribution",)) != code_digest(module)


def test_imports_inside_functions_count_and_edits_change_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {
        "__init__": "",
        "a": "def f():\n    from gatehouse.b import g\n    return g()\n",
        "b": "def g():\n    return 1\n",
        "c": "x = 1\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(code, "_ROOT", tmp_path)
    digests = []
    for edited in (None, "c", "b"):
        if edited:
            (tmp_path / f"{edited}.py").write_text("def g():\n    return 2\n")
        for function in (code._imports, code._source, code._file_digest):
            function.cache_clear()
        digests.append(code_digest("gatehouse.a"))
    for function in (code._imports, code._source, code._file_digest):
        function.cache_clear()
    assert digests[0] == digests[1] != digests[2]


def test_computing_a_digest_imports_nothing_of_the_stage() -> None:
    script = (
        "import sys; from gatehouse.components.artifacts.code import code_digest;"
        "code_digest('gatehouse.components.training.stage');"
        "assert 'gatehouse.components.training.stage' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_imports_that_are_found_are_those_of_the_syntax_tree() -> None:
    root = Path(code.__file__).parents[2]
    for path in sorted((root / "components").rglob("*.py")) + sorted((root / "gatehouse").glob("*.py")):
        name = ".".join(("gatehouse", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        name = name.replace("gatehouse.gatehouse", "gatehouse")
        wanted: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                wanted.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                wanted.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
        ours = {each for each in wanted if each.startswith("gatehouse") and code._source(each)}
        assert ours <= code._imports(name), path
        assert {
            each for each in code._imports(name) - ours if not any(other.startswith(each) for other in ours)
        } == set()
