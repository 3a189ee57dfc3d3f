"""SQL as text: which tables a query reads, its parameters, and the macros of `macros.sql`. Uses tokens, no parser.

References contain hashes of these texts, so no version of a parser may change them.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Literal

PARAMETERS = ("as_of", "from", "until")
"""What the queries of views, labels and staging tables may read with `getvariable`."""
KNOWN_PARAMETERS = ("as_of", "since")
"""What the queries in `known/` may read."""
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
    for found in _TOKEN.finditer(query):
        kind = "word" if found.lastgroup in ("text", "name") else found.lastgroup
        if kind == "comment":
            between += found[0]
            continue
        if kind is not None and kind == before:
            joined = written.endswith("'") and found[0].startswith("'") and "\n" in between and "/*" not in between
            written += "\n" if joined else " "
        written += found[0]
        before, between = kind, ""
    return written


def names_read(schema: Literal["staging", "raw"], query: str, defined: Iterable[str]) -> list[str]:
    """The tables of a schema that a query reads. SQL ignores case, so names are spelled as in `defined`."""
    spelled = {name.lower(): name for name in defined}
    names = [found["word"] or found["quoted"].replace('""', '"') for found in _READ[schema].finditer(code(query))]
    return [spelled.get(name.lower(), name) for name in names]


def replacing_macros(text: str) -> str:
    """`macros.sql` with `CREATE OR REPLACE MACRO`, so that its statements can run again."""
    bare = _TOKEN.sub(lambda found: " " if found.lastgroup == "comment" else found[0], text)
    return _MACRO.sub(r"CREATE OR REPLACE MACRO \g<name>(", bare)


def macros_in(text: str) -> dict[str, str]:
    """The text of every macro of `macros.sql`, by name in lower case; text after a macro belongs to it."""
    text = code(text)
    starts = [*_MACRO.finditer(text)]
    ends = [*(found.start() for found in starts), len(text)][1:]
    return {found["name"].lower(): text[found.start() : end] for found, end in zip(starts, ends, strict=True)}


def macro_problems(text: str) -> list[str]:
    """Statements of `macros.sql` whose macro has no plain name: a change to them would go unnoticed."""
    blanks = {"comment": " ", "text": "''", "name": '""'}
    bare = _TOKEN.sub(lambda found: blanks.get(found.lastgroup or "", found[0]), text)
    statements = [" ".join(statement.split()) for statement in bare.split(";")]
    expected = "expected only CREATE MACRO name(...) AS ..., with no schema and no quotes"
    return [
        f"macros.sql: {expected}, found {statement!r:.80}"
        for statement in statements
        if statement and not _MACRO.match(statement)
    ]


def without_texts(query: str) -> str:
    """SQL with blanks in place of comments, string literals and quoted names; all other text keeps its position."""
    blank = re.compile(r"[^\n]")
    return _TOKEN.sub(
        lambda found: blank.sub(" ", found[0]) if found.lastgroup in ("comment", "text", "name") else found[0], query
    )


def parameter_problems(file: str, query: str, known: tuple[str, ...]) -> list[str]:
    """Problems with the parameters of a query: each must be `getvariable` of one of the `known` names."""
    blanks = {"comment": " ", "text": " ", "name": '""'}
    bare = _TOKEN.sub(lambda found: blanks.get(found.lastgroup or "", found[0]), query)
    expected = "expected " + (" or ".join(f"getvariable('{name}')" for name in known) or "none")
    found = dict.fromkeys(re.findall(r"\?|\$\w+", bare))
    problems = [f"{file}: the positional parameter {text}: {expected}" for text in found]
    named = dict.fromkeys(_VARIABLE.findall(code(query)))
    return problems + [f"{file}: the unknown parameter {name!r}: {expected}" for name in named if name not in known]
