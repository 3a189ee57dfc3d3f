"""What a stage says of itself, once: its name, what it reads and writes besides artifacts, and what its pod needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Effects:
    """What a stage reads and writes besides its parameters and its artifacts.

    Attributes:
        reads: What it reads that its parameters do not name; empty for none.
        writes: What it writes beside its artifacts; empty for none.
        memo: Whether its result may be taken from the stage memo, and its KFP cache entry be used.
        shows_models: Whether it shows models in the Model Registry: its pod gets the address and the token of that.
        retry_safe: Whether running it twice leaves the same as running it once.
        why: The reason for these settings, in one sentence.
    """

    reads: str = ""
    writes: str = ""
    memo: bool = False
    shows_models: bool = False
    retry_safe: bool = True
    why: str = ""


PURE = Effects(memo=True, why="A pure function of its parameters.")


@dataclass(frozen=True)
class Resources:
    """What the pod of a stage gets, unless a project says otherwise.

    Attributes:
        cpu, memory: Request and limit, as Kubernetes writes them.
        minutes: After which KFP ends it.
    """

    cpu: str = "1"
    memory: str = "2G"
    minutes: int = 30


USUAL = Resources()


CONTENTS = "gatehouse.components.reports.contents:page"
"""A page for any artifact: its numbers as bars, its columns and files, and what it was made from."""


@dataclass(frozen=True)
class Declaration:
    """A stage as it is declared in its room.

    Attributes:
        name: Of the stage, of its KFP component, and of its rows in records and tables.
        title: What people call it, in the terminal and in the KFP UI.
        effects: What it reads and writes besides artifacts; a pure function by default.
        resources: What its pod gets.
        pages: What draws the page of an artifact of a kind: a function `(store, reference) -> HTML`, named as
            `package.module:name`, by kind; `CONTENTS` for one without code of its own.
        inner: Whether only other stages call it, and no task does.
    """

    name: str
    title: str
    effects: Effects = PURE
    resources: Resources = USUAL
    pages: Mapping[str, str] = field(default_factory=dict)
    inner: bool = False
