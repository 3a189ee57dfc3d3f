"""SQL as text: the tables that a query reads, its parameters, the macros of `macros.sql`. Uses tokens, no parser.

References contain hashes of these texts, so no version of a parser may change them.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Literal

PARAMETERS = ("as_of", "from", "until")
"""The variables that queries of views, labels and staging tables may read with `getvariable`."""
KNOWN_PARAMETERS = ("as_of", "since")
"""The variables that queries in `known/` may read."""
_MACRO = re.compile(
    r"\bCREATE\s+(?:OR\s+REPLACE\s+)?MACRO\s+(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>\w+)\s*\(", re.IGNORECASE
)
_TOKEN = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?\*/|\s+)"
    r"|(?P<text>\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"
    r"|(?P<name>\"(?:[^\"]|\"\")*\")"
    r"|(?P<word>\w+)"
    r"|(?P<operator>(?:(?!--|/\*)[-+*/<>=~!@#%^&|`?:])+)"
    r"|.",
    re.DOTALL,
)
_VARIABLE = re.compile(r"\bgetvariable\s*\(\s*'([^']*)'\s*\)", re.IGNORECASE)
_READ = {
    schema: re.compile(rf'\b{schema}"?\.(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<word>\w+))', re.IGNORECASE)
    for schema in ("staging", "raw")
}


@cache
def code(query: str) -> str:
    """SQL without comments, and with a space only between two words or two operators.

    The meaning is the same: two string literals on two lines, which SQL joins to one, stay on two lines.
    """
    written, before, between = "", None, ""
    for token in _TOKEN.finditer(query):
        kind = "word" if token.lastgroup in ("text", "name") else token.lastgroup
        if kind == "comment":
            between += token[0]
            continue
        if kind is not None and kind == before:
            joined = written.endswith("'") and token[0].startswith("'") and "\n" in between and "/*" not in between
            written += "\n" if joined else " "
        written += token[0]
        before, between = kind, ""
    return written


def names_read(schema: Literal["staging", "raw"], query: str, defined: Iterable[str]) -> list[str]:
    """The tables of a schema that a query reads. SQL ignores case, so names are spelled as in `defined`."""
    spelled = {name.lower(): name for name in defined}
    names = [match["word"] or match["quoted"].replace('""', '"') for match in _READ[schema].finditer(code(query))]
    return [spelled.get(name.lower(), name) for name in names]


def replacing_macros(text: str) -> str:
    """`macros.sql` with `CREATE OR REPLACE MACRO`, so that its statements can run again."""
    bare = _TOKEN.sub(lambda token: " " if token.lastgroup == "comment" else token[0], text)
    return _MACRO.sub(r"CREATE OR REPLACE MACRO \g<name>(", bare)


def macros_in(text: str) -> dict[str, str]:
    """The text of every macro of `macros.sql`, by name in lower case; text after a macro belongs to it."""
    text = code(text)
    starts = [*_MACRO.finditer(text)]
    ends = [*(match.start() for match in starts), len(text)][1:]
    return {match["name"].lower(): text[match.start() : end] for match, end in zip(starts, ends, strict=True)}


def macro_problems(text: str) -> list[str]:
    """Statements of `macros.sql` whose macro has no plain name: a change to them would go unnoticed."""
    statements = [" ".join(statement.split()) for statement in _blanked(text, "''", '""').split(";")]
    expected = "expected only CREATE MACRO name(...) AS ..., with no schema and no quotes"
    return [
        f"macros.sql: {expected}, found {statement!r:.80}"
        for statement in statements
        if statement and not _MACRO.match(statement)
    ]


def parameter_problems(file: str, query: str, parameters: tuple[str, ...]) -> list[str]:
    """Problems with the parameters of a query: each must be `getvariable` of one of the `parameters`."""
    expected = "expected " + (" or ".join(f"getvariable('{name}')" for name in parameters) or "none")
    positional = dict.fromkeys(re.findall(r"\?|\$\w+", _blanked(query, " ", '""')))
    problems = [f"{file}: the positional parameter {text}: {expected}" for text in positional]
    named = dict.fromkeys(_VARIABLE.findall(code(query)))
    unknown = [name for name in named if name not in parameters]
    return problems + [f"{file}: the unknown parameter {name!r}: {expected}" for name in unknown]


def query_problems(file: str, query: str) -> Iterator[str]:
    """Problems in the text of a query, with their line: it is empty, or several statements."""
    # Blanks in place of comments and literals: all other text keeps its position.
    blank = re.compile(r"[^\n]")
    bare = _TOKEN.sub(
        lambda token: blank.sub(" ", token[0]) if token.lastgroup in ("comment", "text", "name") else token[0], query
    )
    if not bare.strip(" \t\r\n;"):
        yield f"{file}: expected a query, one SELECT, found none"
    elif (end := bare.find(";")) >= 0:
        line = bare.count("\n", 0, end) + 1
        yield f"{file}:{line}: expected one SELECT without ';', as it stands inside of another query"


def _blanked(query: str, text: str, name: str) -> str:
    """SQL with other texts in place of comments, string literals and quoted names."""
    blanks = {"comment": " ", "text": text, "name": name}
    return _TOKEN.sub(lambda token: blanks.get(token.lastgroup or "", token[0]), query)
