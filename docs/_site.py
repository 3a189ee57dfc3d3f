"""Files of the site from beside docs/: the README as its first page, and all that pages link to.

Pages link to files of the repository, so that they read the same there and on the site. Pages of other folders become
pages of the site below `source/`, other files are copied there, and a folder without a README is a word without a link.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the README, and what pages link to, directly or through each other."""
    pending = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    seen = set(pending)
    while pending:
        path = pending.pop()
        uri = _uri(path)
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(path)))
        for target in _targets(path) if path.suffix == ".md" else ():
            if target not in seen:
                seen.add(target)
                pending.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Make links lead to where files are on the site."""
    path = _path(page.file.src_uri)

    def led(match: re.Match[str]) -> str:
        words, link = match.groups()
        target = _target(path, link)
        if target is None:
            return match[0]
        if target.is_dir():
            return words[1:-1]
        place = os.path.relpath(_uri(target), Path(page.file.src_uri).parent)
        return f"{words}({place}{'#' * ('#' in link)}{link.partition('#')[2]})"

    fenced = re.split(r"(```.*?```)", markdown, flags=re.DOTALL)
    return "".join(part if number % 2 else _LINK.sub(led, part) for number, part in enumerate(fenced))


def _targets(page: Path) -> Iterator[Path]:
    for _, link in _LINK.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)):
        target = _target(page, link)
        if target is not None and target.is_file():
            yield target


def _target(page: Path, link: str) -> Path | None:
    """The file or folder that a link of a page leads to; None for an address, and for a place in the page itself."""
    place = link.partition("#")[0]
    if not place or re.match("[a-z]+:", place):
        return None
    target = (page.parent / place).resolve()
    readme = target / "README.md"
    return readme if readme.is_file() else target


def _uri(path: Path) -> str:
    """Where a file of the repository is on the site."""
    name = path.relative_to(ROOT).as_posix()
    if name == "README.md":
        return "index.md"
    return name.removeprefix("docs/") if name.startswith("docs/") else f"source/{name}"


def _path(uri: str) -> Path:
    """The file of the repository that a page of the site is made from."""
    if uri == "index.md":
        return ROOT / "README.md"
    return ROOT / uri.removeprefix("source/") if uri.startswith("source/") else ROOT / "docs" / uri
