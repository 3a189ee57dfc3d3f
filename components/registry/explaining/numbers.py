"""The numbers that an evaluation holds of its candidate, each with its interval where there is one."""

from collections.abc import Iterator, Mapping
from typing import Any

from gatehouse.components.artifacts.stage import StageModel
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import MissingArtifactError

_PARTS = ("metrics.json", "intervals.json", "calibration.json", "robustness.json", "cost.json")
_LOW, _HIGH = ("low", "lower"), ("high", "upper")


class Number(StageModel):
    """One number, and the bounds of its interval where the evaluation holds one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


def numbers_of(store: ArtifactStore, evaluation: str) -> tuple[Number, ...]:
    """Every number that an evaluation holds of its candidate on the whole test part; none where it is gone."""
    found: dict[str, Number] = {}
    try:
        files = {entry.path for entry in store.manifest(evaluation).files}
    except MissingArtifactError:
        return ()
    for part in _PARTS:
        if part in files:
            body = store.read_json(evaluation, part)
            held = body.get("candidate", body) if isinstance(body, Mapping) else {}
            for number in _numbers(held, "" if part in _PARTS[:2] else part.removesuffix(".json")):
                known = found.get(number.name)
                found[number.name] = number if known is None else _joined(known, number)
    return tuple(found.values())


def _joined(known: Number, more: Number) -> Number:
    """A number with the bounds that another file has of it."""
    return known.model_copy(update={"low": more.low, "high": more.high}) if more.low is not None else known


def _numbers(body: Any, path: str) -> Iterator[Number]:
    if isinstance(body, bool):
        return
    if isinstance(body, int | float):
        yield Number(name=path, value=float(body))
    elif isinstance(body, list) and len(body) == 2 and all(_is_number(each) for each in body):
        yield Number(name=path, value=sum(body) / 2, low=float(body[0]), high=float(body[1]))
    elif isinstance(body, Mapping):
        low, high = (
            next((body[name] for name in names if _is_number(body.get(name))), None) for names in (_LOW, _HIGH)
        )
        if low is not None and high is not None:
            value = body.get("value", (low + high) / 2)
            yield Number(name=path, value=float(value), low=float(low), high=float(high))
            return
        for name, inner in body.items():
            yield from _numbers(inner, f"{path}.{name}" if path else str(name))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
