"""Statistics of tables: exact where that is cheap, mergeable sketches elsewhere, the same wherever computed."""

from typing import Any

Statistics = dict[str, Any]
