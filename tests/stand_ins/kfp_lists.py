"""Lists of the stand-in for Kubeflow Pipelines: filters, order and page tokens, and what is refused."""

import base64
import json
import operator
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
_LISTED = {
    "runs": ("Run", "run_id"),
    "recurringRuns": ("Job", "recurring_run_id"),
    "pipelines": ("Pipeline", "pipeline_id"),
    "pipeline_versions": ("PipelineVersion", "pipeline_version_id"),
    "experiments": ("Experiment", "experiment_id"),
}
"""What errors call the kind of a list, and the field by which equal items are sorted."""
_OPERATIONS: dict[str, Callable[[str, Any], bool]] = {
    "EQUALS": operator.eq,
    "NOT_EQUALS": operator.ne,
    "GREATER_THAN": operator.gt,
    "LESS_THAN": operator.lt,
    "IS_SUBSTRING": operator.contains,
    "IN": lambda found, values: found in values,
}


class Refusal(Exception):
    """An error of gRPC, which the gateway translates."""

    def __init__(self, code: int, message: str, internal: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.internal = code, message, internal or message


def page(kind: str, items: list[Body], query: Mapping[str, str]) -> Body:
    """One page of a list: filtered, sorted, and with a token that holds what was asked for and the next item."""
    token, size = query.get("page_token", ""), int(query.get("page_size") or 0)
    if size < 0:
        raise Refusal(INVALID, f"The page size should be greater than 0. Got {size}")
    asked = {"filter": query.get("filter", ""), "sort_by": query.get("sort_by", "")}
    first = None
    if token:
        try:
            held = json.loads(base64.b64decode(token, validate=True))
            first = tuple(held.pop("first"))
        except (ValueError, KeyError) as error:
            raise Refusal(INVALID, "Invalid page token") from error
        if any(asked.values()) and asked != held:
            raise Refusal(INVALID, "page token does not match the supplied sort by and/or filtering criteria.")
        asked = held
    key, descending = _order(kind, asked["sort_by"])

    def place(item: Body) -> tuple[str, str]:
        return str(item.get(key, "")), item[_LISTED[kind][1]]

    chosen = sorted(filter(_predicate(kind, asked["filter"]), items), key=place, reverse=descending)
    rest = [item for item in chosen if first is None or (place(item) <= first if descending else place(item) >= first)]
    shown, following = rest[: min(size or 20, 200)], rest[min(size or 20, 200) :]
    after = json.dumps(asked | {"first": place(following[0])}) if following else ""
    return {kind: shown, "total_size": len(chosen), "next_page_token": base64.b64encode(after.encode()).decode()}


def _predicate(kind: str, encoded: str) -> Callable[[Body], bool]:
    """What a filter chooses: its JSON is decoded once more than the query was. MySQL takes A and a for the same."""
    if not encoded:
        return lambda item: True
    try:
        predicates = json.loads(unquote_plus(encoded)).get("predicates", [])
    except (ValueError, AttributeError) as error:
        raise Refusal(INVALID, f'failed to parse valid filter from "{encoded}": proto: {error}') from error
    tests = []
    for each in predicates:
        key, operation = each.get("key", ""), each.get("operation")
        tagged = key.startswith("tags.") and kind in ("pipelines", "pipeline_versions")
        if not tagged and key not in _SORTED_AND_FILTERED[kind].split():
            raise Refusal(INVALID, f'no support for filtering on unrecognized field "{key}"')
        values = each.get("string_values", {}).get("values") if operation == "IN" else None
        value = values or each.get("string_value") or each.get("timestamp_value")
        if operation not in _OPERATIONS or not value:
            raise Refusal(INVALID, f"invalid predicate operation: {operation}")
        lowered = [word.lower() for word in value] if operation == "IN" else value.lower()
        key = key.removeprefix("tags.") if tagged else _SAME.get((kind, key), key)
        tests.append((key, _OPERATIONS[operation], lowered, tagged))

    def chooses(item: Body) -> bool:
        return all(
            compare(str((item["tags"] if tagged else item).get(key, "")).lower(), value)
            for key, compare, value, tagged in tests
        )

    return chooses


def _order(kind: str, sort_by: str) -> tuple[str, bool]:
    words = (sort_by or "created_at").lower().split()
    if len(words) > 2 or (len(words) == 2 and words[1] not in ("asc", "desc")):
        raise Refusal(INVALID, f"Received invalid sort by format {sort_by!r}.")
    if words[0] not in _SORTED_AND_FILTERED[kind].split():
        raise Refusal(INVALID, f'Invalid sorting field: "{words[0]}" on listable type {_LISTED[kind][0]}')
    return _SAME.get((kind, words[0]), words[0]), words[-1] == "desc"
