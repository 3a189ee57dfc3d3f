"""Merges numbered parts in a tree that their numbers alone shape, so that no order of arrival changes a digit."""

from gatehouse.data.statistics.partial import Partial


class OrderedMerge:
    """Parts of one column, merged as far as neighbours have arrived.

    Parts 2n and 2n + 1 merge first, then pairs of pairs: only as many partials wait as the tree has levels and
    arrivals are out of order.
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int], Partial] = {}

    def add(self, number: int, partial: Partial, level: int = 0) -> None:
        """Take in one part; every number from 0 on is given once."""
        while (neighbour := self._nodes.pop((level, number ^ 1), None)) is not None:
            partial = neighbour.merged(partial) if number & 1 else partial.merged(neighbour)
            level, number = level + 1, number >> 1
        self._nodes[level, number] = partial

    def join(self, other: "OrderedMerge") -> None:
        """Take in what another one has merged so far."""
        for (level, number), partial in sorted(other._nodes.items()):
            self.add(number, partial, level)

    def result(self) -> Partial:
        """All parts as one; there must be at least one."""
        ordered = sorted(self._nodes.items(), key=lambda node: node[0][1] << node[0][0])
        partials = [partial for _, partial in ordered]
        whole = partials[0]
        for partial in partials[1:]:
            whole = whole.merged(partial)
        return whole
