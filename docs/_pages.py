"""Writes the generated pages of the documentation, or with `--check` fails where a committed one is stale."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "pipelines" / "projects" / "flights"


def main(make: Callable[[], dict[str, str]], description: str | None) -> None:
    """Write what `make` returns (text by path from the root), or compare; exits with 1 where something is stale."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    stale = [name for name, text in make().items() if _read(ROOT / name) != text and not _written(name, text, check)]
    for name in stale:
        print(f"{name} is stale; run `make docs`", file=sys.stderr)
    sys.exit(1 if stale else 0)


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _written(name: str, text: str, check: bool) -> bool:
    if check:
        return False
    path = ROOT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(name)
    return True


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; line breaks and bars inside cells are made harmless."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
