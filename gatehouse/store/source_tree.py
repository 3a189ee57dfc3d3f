"""Reduces a source file to a syntax tree of what can change a result, and finds its imports.

Left out are comments and layout, docstrings, blocks for type checkers, log lines, texts of errors, fields of requests
and configurations (their values are in the key), and the declaration of a stage; then the imports and the private
functions and constants that only these lines used.
"""

import ast
import hashlib
import itertools
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGE = "gatehouse"
_DOTTED = re.compile(rf"{_PACKAGE}(\.\w+)+(\.\*)?")
_SPECS = frozenset({"Spec", "StageModel"})
_SHOWN = frozenset({"title", "form", "caveat", "aliases", "chance"})
_VIEWS = frozenset({"items", "keys", "values"})
_WRITING = frozenset({"join", "str", "repr", "len", "counted"})
"""Functions with which texts are put together: they take names and texts, and use up no iterator."""
_WRITTEN = (
    *(ast.Name, ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.Attribute, ast.List, ast.Tuple, ast.BinOp),
    *(ast.operator, ast.expr_context, ast.IfExp, ast.BoolOp, ast.boolop, ast.Compare, ast.cmpop, ast.GeneratorExp),
)
"""What a text is put together from: none of these has an effect or fails, calls of others than `_WRITING` aside."""
_LOGGED = _WRITING | _VIEWS | {"isoformat", "strip", "rstrip", "decode", "format", "round"}
"""Functions that a log line may call and still be left out."""
_ACTING = frozenset(
    {"add", "append", "appendleft", "clear", "choice", "commit", "connect", "delete", "discard"}
    | {"execute", "extend", "fetchall", "fetchone", "fill", "heappop", "heappush", "insert", "integers"}
    | {"manual_seed", "next", "normal", "permutation", "pop", "popitem", "popleft", "publish", "push"}
    | {"put", "random", "read", "readline", "remove", "reverse", "send", "setdefault", "shuffle"}
    | {"sort", "submit", "uniform", "update", "write"}
)
"""Functions that change something: an argument of an error with one of them stays."""
_MAKING = _WRITING | {"compile", "frozenset", "tuple", "dict", "timedelta", "datetime", "TypeVar", "maketrans"}
"""Functions that make the value of a constant."""
_BOUNDS = frozenset({"Field"})
"""Calls in the annotation of a field that leave its value as it is."""
_CONSUMING = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.comprehension)
"""What may have an effect beside calls: a comprehension may use up an iterator."""
_MOST_KEPT = 20_000
_VERSION = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
"""Digest of this module as it was loaded: the file may be edited while it runs, which changes the facts found."""
_kept = 0


@dataclass(frozen=True)
class SourceFacts:
    """The facts about one source file that a digest needs.

    Attributes:
        digest: SHA-256 of the reduced syntax tree.
        names: Dotted names of ours that it imports or has as a text; some are attributes, not modules. A name that ends
            in `.*` stands for all modules of a folder.
        packages: External packages that it imports, without the standard library.
    """

    digest: str
    names: tuple[str, ...]
    packages: tuple[str, ...]


def facts_of(source: bytes) -> SourceFacts:
    """The facts of a source file, from the user's cache if the same bytes were read before.

    Parsing all sources takes a second, which a run that finds nothing new would notice.
    """
    key = hashlib.sha256(source).hexdigest()
    known = _cache()
    if key not in known:
        known[key] = analyse(source)
    return known[key]


def keep_facts() -> None:
    """Write the cache if it grew; if it cannot be written, the next process parses again."""
    global _kept
    known = _cache()
    if len(known) == _kept:
        return
    _kept = len(known)
    body = {key: [one.digest, one.names, one.packages] for key, one in list(known.items())[-_MOST_KEPT:]}
    with suppress(OSError):
        folder = _cache_file().parent
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=folder)
        with open(descriptor, "w") as file:
            json.dump(body, file)
        os.replace(name, _cache_file())


def analyse(source: bytes) -> SourceFacts:
    """The facts of a source file. Raises SyntaxError if it is invalid.

    What a field names is imported to build it, so it is found before the fields are removed.
    """
    tree = ast.parse(source)
    used = _names([tree])
    tree = _needed(_WithoutWords().visit(tree), used)
    names, packages = set(), set()
    for name in _imported(tree):
        top = name.split(".")[0]
        if top == _PACKAGE:
            names.add(name)
        elif top not in sys.stdlib_module_names:
            packages.add(top)
    tree = _needed(_WithoutFields(tree).visit(tree), used)
    digest = hashlib.sha256(ast.dump(tree, annotate_fields=False).encode()).hexdigest()
    return SourceFacts(digest, tuple(sorted(names)), tuple(sorted(packages)))


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
            yield node.value


class _WithoutWords(ast.NodeTransformer):
    """Removes what is for people, and how a stage is run."""

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Remove docstrings, texts that describe a constant, and log lines."""
        if isinstance(node.value, ast.Constant):
            return None
        if isinstance(node.value, ast.Call) and _is_log_line(node.value):
            return None
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> Any:
        """Remove a block for type checkers, which never runs."""
        if _last_name(node.test) == "TYPE_CHECKING":
            return [self.visit(each) for each in node.orelse]
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        """Remove the text of an error; only the fact that it is raised matters, and what it carries by keyword."""
        kept = self.generic_visit(node)
        if _is_error(node.func):
            node.args = [each for each in node.args if _acts(each)]
        return kept

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Remove the version of a release; only its code matters."""
        return None if _last_name(node.targets[0]) == "__version__" else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """Remove declarations of a stage, and of what is written beside a number: they affect how it runs or looks."""
        used = _names([node])
        node.decorator_list = [each for each in node.decorator_list if not _declares_a_stage(each)]
        for each in node.decorator_list:
            if isinstance(each, ast.Call):
                each.keywords = [keyword for keyword in each.keywords if keyword.arg not in _SHOWN]
        self.generic_visit(node)
        outer = (each.names for each in ast.walk(node) if isinstance(each, ast.Global | ast.Nonlocal))
        known = set(itertools.chain.from_iterable(outer))
        while unread := used - _names([node]) - known:
            _WithoutTexts(unread).visit(node)
            known |= unread
        return node


class _WithoutTexts(ast.NodeTransformer):
    """Removes texts that were prepared, in a variable, for what is removed; what may have an effect stays."""

    def __init__(self, names: Set[str]) -> None:
        self._names = names

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Remove a line that sets these variables alone."""
        names = _set_names(node)
        return None if names and names <= self._names and _is_text(node.value) else node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Leave a class as it is: its attributes are no variables."""
        return node


def specs_of(tree: ast.AST) -> set[str]:
    """Names of the specifications in a module: classes of `Spec` or `StageModel`, and those derived of them here.

    A class that is derived of an imported specification names `Spec` as its last base.
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(_last_name(base) in _SPECS | found for base in node.bases):
            found.add(node.name)
    return found


class _WithoutFields(ast.NodeTransformer):
    """Removes fields of specifications: their values are in the request.

    What deciding code builds by itself is in no request: a default that changes raises `format_version`, which stays.
    """

    def __init__(self, tree: ast.AST) -> None:
        self._specs = specs_of(tree)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Remove the fields of a specification."""
        if node.name in self._specs:
            node.body = [each for each in node.body if not _is_field(each)]
        return self.generic_visit(node)


class _WithoutImports(ast.NodeTransformer):
    """Removes imports of names."""

    def __init__(self, names: Set[str]) -> None:
        self._names = names

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> Any:
        """Remove the names, and an import that is left without any."""
        node.names = [each for each in node.names if _bound(each) not in self._names]
        return node if node.names else None

    visit_ImportFrom = visit_Import


def _needed(tree: ast.Module, used: Set[str]) -> ast.Module:
    """Remove imports, and private functions and constants, that nothing in the tree uses any more.

    Args:
        tree: Of a source from which lines were removed.
        used: Names that the source used. An import that it never used has an effect, and stays.
    """
    unsure = [each for each in tree.body if (names := _private(each)) and names <= used]
    needed = _names(each for each in tree.body if each not in unsure)
    while found := [each for each in unsure if _private(each) & needed]:
        unsure = [each for each in unsure if each not in found]
        needed |= _names(found)
    tree.body = [each for each in tree.body if each not in unsure]
    reduced: ast.Module = _WithoutImports(used - needed).visit(tree)
    return reduced


def _private(node: ast.stmt) -> set[str]:
    """The names that a line of a module defines, if all are private; a decorator may hand a function on."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        names = set() if node.decorator_list else {node.name}
    else:
        names = _set_names(node) if _makes_only(node) else set()
    return names if all(name.startswith("_") for name in names) else set()


def _makes_only(node: ast.stmt) -> bool:
    """Whether a line of a module has no effect but to make a value: it calls nothing but `_MAKING`."""
    return all(_last_name(each.func) in _MAKING for each in ast.walk(node) if isinstance(each, ast.Call))


def _set_names(node: ast.stmt) -> set[str]:
    """The variables that an assignment sets; none for other lines, and for those that set more than variables."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return set()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    found = [each for target in targets for each in ast.walk(target) if isinstance(each, ast.expr)]
    plain = all(isinstance(each, ast.Name | ast.Tuple) for each in found)
    return {each.id for each in found if isinstance(each, ast.Name)} if plain else set()


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that are read somewhere in these trees."""
    found = (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name))
    return {each.id for each in found if not isinstance(each.ctx, ast.Store)}


def _is_text(value: ast.expr) -> bool:
    """Whether a value is only put together from names and texts, so that whether it is set makes no difference."""
    return all(map(_writes, ast.walk(value)))


def _writes(part: ast.AST) -> bool:
    if isinstance(part, ast.comprehension):  # Of an iterator it would take what others wait for.
        return isinstance(part.iter, ast.Call) and _last_name(part.iter.func) in _VIEWS
    return _last_name(part.func) in _WRITING | _VIEWS if isinstance(part, ast.Call) else isinstance(part, _WRITTEN)


def _acts(value: ast.expr) -> bool:
    """Whether something in a value has an effect on what follows."""
    return any(
        _last_name(each.func) in _ACTING
        if isinstance(each, ast.Call)
        else isinstance(each, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom)
        for each in ast.walk(value)
    )


def _bound(imported: ast.alias) -> str:
    return imported.asname or imported.name.split(".")[0]


def _last_name(node: ast.expr) -> str:
    """`b` for `a.b` and for `b`; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_field(node: ast.stmt) -> bool:
    """Whether a line of a specification declares a field whose value is as it was given.

    Constants are none, among them its format's version, nor are private attributes; and a validator in the annotation
    may give another value to what is read from an artifact.
    """
    if not isinstance(node, ast.AnnAssign) or _last_name(node.target).startswith("_"):
        return False
    parts = [each for each in ast.walk(node.annotation) if isinstance(each, ast.expr)]
    return not any(map(_validates, parts)) and all(_last_name(each) != "ClassVar" for each in parts)


def _validates(part: ast.expr) -> bool:
    """Whether a part of an annotation may be a validator: a call, or a name beside the type in `Annotated`."""
    if isinstance(part, ast.Call):
        return _last_name(part.func) not in _BOUNDS
    if not isinstance(part, ast.Subscript) or _last_name(part.value) != "Annotated":
        return False
    beside = part.slice.elts[1:] if isinstance(part.slice, ast.Tuple) else []
    return not all(isinstance(each, ast.Call) for each in beside)


def _is_log_line(call: ast.Call) -> bool:
    """Whether a call writes to the log of the module, and does nothing else."""
    function = call.func
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return False
    if function.value.id not in ("logger", "logging"):
        return False
    given = (part for each in (*call.args, *call.keywords) for part in ast.walk(each))
    return all(
        _last_name(part.func) in _LOGGED if isinstance(part, ast.Call) else not isinstance(part, _CONSUMING)
        for part in given
    )


def _is_error(function: ast.expr) -> bool:
    name = _last_name(function).lstrip("_")
    return name.endswith("Error") and name[:1].isupper()


def _declares_a_stage(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and _last_name(decorator.func) == "stage"


@cache
def _cache() -> dict[str, SourceFacts]:
    global _kept
    known: dict[str, SourceFacts] = {}
    with suppress(OSError, ValueError, TypeError, LookupError):
        body = json.loads(_cache_file().read_text())
        known = {key: SourceFacts(one[0], tuple(one[1]), tuple(one[2])) for key, one in body.items()}
    _kept = len(known)
    return known


@cache
def _cache_file() -> Path:
    """One cache file per version of this module, because another version may find other facts."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "gatehouse" / f"sources-{_VERSION}.json"
