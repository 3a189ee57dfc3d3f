"""Nested training state as flat leaves: tensors, and values that JSON can hold. Nothing is pickled."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from torch import Tensor

from gatehouse.errors import ConfigurationError

_PLAIN = (str, int, float, bool, type(None))


def flatten(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, in their shapes and not copied, and the other values of a nested state, by path.

    A part of a path that begins with `#` was an integer key, one that begins with `@` a place in a list. Lists without
    a tensor inside stay whole; tuples come back as lists.

    Raises:
        ConfigurationError: if the state holds something that is neither a tensor nor JSON, or an ambiguous key.
    """
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for path, leaf in (found for key, child in state.items() for found in _leaves(child, _part(key, ""))):
        if isinstance(leaf, Tensor):
            tensors[path] = leaf
        else:
            values[path] = leaf
    return tensors, values


def unflatten(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The nested state that `flatten` took apart."""
    root: dict[Any, Any] = {}
    lists: list[tuple[dict[Any, Any], Any]] = []
    for path, leaf in leaves.items():
        *parents, last = path.split("/")
        node = root
        for parent, below in pairwise((*parents, last)):
            key = _key(parent)
            if key not in node and below.startswith("@"):
                lists.append((node, key))
            node = node.setdefault(key, {})
        node[_key(last)] = leaf
    for node, key in reversed(lists):
        node[key] = [node[key][index] for index in sorted(node[key])]
    return root


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Tensor):
        yield path, node
    elif isinstance(node, Mapping) and node:
        for key, child in node.items():
            yield from _leaves(child, f"{path}/{_part(key, path)}")
    elif isinstance(node, (list, tuple)) and not _is_json(node):
        for index, child in enumerate(node):
            yield from _leaves(child, f"{path}/@{index}")
    elif _is_json(node):
        yield path, node
    else:
        raise ConfigurationError(
            f"The training state at {path}: expected a tensor or a value that JSON can hold, found "
            f"{type(node).__name__}. Let its state_dict() return numbers, text, lists, dictionaries and tensors."
        )


def _part(key: object, path: str) -> str:
    if isinstance(key, int):
        return f"#{key}"
    if not isinstance(key, str) or "/" in key or key[:1] in ("#", "@", ""):
        raise ConfigurationError(
            f"The training state at {path or 'its top'} has the key {key!r}: expected an integer, or text that has no "
            "slash and does not begin with # or @."
        )
    return key


def _key(part: str) -> str | int:
    return int(part[1:]) if part[0] in "#@" else part


def _is_json(node: Any) -> bool:
    if isinstance(node, Mapping):
        return all(isinstance(key, str) for key in node) and all(map(_is_json, node.values()))
    if isinstance(node, (list, tuple)):
        return all(map(_is_json, node))
    return isinstance(node, _PLAIN)
