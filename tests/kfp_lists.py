"""Lists of the stand-in for Kubeflow Pipelines: filters, order and page tokens, and what is refused."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote_plus

Body = dict[str, Any]
INVALID, NOT_FOUND, EXISTS, DENIED, INTERNAL, UNAUTHENTICATED, ABORTED = 3, 5, 6, 7, 13, 16, 10
_SORTED_AND_FILTERED = {
    "runs": "run_id id display_name name created_at finished_at description scheduled_at storage_state status "
    "namespace experiment_id state state_history runtime_details recurring_run_id",
    "recurringRuns": "id recurring_run_id name display_name created_at updated_at description",
    "pipelines": "id pipeline_id name display_name created_at description namespace",
    "pipeline_versions": "id pipeline_version_id name display_name created_at status description pipeline_spec",
    "experiments": "id experiment_id name display_name created_at last_run_created_at description namespace "
    "storage_state",
}
_SAME: dict[tuple[str, str], str] = {
    ("runs", "name"): "display_name",
    ("recurringRuns", "name"): "display_name",
    ("experiments", "name"): "display_name",
}


class Refusal(Exception):
    """An error of gRPC, which the gateway translates."""

    def __init__(self, code: int, message: str, internal: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.internal = code, message, internal or message


def page(kind: str, items: list[Body], query: Mapping[str, str]) -> Body:
    """One page of a list: filtered, sorted, and with a token that holds what was asked for."""
    token, size = query.get("page_token", ""), int(query.get("page_size") or 0)
    if size < 0:
        raise Refusal(INVALID, f"The page size should be greater than 0. Got {size}")
    asked = {"filter": query.get("filter", ""), "sort_by": query.get("sort_by", "")}
    begin = 0
    if token:
        try:
            held = json.loads(base64.b64decode(token, validate=True))
        except ValueError as error:
            raise Refusal(INVALID, "Invalid page token") from error
        begin = held.pop("begin")
        if any(asked.values()) and asked != held:
            raise Refusal(INVALID, "page token does not match the supplied sort by and/or filtering criteria.")
        asked = held
    chosen = sorted(filter(_predicate(kind, asked["filter"]), items), **_order(kind, asked["sort_by"]))
    end = begin + min(size or 20, 200)
    following = base64.b64encode(json.dumps(asked | {"begin": end}).encode()).decode() if end < len(chosen) else ""
    return {kind: chosen[begin:end], "total_size": len(chosen), "next_page_token": following}


def _predicate(kind: str, encoded: str) -> Callable[[Body], bool]:
    """What a filter chooses: its JSON is decoded once more than the query was."""
    if not encoded:
        return lambda item: True
    try:
        predicates = json.loads(unquote_plus(encoded)).get("predicates", [])
    except (ValueError, AttributeError) as error:
        raise Refusal(INVALID, f"failed to parse valid filter from {encoded!r}: {error}") from error
    tests = []
    for each in predicates:
        key, operation, value = each.get("key", ""), each.get("operation"), each.get("string_value")
        tagged = key.startswith("tags.") and kind in ("pipelines", "pipeline_versions")
        if not tagged and key not in _SORTED_AND_FILTERED[kind].split():
            raise Refusal(INVALID, f"no support for filtering on unrecognized field {key!r}")
        if operation not in ("EQUALS", "NOT_EQUALS", "IS_SUBSTRING") or value is None:
            raise Refusal(INVALID, f"invalid predicate operation: {operation}")
        tests.append((key.removeprefix("tags.") if tagged else _SAME.get((kind, key), key), operation, value, tagged))

    def chooses(item: Body) -> bool:
        for key, operation, value, tagged in tests:
            found = str((item["tags"] if tagged else item).get(key, ""))
            held = value.lower() in found.lower() if operation == "IS_SUBSTRING" else found.lower() == value.lower()
            if held == (operation == "NOT_EQUALS"):
                return False
        return True

    return chooses


def _order(kind: str, sort_by: str) -> dict[str, Any]:
    words = (sort_by or "created_at").lower().split()
    if len(words) > 2 or (len(words) == 2 and words[1] not in ("asc", "desc")):
        raise Refusal(INVALID, f"Received invalid sort by format {sort_by!r}.")
    if words[0] not in _SORTED_AND_FILTERED[kind].split():
        raise Refusal(INVALID, f"Invalid sorting field: {words[0]!r} on listable type {kind}")
    key = _SAME.get((kind, words[0]), words[0])
    return {"key": lambda item: str(item.get(key, "")), "reverse": words[-1] == "desc"}
