"""Changes one thing of a module at a time and runs its tests, up to the first failure: what would nobody notice?

    python -m tests.mutation gatehouse/evaluation/bootstrap.py [TEST ...]

Without tests it takes the file of `tests/` that mirrors the module. Each change is made in a fork of a process that has
the libraries loaded and nothing of Gatehouse; the changed module is imported in place of the file. Processes that a
test starts see the file. What was not noticed is printed, and the end is 1.
"""

import argparse
import ast
import importlib
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from threading import Timer
from types import ModuleType

LIBRARIES = ("duckdb", "hypothesis", "numpy", "pyarrow.compute", "pyarrow.parquet", "pydantic", "pytest", "scipy.stats")
SLOWER, AT_LEAST = 10, 60  # A change may make a loop endless.
_ROOTS = ("components", "pipelines", "gatehouse")
_ONES = (ast.Lt, ast.Gt, ast.Eq, ast.Is, ast.In, ast.And, ast.Add, ast.Mult)
_COUNTERPARTS = (ast.LtE, ast.GtE, ast.NotEq, ast.IsNot, ast.NotIn, ast.Or, ast.Sub, ast.Div)
_OTHER: dict[type[ast.AST], type[ast.AST]] = dict(zip(_ONES + _COUNTERPARTS, _COUNTERPARTS + _ONES, strict=True))


class _Change(ast.NodeTransformer):
    """Changes the place of this number, if there is one, and tells what it did."""

    def __init__(self, number: int) -> None:
        self.left, self.told = number, ""
        self.inside: ast.expr | ast.stmt = ast.Pass()

    def visit(self, node: ast.AST) -> ast.AST:
        """Change the node where it is its turn, else what is in it."""
        if (other := _other(node)) is not None:
            self.left -= 1
            if self.left == -1:
                shown = node if isinstance(node, ast.expr | ast.stmt) else self.inside
                self.told = f"{shown.lineno}: {type(node).__name__} -> {type(other).__name__} in {ast.unparse(shown)}"
                return ast.copy_location(other, node)
        outside, self.inside = self.inside, node if isinstance(node, ast.expr | ast.stmt) else self.inside
        changed: ast.AST = self.generic_visit(node)
        self.inside = outside
        return changed


def _other(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return ast.Constant(not node.value)
    return ast.Pass() if isinstance(node, ast.Raise) else _OTHER[type(node)]() if type(node) in _OTHER else None


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Every change of a module, in words that begin with its line, and the module with it."""
    for number in count():
        change = _Change(number)
        changed = change.visit(ast.parse(source))
        if not change.told:
            return
        yield change.told, ast.unparse(changed)


class _Instead(MetaPathFinder, Loader):
    """Imports a changed module in place of that of a file."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self.name, self.path, self.source = name, path, source

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, self, origin=str(self.path)) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self.path)
        exec(compile(self.source, str(self.path), "exec"), vars(module))


def _passes(finder: _Instead, tests: Sequence[str], seconds: int) -> bool:
    """Whether the tests pass, in a fork, within so many seconds."""
    import pytest

    child = os.fork()
    if not child:
        os.setsid()
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        sys.meta_path.insert(0, finder)
        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])))
    # Not an alarm in the child: pytest-timeout sets the same timer anew for each test.
    limit = Timer(seconds, os.killpg, (child, signal.SIGKILL))
    limit.start()
    _, status = os.waitpid(child, 0)
    limit.cancel()
    limit.join()  # No thread is left when the next one is forked.
    with suppress(ProcessLookupError):  # What a test had started.
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status) == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Try every change of a module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("module", type=Path, help="A file of gatehouse/, components/ or pipelines/.")
    parser.add_argument("tests", nargs="*", help="Files of tests, or single ones.")
    options = parser.parse_args(arguments)
    path: Path = options.module
    if path.parts[0] not in _ROOTS or path.suffix != ".py":
        parser.error(f"{path}: expected a file below {' or '.join(f'{root}/' for root in _ROOTS)}, from this folder")
    inside = path.relative_to("gatehouse") if path.parts[0] == "gatehouse" else path
    tests = options.tests or [str(Path("tests", inside.parent, f"test_{path.name}"))]
    for library in LIBRARIES:
        importlib.import_module(library)
    source, name, started = path.read_text(), ".".join(("gatehouse", *inside.with_suffix("").parts)), time.monotonic()

    def noticed(changed: str, seconds: int) -> bool:
        return not _passes(_Instead(name, path.resolve(), changed), tests, seconds)

    if noticed(source, 3600):
        parser.error(f"{' '.join(tests)}: expected tests that pass without any change")
    seconds = max(SLOWER * math.ceil(time.monotonic() - started), AT_LEAST)
    tried = [(message, noticed(changed, seconds)) for message, changed in mutants(source)]
    left = [message for message, result in tried if not result]
    print(*(f"{path}:{message}\n" for message in left), sep="", end="")
    print(f"{path}: {len(tried)} places, {len(tried) - len(left)} noticed, {len(left)} left")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
