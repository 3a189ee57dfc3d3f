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
    stale = []
    for name, text in make().items():
        path = ROOT / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            stale.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(name)
    for name in stale:
        print(f"{name} is stale; run `make docs`", file=sys.stderr)
    sys.exit(1 if stale else 0)


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; line breaks and bars inside cells are made harmless."""
    lines = [header, ["---"] * len(header), *rows]
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"
