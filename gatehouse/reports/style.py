"""The style sheet of every page, and its colours alone for pictures that stand outside of a page."""

from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"
COLOURS = (TEMPLATES / "colours.css").read_text(encoding="utf-8")
STYLE = COLOURS + (TEMPLATES / "style.css").read_text(encoding="utf-8")
