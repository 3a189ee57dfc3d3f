"""The declaration of a stage: its name, what it reads and writes besides artifacts, and what its pod needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Effects:
    """What a stage reads and writes besides its parameters and its artifacts.

    Attributes:
        reads: External sources that its parameters do not name; empty for none.
        writes: What it writes besides its artifacts; empty for none.
        memo: Whether its result may come from the stage memo, and, where no result of the stage can be provisional,
            from KFP's cache.
        shows_models: Whether it writes to the Model Registry: its pod then gets the registry's address and token.
        retry_safe: Whether two runs have the same effect as one.
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
    """The resources of a stage's pod, unless a project sets others.

    Attributes:
        cpu, memory: Requests and limits in Kubernetes' notation.
        minutes: Time limit in KFP.
    """

    cpu: str = "1"
    memory: str = "2G"
    minutes: int = 30


USUAL = Resources()


CONTENTS = "gatehouse.reports.contents:page"
"""A page for any artifact: its numbers as bars, its columns and files, and its lineage."""


@dataclass(frozen=True)
class Declaration:
    """A stage's declaration in its own folder.

    Attributes:
        name: Name of the stage, of its KFP component, and of its rows in records and tables.
        title: Name for people, in the terminal and in the KFP UI.
        effects: What it reads and writes besides artifacts; a pure function by default.
        resources: Resources of its pod.
        pages: For each kind of artifact the function `(store, reference) -> HTML` that draws its page, named as
            `package.module:name`; `CONTENTS` for a kind without its own function.
        inner: Whether only other stages call it, and no task does.
        section: The section, or key, of a project without which a pipeline has no task of it; empty if none is needed.
        tracked: The field of its result that names an artifact with an MLflow run of its own, which shows the stage;
            empty if the stage has no such artifact.
        task: The stages that its KFP task can run, in order, itself among them; empty for itself alone. A task is two
            pods, one after the other, so what takes seconds shares a task. What judges comes last in its task, because
            KFP shows no artifacts of a failed task: the next task requires the verdict.
    """

    name: str
    title: str
    effects: Effects = PURE
    resources: Resources = USUAL
    pages: Mapping[str, str] = field(default_factory=dict)
    inner: bool = False
    section: str = ""
    tracked: str = ""
    task: tuple[str, ...] = ()
