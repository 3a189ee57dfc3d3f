"""Prints the lines of Python by room, and fails if the product or the tests have more than their budget.

Run it as `python -m tests.lines`. The product is everything but tests and benchmarks.
"""

import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUDGETS = {"product": 77_280, "tests": 52_910}
_PRODUCT = ("components", "docs", "feature_repo", "gatehouse", "images", "locks", "pipelines")


def count_lines() -> dict[str, Counter[str]]:
    """Lines of Python by room, for `product` and for `tests`."""
    rooms: dict[str, Counter[str]] = {"product": Counter(), "tests": Counter()}
    for part, folders in (("product", _PRODUCT), ("tests", ("tests",))):
        for path in [*(ROOT.glob("*.py") if part == "product" else ()), *_files(folders)]:
            folder = path.relative_to(ROOT).parts[:-1]
            depth = 2 if folder[:1] in (("gatehouse",), ("tests",)) else 1
            rooms[part]["/".join(folder[:depth]) or "."] += len(path.read_bytes().splitlines())
    return rooms


def _files(folders: tuple[str, ...]) -> list[Path]:
    # Links lead to folders that are counted where they lie.
    result = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted({path for path in result if path.resolve() == path.absolute()})


def main() -> int:
    """Print the table; 1 if a budget is exceeded."""
    failed = 0
    for part, rooms in count_lines().items():
        for room, lines in sorted(rooms.items()):
            print(f"{lines:8,}  {room}")
        total, budget = sum(rooms.values()), BUDGETS[part]
        failed |= total > budget
        print(f"{total:8,}  {part}, of at most {budget:,}\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
