"""A report: one self-contained HTML page, the same bytes for the same content.

The page loads nothing and sends nothing: its policy (Content-Security-Policy) allows its own style sheet and, where it
has a filter, its own script, both by digest, so that no text from data can become either. Without the script
everything is there to read; the filter, which needs it, is hidden.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatehouse.reports import elements
from gatehouse.reports.elements import MARKS, SIGNS, Card, Entry, Marked
from gatehouse.reports.format import Html, escape, prose
from gatehouse.reports.script import SCRIPT
from gatehouse.reports.style import STYLE

__all__ = ["MARKS", "Card", "Entry", "Marked", "Report", "Verdict"]

_CONTENTS_FROM = 2  # Sections, from which on the page has a table of contents.
TOLD = 5
"""Lines of each list in a verdict that holds more than one more."""


@dataclass(frozen=True)
class Verdict:
    """What was decided, why, and what to do: all that a reader has to see first.

    Attributes:
        word: `pass`, `fail`, `refused` or `warn`, which decides the colour.
        text: What was found. Several lines become a list.
        reasons: A list below the text.
        warnings: What the verdict does not hang on, and somebody should know.
        unchecked: What was not checked, with the reason of each.
        todo: What to do now.
        title: What stands in place of the word.
    """

    word: str
    text: str = ""
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    todo: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        if self.word not in MARKS:
            raise ValueError(f"verdict: expected one of {', '.join(MARKS)}, found {self.word!r}")


class Report:
    """Builds a page from top to bottom; every text is escaped.

    Example:
        >>> page = Report("Validation of flights", verdict=Verdict("pass"))
        >>> page.section("Columns").table(["column", "nulls"], [["dest", 0]]).html().startswith("<!doctype html>")
        True
    """

    def __init__(self, title: str, subtitle: str = "", verdict: Verdict | None = None) -> None:
        self._title = title
        self._head = [f"<h1>{escape(title)}</h1>"]
        if subtitle:
            self._head.append(f'<p class="sub">{escape(subtitle)}</p>')
        if verdict:
            self._head.append(_verdict(verdict))
        self._parts: list[str] = []
        self._sections: list[tuple[str, str]] = []
        self._facets: Mapping[str, Sequence[str]] | None = None

    def section(self, title: str, text: str = "", count: str = "") -> "Report":
        """Begin a section; `count` stands beside its title in the table of contents."""
        if self._sections:
            self._parts.append("</section>")
        self._sections.append((title, count))
        anchor = f"s{len(self._sections)}"
        self._parts.append(f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{escape(title)}</h2>')
        if text:
            self._parts.append(f"<p>{prose(text)}</p>")
        return self

    def note(self, text: str) -> "Report":
        """A paragraph of smaller weight."""
        self._parts.append(f'<p class="note">{prose(text)}</p>')
        return self

    def facts(self, facts: Mapping[str, Any]) -> "Report":
        """Names and values, one a line; references are set in a fixed width."""
        self._parts.append(elements.facts(facts))
        return self

    def tiles(self, numbers: Mapping[str, Any]) -> "Report":
        """A few numbers, large, each over its name; `Marked` ones in their colour."""
        self._parts.append(elements.tiles(numbers))
        return self

    def table(
        self,
        headers: Sequence[str],
        rows: Iterable[Sequence[Any]],
        marks: Mapping[int, str] | None = None,
        formats: Mapping[str, Callable[[Any], str]] | None = None,
    ) -> "Report":
        """A table. Columns of numbers are aligned to the right, and formatted by `format.number` unless told otherwise.

        Args:
            headers: Names of the columns.
            rows: The cells: text, numbers, None for nothing, or any of them `Marked`.
            marks: Row number to `good`, `bad`, `warn` or `soft`, for rows that should stand out.
            formats: Column name to the function that writes its numbers, e.g. `format.percent`.

        Raises:
            ValueError: if a row has another number of cells than there are headers.
        """
        self._parts.append(elements.table(headers, rows, marks, formats, self._label()))
        return self

    def figure(self, svg: Html, caption: str) -> "Report":
        """One chart: an SVG from `charts` with a caption."""
        return self.figures((svg, caption))

    def figures(self, *figures: tuple[Html, str]) -> "Report":
        """Charts side by side, each an SVG from `charts` with a caption."""
        drawn = "".join(
            f"<figure>{elements.scrolling(svg, caption)}<figcaption>{prose(caption)}</figcaption></figure>"
            for svg, caption in figures
        )
        self._parts.append(f'<div class="figures">{drawn}</div>')
        return self

    def element(self, html: Html) -> "Report":
        """Add an element unchanged."""
        self._parts.append(html)
        return self

    def folded(self, summary: str, html: Html) -> "Report":
        """Something of less weight, closed until the reader opens it."""
        self._parts.append(f'<details class="folded"><summary>{escape(summary)}</summary>{html}</details>')
        return self

    def filters(self, facets: Mapping[str, Sequence[str]]) -> "Report":
        """A bar that filters all entries and cards of the page by text and by facet.

        Args:
            facets: Names of facets (words of letters) and the values that entries and cards may have.
        """
        self._facets = facets
        self._parts.append(elements.filters(facets))
        return self

    def entries(self, headers: Sequence[str], rows: Sequence[Entry]) -> "Report":
        """A table whose rows filter and expand."""
        self._parts.append(elements.entries(headers, rows, self._facets or {}, self._label()))
        return self

    def cards(self, cards: Sequence[Card]) -> "Report":
        """Cards below each other, closed, that filter and expand."""
        self._parts.append(elements.cards(cards, self._facets or {}))
        return self

    def html(self) -> str:
        """The whole page."""
        contents = self._contents()
        ending = "</section>" if self._sections else ""
        script = f"<script>{SCRIPT}</script>" if self._facets is not None else ""
        allowed = f"script-src {_digest(SCRIPT)}; " if script else ""
        policy = (
            f"default-src 'none'; style-src {_digest(STYLE)}; {allowed}img-src data:; base-uri 'none'; "
            "form-action 'none'"
        )
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            # Without an icon of its own, a page makes the browser ask the server for one.
            f'<link rel="icon" href="data:,"><title>{escape(self._title)}</title><style>{STYLE}</style></head>\n'
            '<body><a class="skip" href="#main">Skip to the content</a>'
            f'<div class="page{" with-contents" if contents else ""}"><header>\n{chr(10).join(self._head)}\n</header>'
            f'{contents}<main id="main" tabindex="-1">\n{chr(10).join(self._parts)}\n{ending}</main></div>'
            f"{script}</body></html>\n"
        )

    def _label(self) -> str:
        return self._sections[-1][0] if self._sections else self._title

    def _contents(self) -> str:
        if len(self._sections) < _CONTENTS_FROM:
            return ""
        lines = "".join(
            f'<li><a href="#s{index}">{escape(title)}</a>{f" <small>{escape(count)}</small>" if count else ""}</li>'
            for index, (title, count) in enumerate(self._sections, start=1)
        )
        return f'<nav class="contents" aria-label="Contents"><ul>{lines}</ul></nav>'


def _verdict(verdict: Verdict) -> str:
    lines = [line for line in verdict.text.splitlines() if line.strip()]
    listed = [*(lines if len(lines) > 1 else ()), *verdict.reasons]
    text = f"<p>{prose(lines[0])}</p>" if len(lines) == 1 else ""
    sign = f'<span class="sign" aria-hidden="true">{SIGNS[verdict.word]}</span>'
    parts = [
        f'<div class="verdict {verdict.word}" role="region" aria-label="Verdict">',
        f"<b>{sign}<span>{escape(verdict.title or verdict.word)}</span></b>{text}{_list(listed)}",
        f"<p><strong>What to do:</strong> {prose(verdict.todo)}</p>" if verdict.todo else "",
        "</div>",
        _aside("warn", "!", "warning", verdict.warnings),
        _aside("unchecked", "?", "not checked", verdict.unchecked),
    ]
    return "".join(parts)


def _aside(kind: str, sign: str, what: str, lines: Sequence[str]) -> str:
    """Warnings, or what was not checked, below a verdict."""
    if not lines:
        return ""
    plural = "s" if what == "warning" and len(lines) > 1 else ""
    title = f'<b><span class="sign" aria-hidden="true">{sign}</span>{len(lines):,} {what}{plural}</b>'
    return f'<div class="aside {kind}" role="region" aria-label="{what}">{title}{_list(lines)}</div>'


def _list(lines: Sequence[str]) -> str:
    """The first lines, and how many more there are; the first may hold all where they are few."""
    shown = [prose(line) for line in lines[: TOLD if len(lines) > TOLD + 1 else None]]
    more = [f"and {len(lines) - len(shown):,} more, below"] if len(shown) < len(lines) else []
    return f"<ul>{''.join(f'<li>{line}</li>' for line in [*shown, *more])}</ul>" if lines else ""


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
