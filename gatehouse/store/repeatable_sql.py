"""Rewrites users' SQL so that it gives the same bytes with any number of threads and any memory, or refuses it.

DuckDB adds doubles in the order in which threads and blocks come, so the last bits of a sum differ from run to run.
Here an aggregate of doubles becomes sums of whole numbers, which no order changes and which can be added to those of
other rows: every double is divided into three parts of 62 bits, in steps of 2^24, 2^-38 and 2^-100. Aggregates without
such a form read their rows in the order of the values. Rows that ORDER BY leaves equal are in the order of the columns
that the query reads where a window, LIMIT or DISTINCT ON chooses among them. Any other query stays as it is.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from gatehouse.errors import ConfigurationError
from gatehouse.store.database import quoted

if TYPE_CHECKING:
    import duckdb

_LARGEST, _PART = repr(2.0**86), f"{2**62}::HUGEINT"
# A lambda over a list of one value binds the value to a name, where a macro would repeat its text. The parts of a sum
# are carried before they become doubles, as one alone may have more digits than a double. A moment is the sum of the
# squares less that of the mean. The mean is cut to 24 bits, so that its square is exact, and what it lacks is taken off
# apart. A moment below the digits that are kept is that of equal values: 0.
_MACROS = f"""
within(x) AS CASE WHEN abs(x) < {_LARGEST} THEN x END
odd(x) AS CASE WHEN abs(x) < {_LARGEST} THEN NULL WHEN isfinite(x) THEN error('expected doubles (for variances, also
    their squares) below 7.7e25 to add, found a larger one. Divide them by a constant.') ELSE x END
high(x) AS trunc(x * {2.0**-24!r})::BIGINT
middle(x) AS trunc((x * {2.0**-24!r} - trunc(x * {2.0**-24!r})) * {2.0**62!r})::BIGINT
low(x) AS round((x * {2**38}::DOUBLE - trunc(x * {2**38}::DOUBLE)) * {2.0**62!r})::BIGINT
carry(part) AS round(part::DOUBLE * {2.0**-62!r})::HUGEINT
digits(a, b, c) AS a::DOUBLE * {2**24}::DOUBLE + (b::DOUBLE * {2.0**-38!r} + c::DOUBLE * {2.0**-100!r})
number(a, b, c) AS list_transform(
    [{{'a': a, 'b': b + gatehouse_carry(c), 'c': c - gatehouse_carry(c) * {_PART}}}], lambda s:
    gatehouse_digits(s['a'] + gatehouse_carry(s['b']), s['b'] - gatehouse_carry(s['b']) * {_PART}, s['c']))[1]
sum(a, b, c, odd) AS CASE WHEN isnan(odd) THEN 'NaN'::DOUBLE ELSE coalesce(odd, gatehouse_number(a, b, c)) END
short(x) AS x::FLOAT::DOUBLE
rest(x) AS gatehouse_short(x) * (x - gatehouse_short(x)) + (x - gatehouse_short(x)) * x
mean(n, a, b, c) AS gatehouse_short(gatehouse_number(a, b, c) / n)
less(a, b, c, n, x) AS gatehouse_number(
    a - n::HUGEINT * gatehouse_high(x), b - n::HUGEINT * gatehouse_middle(x), c - n::HUGEINT * gatehouse_low(x))
moment(n, a, b, c, aa, bb, cc, odd) AS CASE WHEN odd IS NULL THEN list_transform(
    [gatehouse_mean(n, a, b, c)], lambda m: list_transform(
    [{{'x': gatehouse_less(a, b, c, n, m), 'xx': gatehouse_less(aa, bb, cc, n, m * m)}}], lambda r: list_transform(
    [r['xx'] - m * r['x'] - m * r['x'] - r['x'] * r['x'] / n], lambda moment:
    CASE WHEN abs(moment) < n * (abs(m * m) * {2.0**-72!r} + {2.0**-96!r}) THEN 0::DOUBLE ELSE moment END
    )[1])[1])[1] ELSE 'NaN'::DOUBLE END
"""
_SUM, _VARIANCE = "gatehouse_sum({x})", "{xx} / nullif({n} - 1, 0)"
_FORMS = {
    **dict.fromkeys(("sum", "fsum", "kahan_sum", "sumkahan"), _SUM),
    **dict.fromkeys(("avg", "mean", "favg"), f"{_SUM} / {{n}}"),
    **dict.fromkeys(("var_samp", "variance"), _VARIANCE),
    **dict.fromkeys(("stddev", "stddev_samp"), f"sqrt({_VARIANCE})"),
    "var_pop": "{xx} / {n}",
    "stddev_pop": "sqrt({xx} / {n})",
    "sem": "sqrt({xx}) / {n}",
}
"""Aggregates by the number of rows, the sum, and the sum of the squares of the distances to the mean."""
_TYPED = ("sum", "avg", "mean")
"""Aggregates that add doubles only if their argument is a double; the others turn any number into a double."""
_DOUBLES = ("DOUBLE", "FLOAT", "UHUGEINT")
_PAIRED = (
    *("corr", "covar_pop", "covar_samp", "regr_sxx", "regr_sxy", "regr_syy", "regr_avgx", "regr_avgy"),
    *("regr_slope", "regr_intercept", "regr_r2"),
)
_ORDERED = ("product", "skewness", "kurtosis", "kurtosis_pop", "entropy", *_PAIRED)
"""Aggregates of doubles without a form."""
_CHOOSING = (
    *("first", "last", "any_value", "arbitrary", "mode", "list", "array_agg", "string_agg", "group_concat", "listagg"),
    *("arg_max", "argmax", "max_by", "arg_min", "argmin", "min_by"),
    *("arg_max_null", "arg_min_null", "arg_max_nulls_last", "arg_min_nulls_last"),
)
"""Aggregates whose result depends on the order of rows, of any type."""
_PLACED = ("row_number", "ntile", "lag", "lead")
"""Functions of a window that read the place of a row in it, whatever the frame."""
_OF_FRAMES = (*_CHOOSING, "first_value", "last_value", "nth_value")
"""Functions of a window that choose among the rows of a frame, also among those that ORDER BY leaves equal."""
_REPLACED = {*_FORMS, *_ORDERED, *_CHOOSING}
_APPROXIMATE = {
    "approx_quantile": "take quantile_cont",
    "reservoir_quantile": "take quantile_cont",
    "approx_top_k": "count in groups, and take the first ones of a total order",
}
"""Aggregates whose sketch depends on the order of rows, and what to write."""
_CHANCE = ("random", "setseed", "uuid", "gen_random_uuid", "uuidv4", "uuidv7")
_CLOCK = (
    *("now", "today", "ago", "get_current_timestamp", "get_current_time", "transaction_timestamp"),
    *("current_localtime", "current_localtimestamp"),
)
_CLOCK_WORDS = ("current_timestamp", "current_date", "current_time", "localtimestamp", "localtime")
_OTHER_WORDS = ("age", "sample", "tablesample", "summarize", "over", "limit", "offset", "fetch", r"distinct\s+on")
_OF_DUCKDB = ("geomean", "geometric_mean", "weighted_avg", "wavg", "json_group_array", "json_group_object")
"""Macros of DuckDB with such aggregates."""
_MATTERS = re.compile(
    rf"\b({'|'.join((*_REPLACED, *_APPROXIMATE, *_CHANCE, *_CLOCK, *_CLOCK_WORDS, *_OTHER_WORDS, *_OF_DUCKDB))})\b",
    re.IGNORECASE,
)
_TYPE = re.compile(r"'bit_count\(([^']*)\)'")
_DEEPEST = 30_000
"""Calls that lie within one another: some twenty for each level of an expression, of which DuckDB takes 1,000."""
_defining = Lock()

Node = dict[str, Any]
"""A node of DuckDB's syntax tree."""


def repeatable(connection: "duckdb.DuckDBPyConnection", query: str, where: str, macros: str = "") -> str:
    """The query with aggregates, windows and limits that do not depend on the order of rows.

    Its lines stay in their place, unless it has LIMIT or DISTINCT ON. `where` names the query in errors, such as
    `views/sales.sql`; `macros` is the SQL of the connection's macros. A query that DuckDB refuses comes back as it is.
    Raises ConfigurationError with the line of all that gives other rows at each run, such as `random()`.
    """
    if not _MATTERS.search(query) and not _MATTERS.search(macros):
        return query
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEPEST))
    try:
        # DuckDB takes COLUMNS neither in QUALIFY nor beside IS NULL; there the name of a table is its row.
        for by_name in (False, True):
            if (rewritten := _Rewriting(connection, query, where, macros, by_name).result()) is not None:
                return rewritten
        raise ConfigurationError(
            f"{where}: expected SQL that can be rewritten so that it does not depend on the order of rows. Name each "
            "column with an aggregate of doubles or a window (AS …), each subquery, file and function in FROM, and "
            "groups beside a window, in place of ALL. Beside QUALIFY, no table may have the name of a column."
        )
    finally:
        sys.setrecursionlimit(limit)


class _Rewriting:
    """Replaces aggregates in the syntax tree of one query, the innermost first."""

    def __init__(
        self, connection: "duckdb.DuckDBPyConnection", query: str, where: str, macros: str, by_name: bool
    ) -> None:
        self.by_name = by_name
        self.connection, self.query, self.where = connection, query, where
        self.tree = self.parsed(query)
        called = {_name(node) for node in _nodes(self.tree)}
        self.macros = self.macros_that_matter() if _MATTERS.search(macros) or called & {*_OF_DUCKDB} else {}
        self.columns: list[Any] | None = None
        self.only_whole, self.in_one_piece = False, False
        self.ties: list[Node] = []
        self.problems: list[str] = []
        self.edits: list[tuple[int, int, Any, Any]] = []
        self.line, self.macro = 1, ""

    def result(self) -> str | None:
        """The rewritten query; None if it has other columns for DuckDB. Raises as `repeatable` for problems."""
        self.visit(self.tree, "node")
        if self.tree["error"] == "not implemented":
            self.problems.append(
                f"{self.where}: expected PIVOT with IN and the values that become columns, so that Gatehouse can see "
                "whether it adds doubles"
            )
        if self.problems:
            raise ConfigurationError("\n  - ".join(self.problems))
        source, written, end = self.query.encode(), b"", 0
        for start, stop, holder, key in sorted(self.edits, key=lambda edit: (edit[0], -edit[1])):
            if start >= end:  # The others lie within one that is written.
                text = self.text(holder[key]).encode()
                lines = b"\n" * (source[start:stop].count(b"\n") - text.count(b"\n"))
                written, end = written + source[end:start] + text + lines, stop
        query = self.text(self.tree) if self.in_one_piece else (written + source[end:]).decode()
        return None if self.columns and self.described(query) != self.columns else query

    def visit(self, holder: Any, key: Any, pivoted: bool = False) -> bool:
        """Replace what is to be replaced in `holder[key]`, and say whether there was anything."""
        node = holder[key]
        if isinstance(node, list):
            visit = self.visit_column if key == "select_list" else self.visit
            return max([visit(node, index, pivoted) for index in range(len(node))], default=False)
        if not isinstance(node, dict):
            return False
        start, length = _place(node) if not self.macro else (0, 0)
        self.line = self.query.encode()[:start].count(b"\n") + 1 if length else self.line
        self.refuse(node)
        body = self.body(node)
        if body is not None:
            outer, self.macro = self.macro, self.macro or _name(node.get("function", node))
            holder[key] = body
            changed = self.visit(holder, key, pivoted)
            self.macro = outer
            if not changed:
                holder[key] = node
                return False
        else:
            of_pivot, ties = node.get("type") == "PIVOT", self.ties
            self.ties = self.ties_of(node) if "select_list" in node else ties
            children = [self.visit(node, child, pivoted or (of_pivot and child == "aggregates")) for child in node]
            if "modifiers" in node:
                children.append(self.limit(node))
            self.ties = ties
            window = self.window(node) if node.get("class") == "WINDOW" else node
            holder[key] = window
            form = self.form(holder, key, pivoted) if _name(node) in _REPLACED else None
            if form is None and window is node:
                return max(children, default=False)
            holder[key] = form or window
        holder[key]["alias"] = node["alias"] or holder[key]["alias"]
        if length:
            unnamed = {"alias": ""} if "class" in node else {}  # The name of an expression is no part of its place.
            self.edits.append((start, start + length, [holder[key] | unnamed], 0))
        return True

    def visit_column(self, columns: list[Node], index: int, pivoted: bool) -> bool:
        """Visit a column of a SELECT; it keeps the name that DuckDB gives to it."""
        column = deepcopy(columns[index])
        changed = self.visit(columns, index, pivoted)
        start, length = _place(column)
        if changed and not column["alias"] and not _stars(column):
            columns[index]["alias"] = self.text(column)
            if length and not self.macro:
                source, stop = self.query.encode(), start + length
                while source[:start].rstrip().endswith(b"(") and source[stop:].lstrip().startswith(b")"):
                    start, stop = source.rindex(b"(", 0, start), source.index(b")", stop) + 1
                self.edits.insert(0, (start, stop, columns, index))
        return changed

    def refuse(self, node: Node) -> None:
        """Note as a problem what gives other rows at each run."""
        name, advice = _name(node), "read getvariable('as_of')"
        if node.get("class") == "COLUMN_REF" and node["column_names"][-1].lower() in _CLOCK_WORDS:
            name = node["column_names"][-1].lower()
        elif name in _CHANCE:
            advice = "take a hash of the row's key"
        elif name in _APPROXIMATE:
            advice = _APPROXIMATE[name]
        elif node.get("sample"):
            name, advice = "a sample", "compare a hash of the row's key"
        elif node.get("show_type") == "SUMMARY":
            name, advice = "summarize", "name the aggregates"
        elif name not in _CLOCK and not (name == "age" and len(node["arguments"]) == 1):
            return
        self.note(name, advice)

    def note(self, name: str, advice: str) -> None:
        """Note a problem with its line."""
        place = f"{name} in the macro {self.macro}" if self.macro else name
        self.problems.append(f"{self.where}:{self.line}: expected the same rows at every run, found {place}; {advice}")

    def body(self, node: Node) -> Node | None:
        """The body that the call of a macro stands for, if the macro holds something to replace or to refuse."""
        function = node.get("function", node)
        if not isinstance(function, dict) or _name(function) not in self.macros:
            return None
        name, arguments = _name(function), _arguments(function)
        fitting = [macro for macro in self.macros[name] if len(macro[0]) == len(arguments)]
        if len(fitting) != 1 or any(argument["name"] for argument in function["arguments"]):
            self.problems.append(
                f"{self.where}:{self.line}: expected a value for each parameter of the macro {name}, in order, and no "
                "other macro of that name with as many, since it has an aggregate of doubles, a window, a limit or "
                "another result at each run"
            )
            return None
        parameters, types, text = fitting[0]
        for index, kind in enumerate(types):
            if kind:
                arguments[index] = self.expression(f"CAST({self.text(arguments[index])} AS {kind})")
        values = dict(zip(map(str.lower, parameters), arguments, strict=True))
        if function is not node:
            subquery = {"node": _replaced(self.parsed(text)["node"], values), "named_param_map": []}
            kept = {key: value for key, value in node.items() if key != "function"}
            return kept | {"type": "SUBQUERY", "alias": node["alias"] or name, "subquery": subquery}
        expression: Node = _replaced(self.expression(text), values)
        if node["class"] == "WINDOW":  # It is that of the one aggregate that such a macro may have.
            for aggregate in [part for part in _nodes(expression) if _name(part) in _REPLACED]:
                called = {key: aggregate[key] for key in ("function_name", "qualified_name", "arguments")}
                aggregate.clear()
                aggregate.update(node | called)
        return expression

    def ties_of(self, select: Node) -> list[Node]:
        """Expressions that differ for all rows that the columns of a SELECT, or its groups, tell apart."""
        columns, groups = select["select_list"], select["group_expressions"]
        if groups:
            numbers = [
                int(x["text"]) if (x := group.get("literal", {})).get("kind") == "INTEGER" else 0 for group in groups
            ]
            return [
                columns[k - 1] if 0 < k <= len(columns) else group for k, group in zip(numbers, groups, strict=True)
            ]
        parts = [*_nodes([columns, select["qualify"], select["modifiers"]])]
        read = {_plain(part): part for part in parts if part.get("class") == "COLUMN_REF"}
        aliases = {column["alias"].lower() for column in columns}
        # Rows that are equal in all columns that are read may be exchanged, unless windows give them different places.
        windows = {_plain([part["partitions"], part["orders"]]) for part in parts if part.get("class") == "WINDOW"}
        opaque = any(part.get("class") in ("STAR", "SUBQUERY", "LAMBDA", "POSITIONAL_REFERENCE") for part in parts)
        opaque = opaque or bool(aliases & {part["column_names"][0].lower() for part in read.values()})
        if len(windows) < 2 and not opaque:
            return list(read.values())
        tables, names = [select["from_table"]], list[str]()
        for table in tables:
            if table["type"] == "JOIN":
                tables += [table["left"]] if table["join_type"] in ("SEMI", "ANTI") else [table["left"], table["right"]]
            elif table["type"] != "EMPTY":
                names.append(table["alias"] or table.get("table_name") or "unnamed_subquery")
        if self.by_name and len(names) == len({*names}):
            return [self.expression(f"struct_values({quoted(name)})") for name in names]
        return [self.expression("row(*COLUMNS(*))")] if names else []

    def window(self, node: Node) -> Node:
        """A function of a window, in which no two rows are equal that its SELECT tells apart, where that matters."""
        name, frame, keys = _name(node), (node["start"], node["end"]), ["orders"]
        by_rows = "_ROWS" in "".join(frame)
        if name in _PLACED:
            keys = ["orders"] * bool(by_rows or not node["arg_orders"]) + ["arg_orders"] * bool(node["arg_orders"])
        elif name in _OF_FRAMES:
            keys = ["orders"] * by_rows + ["arg_orders"] * bool(not by_rows or node["arg_orders"])
        elif not by_rows:
            return node
        if not self.ties or not self.runs():
            return node
        if by_rows and node["exclude_clause"] in ("GROUP", "TIES"):
            if frame != ("UNBOUNDED_PRECEDING", "CURRENT_ROW_ROWS") or name in _OF_FRAMES:
                self.note(f"ROWS with EXCLUDE {node['exclude_clause']}", "write RANGE or GROUPS")
            return node
        if not node["orders"] and (by_rows or not (node["arg_orders"] or name in _CHOOSING)):
            self.note(f"{name} OVER rows without ORDER BY", "sort them by columns")
        for key in keys:
            orders = node[key] or node["orders"]
            ordered = {_plain(part) for part in (*node["partitions"], *(order["expression"] for order in orders))}
            ties = [tie for tie in self.ties if _plain(tie) not in ordered]
            node = node | {key: [*orders, *map(_ascending, ties)]} if ties else node
        return node

    def limit(self, query: Node) -> bool:
        """Let LIMIT and DISTINCT ON choose by ORDER BY, and then by all columns; says whether there was anything."""
        by_type = {modifier["type"]: modifier for modifier in query["modifiers"]}
        distinct, order = by_type.get("DISTINCT_MODIFIER"), by_type.get("ORDER_MODIFIER")
        on = distinct and distinct["distinct_on_targets"]
        if (not on and "LIMIT_MODIFIER" not in by_type) or not self.runs():
            return False
        if order is None:
            self.note("LIMIT or DISTINCT ON without ORDER BY", "sort by columns, or write ORDER BY ALL")
            return False
        orders = [each["expression"] for each in order["orders"]]
        if any(each["class"] == "STAR" and not each["expr"] for each in orders):
            return False  # ORDER BY ALL
        first = query
        while first["type"] == "SET_OPERATION_NODE" and "BY_NAME" not in first["setop_type"]:
            first = first["children"][0]
        columns = first.get("select_list") or [{"class": "STAR"}]
        if any(_name(part) == "unnest" for part in _nodes(columns)):
            self.note("LIMIT or DISTINCT ON beside unnest", "take unnest in a subquery, and sort by its columns")
        ties = [self.expression(str(number)) for number in range(1, len(columns) + 1)]
        if any(map(_stars, columns)):
            if "select_list" not in query or (distinct and not on):
                self.note("LIMIT beside columns without a name (*)", "name them, or write ORDER BY ALL")
            ties = self.ties
        elif distinct and not on:
            chosen = [[column["alias"].lower()] for column in columns] + [_path(column) for column in columns]
            sorted_by = [_path(part) for part in _nodes(orders) if part.get("class") == "COLUMN_REF"]
            if not all(any(x[-len(y) :] == y[-len(x) :] for y in chosen if y) for x in sorted_by):
                self.note(
                    "DISTINCT with LIMIT, in an order of other columns", "take GROUP BY, and max or min in ORDER BY"
                )
        query["modifiers"] = [modifier for modifier in query["modifiers"] if modifier is not order]
        query["modifiers"].insert(1 if distinct else 0, order | {"orders": [*order["orders"], *map(_ascending, ties)]})
        self.in_one_piece = True
        return True

    def runs(self) -> bool:
        """Whether DuckDB takes the query; from then on its columns are known, and the macros are there."""
        if self.columns is None:
            self.columns = self.described(self.query)
            self.only_whole = not self.macros and self.all_whole()
            with _defining:  # Not twice at the same time.
                for macro in re.split(r"\n(?=\w)", _MACROS.strip()) if self.columns else ():
                    self.connection.execute(f"CREATE MACRO IF NOT EXISTS gatehouse_{macro}")
        return bool(self.columns)

    def form(self, holder: Any, key: Any, pivoted: bool) -> Node | None:
        """The replacement of the aggregate in `holder[key]`; None if it adds no doubles, or the query does not run."""
        node: Node = holder[key]
        if node["class"] == "FUNCTION" and not node["arguments"] and node["schema"]:  # `amount.sum()`
            column = {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": node["qualified_name"]["path"][:-1]}
            holder[key] = node = _calling(node, _name(node), column)
        name, arguments = _name(node), _arguments(node)
        if name in _CHOOSING:
            if node["class"] == "WINDOW" or not arguments:
                return None
            arguments, by = arguments[:1], arguments[1:2]
            if any(self.text(part) == self.text(arguments[0]) for row in by for part in _members(row)):
                return None  # As in arg_max(x, (y, x)): equal rows have equal results.
        if not self.runs():
            return None
        in_order = pivoted or node["distinct"] or name in (*_ORDERED, *_CHOOSING) or _stars(node)
        if name in _TYPED and not in_order:
            kind = "BIGINT" if self.only_whole else self.type_of(holder, key)
            if kind and kind not in _DOUBLES:
                return None
            in_order = not kind
        if in_order:
            window = node["class"] == "WINDOW"
            orders = [*(node["arg_orders"] if window else node["order_bys"]["orders"])]
            orders += map(_ascending, arguments)
            return node | {"arg_orders": orders, "order_bys": {"type": "ORDER_MODIFIER", "orders": orders}}
        x = f"CAST({self.text(arguments[0])} AS DOUBLE)"
        over = self.text(_calling(node, "gatehouse_call", self.expression("1"))).removeprefix("gatehouse_call(1)")

        def parts(*values: str) -> str:
            sums = (" + ".join(f"gatehouse_{part}({value})" for value in values) for part in ("high", "middle", "low"))
            return ", ".join(f"sum({each}){over}" for each in sums)

        n, within = f"count({x}){over}", f"gatehouse_within({x})"
        values = parts(within)
        squares = parts(f"gatehouse_short({within}) * gatehouse_short({within})", f"gatehouse_rest({within})")
        moment = f"gatehouse_moment({n}, {values}, {squares}, sum(gatehouse_odd({x} * {x})){over})"
        return self.expression(_FORMS[name].format(n=n, x=f"{values}, sum(gatehouse_odd({x})){over}", xx=moment))

    def all_whole(self) -> bool:
        """Whether all sums and means are of whole numbers, at one look."""
        tree = deepcopy(self.tree)
        for node in _nodes(tree):
            for argument in node["arguments"] if _name(node) in _TYPED else ():
                argument["expression"] = _calling(self.expression("f(1)"), "bit_count", argument["expression"])
        return bool(self.described(self.text(tree)))

    def type_of(self, holder: Any, key: Any) -> str:
        """The type of an aggregate's argument: "BIGINT" for every whole number, empty where DuckDB does not say it."""
        import duckdb

        node = holder[key]
        holder[key] = _calling(self.expression("f(1)"), "bit_count", _calling(node, "max", *_arguments(node)))
        try:
            # DuckDB counts the bits of whole numbers alone, and says which other type it was given.
            self.connection.execute(f"DESCRIBE {self.text(self.tree)}")
        except duckdb.Error as error:
            match = _TYPE.search(str(error))
            return match[1] if match else ""
        finally:
            holder[key] = node
        return "BIGINT"

    def macros_that_matter(self) -> dict[str, list[tuple[list[str], list[str | None], str]]]:
        """Macros with something to replace or to refuse, directly or not: by name their parameters, types and text."""
        listed = self.connection.execute(
            "SELECT lower(function_name), parameters, parameter_types, macro_definition FROM duckdb_functions() "
            "WHERE macro_definition IS NOT NULL AND NOT starts_with(function_name, 'gatehouse_') "
            "AND (NOT internal OR list_contains(?, function_name))",
            [[*_OF_DUCKDB]],
        ).fetchall()
        names, words = set[str](), _MATTERS
        while more := {name for name, *_, text in listed if words.search(text)} - names:
            names |= more
            words = re.compile(rf"\b({'|'.join(map(re.escape, more))})\b", re.IGNORECASE)
        return {name: [(row[1], row[2], row[3]) for row in listed if row[0] == name] for name in names}

    def described(self, query: str) -> list[Any]:
        """Names and types of a query's columns; empty if DuckDB refuses it."""
        import duckdb

        try:
            return self.connection.execute(f"DESCRIBE {query}").fetchall()
        except duckdb.Error:
            return []

    def parsed(self, query: str) -> Node:
        """The syntax tree of a query, under `node`; null for what is no query, with the kind of the `error`."""
        ((text,),) = self.connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()
        answer = json.loads(text)
        statements = answer.get("statements", ())
        tree: Node = statements[0] if len(statements) == 1 else {"node": None}
        return tree | {"error": answer.get("error_type", "")}

    def expression(self, text: str) -> Node:
        """The syntax tree of an expression."""
        return cast(Node, self.parsed(f"SELECT {text}")["node"]["select_list"][0])

    def text(self, node: Node) -> str:
        """The SQL of a query, of an expression, or of what follows FROM."""
        query, before = node, ""
        if "class" in node:
            query, before = {"node": self.parsed("SELECT 1")["node"] | {"select_list": [node]}}, "SELECT "
        elif "node" not in node:
            query, before = {"node": self.parsed("SELECT * FROM t")["node"] | {"from_table": node}}, "SELECT * FROM "
        tree = json.dumps({"error": False, "statements": [query]})
        ((text,),) = self.connection.execute("SELECT json_deserialize_sql(?::JSON)", [tree]).fetchall()
        return str(text).removeprefix(before)


def _nodes(tree: Any) -> Iterator[Node]:
    """All nodes of a syntax tree."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()


def _plain(tree: Any) -> str:
    """An expression without its place and name, for comparison."""

    def bare(part: Any) -> Any:
        if isinstance(part, list):
            return [bare(each) for each in part]
        if not isinstance(part, dict):
            return part
        return {key: bare(each) for key, each in part.items() if not key.startswith("query_loc") and key != "alias"}

    return json.dumps(bare(tree))


def _path(node: Node) -> list[str]:
    """The parts of the name that an expression is, in small letters; none if it is more than a name."""
    return [name.lower() for name in node.get("column_names", ())]


def _name(node: Node) -> str:
    return str(node.get("function_name", "")).lower()


def _arguments(node: Node) -> list[Node]:
    return [argument["expression"] for argument in node["arguments"]]


def _ascending(expression: Node) -> Node:
    return {"type": "ORDER_DEFAULT", "null_order": "ORDER_DEFAULT", "expression": expression | {"alias": ""}}


def _members(node: Node) -> list[Node]:
    """The values of a row that is written as `(a, b)`."""
    return _arguments(node) if _name(node) == "row" else []


def _place(node: Node) -> tuple[int, int]:
    """Where a node begins in its query and its length, in bytes; the length of what has no place is 0."""
    return node.get("query_location", 0), node.get("query_location_length", 0)


def _stars(node: Node) -> bool:
    """Whether an expression stands for several columns."""
    return any(part.get("class") == "STAR" for part in _nodes(node))


def _calling(node: Node, name: str, *arguments: Node) -> Node:
    """The call of a function, with FILTER and OVER as those of another call."""
    called: Node = {"function_name": name, "schema": "", "catalog": "", "qualified_name": {"path": [name]}}
    called |= {"arguments": [{"name": "", "expression": argument} for argument in arguments]}
    # OVER has its order of arguments under another key; neither reads that of the other.
    called |= {"arg_orders": [], "order_bys": {"type": "ORDER_MODIFIER", "orders": []}}
    return node | called | {"distinct": False, "alias": ""}


def _replaced(tree: Any, values: Mapping[str, Node]) -> Any:
    """A syntax tree with values in place of parameters."""
    if isinstance(tree, list):
        return [_replaced(node, values) for node in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("class") == "COLUMN_REF" and len(tree["column_names"]) == 1:
        value = values.get(tree["column_names"][0].lower())
        if value is not None:
            return deepcopy(value) | {"alias": tree["alias"]}
    return {key: _replaced(node, values) for key, node in tree.items()}
