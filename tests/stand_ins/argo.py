"""What Argo makes of a compiled pipeline: its phase, by Argo 4's rule for graphs, where given tasks fail.

KFP compiles each task into a driver and what follows it, each conditional on `DEPENDENCY.Succeeded`, and an exit task
into a hook of the group that it waits for. Argo then walks from a graph's first nodes along their children. A branch
carries the phase of the last node that completed, and an omitted node takes the phase of its branch. The graph fails if
one of its last tasks is Failed. The node of a hook is a child of the node that it belongs to.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from gatehouse.kfp.compilation.specification import Compiled


@dataclass
class Node:
    """A node of the workflow."""

    phase: str
    children: list["Node"] = field(default_factory=list)
    ends: list["Node"] = field(default_factory=list)
    """What comes after the node is a child of these."""

    @property
    def completed(self) -> bool:
        """Whether it ran: Omitted and Skipped nodes did not."""
        return self.phase in ("Succeeded", "Failed")


@dataclass
class Workflow:
    """A run of a pipeline.

    Attributes:
        compiled: The pipeline.
        failing: Paths of the tasks that fail.
        skipped: Paths of the tasks whose condition is false.
        terminated: Path of the task during which a user terminates the run; empty for none.
        ran: Paths of the tasks that began.
    """

    compiled: Compiled
    failing: Collection[str] = ()
    skipped: Collection[str] = ()
    terminated: str = ""
    ran: list[str] = field(default_factory=list)
    _shutdown: bool = False

    def phase(self) -> str:
        """Succeeded or Failed, once everything has ended."""
        return self._graph(self.compiled.spec["root"]["dag"]["tasks"], "").phase

    def _graph(self, tasks: dict[str, Any], folder: str) -> Node:
        boundary = Node("Running")
        exits = {name: task for name, task in tasks.items() if _waits_for_the_end(task)}
        hooks = {group: name for name, task in exits.items() for group in task["dependentTasks"]}
        nodes: dict[str, Node] = {}
        waiting = {name: task for name, task in tasks.items() if name not in exits}
        awaited = {name: _awaited(task) for name, task in waiting.items()}
        while waiting:
            name = next(name for name in sorted(waiting) if awaited[name] <= nodes.keys())
            task, parents = waiting.pop(name), [nodes[each] for each in sorted(awaited[name])]
            for parent in parents or [boundary]:
                nodes[name] = node = nodes.get(name) or self._task(f"{folder}{name}", task, parents)
                for end in parent.ends or [parent]:
                    end.children.append(node)
            if name in hooks and node.completed:
                # A hook runs after a termination too.
                before, self._shutdown = self._shutdown, False
                ended = self._task(f"{folder}{hooks[name]}", tasks[hooks[name]], [])
                self._shutdown = before
                node.children.append(ended)
                node.ends = [ended]
        targets = {name: nodes[name] for name in nodes if not any(name in each for each in awaited.values())}
        boundary.phase = "Failed" if self._shutdown else _assessed(boundary, list(targets.values()))
        return boundary

    def _task(self, path: str, task: dict[str, Any], parents: list[Node]) -> Node:
        if self._shutdown or any(parent.phase != "Succeeded" for parent in parents):
            return Node("Omitted")
        if path in self.skipped:
            return Node("Skipped")
        self.ran.append(path)
        component = self.compiled.spec["components"][task["componentRef"]["name"]]
        if "dag" in component:
            return self._graph(component["dag"]["tasks"], f"{path}/")
        if path == self.terminated:
            self._shutdown = True
        return Node("Failed" if path in self.failing else "Succeeded")


def _assessed(boundary: Node, targets: list[Node]) -> str:
    """The phase of a graph whose nodes have all ended."""
    phases: dict[int, str] = {}
    queue, seen = [(child, "Succeeded") for child in boundary.children], set()
    while queue:
        node, branch = queue.pop(0)
        if (id(node), branch) in seen:
            continue
        seen.add((id(node), branch))
        branch = node.phase if node.completed else branch
        if phases.get(id(node)) != "Failed":
            phases[id(node)] = branch
        queue += [(child, branch) for child in node.children]
    return "Failed" if "Failed" in [phases[id(target)] for target in targets] else "Succeeded"


def _waits_for_the_end(task: dict[str, Any]) -> bool:
    return bool(task.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED")


def _awaited(task: dict[str, Any]) -> set[str]:
    """The tasks that a task waits for: those it names, and those whose outputs it takes."""
    given = [value for kind in ("parameters", "artifacts") for value in task.get("inputs", {}).get(kind, {}).values()]
    producers = {source["producerTask"] for value in given for source in value.values() if "producerTask" in source}
    return producers | set(task.get("dependentTasks", []))
