"""Contracts of import-linter that need no list of rooms: what carries decides nothing, and stages meet at specs."""

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

from gatehouse.store.carriers import CALLING, ENGINES, IN_A_ROOM, LIBRARIES, carries

_COMPONENTS = "gatehouse.components"


class _ImportsContract(Contract):
    """Holds every import between two modules of ours against `_allowed`."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect the imports that are not allowed."""
        found = [
            (importer, imported)
            for importer in sorted(graph.modules)
            if importer.startswith("gatehouse.")
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if imported.startswith("gatehouse.") and not self._allowed(graph, importer, imported)
        ]
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name the imports that are not allowed."""
        for importer, imported in check.metadata["found"]:
            output.print_error(f"{importer} is not allowed to import {imported}")

    def _allowed(self, graph: ImportGraph, importer: str, imported: str) -> bool:
        raise NotImplementedError


class CarriersContract(_ImportsContract):
    """What carries imports nothing that decides, unless it calls it; what decides imports no page or KFP interface."""

    def _allowed(self, graph: ImportGraph, importer: str, imported: str) -> bool:
        if carries(importer):
            return carries(imported) or _stands_at_the_end(importer) or _runs(importer)
        return not _is_component(importer) or not _stands_at_the_end(imported)


class RoomsContract(_ImportsContract):
    """A stage's room imports another one only at its `spec`, or at a module that is named as an interface.

    A room without a stage is a library: every room may import it, and it imports no room that has a stage. The KFP
    interface of a task composes the stages that the task runs, so it imports these of whatever room.
    """

    interfaces = fields.SetField(subfield=fields.StringField())

    def _allowed(self, graph: ImportGraph, importer: str, imported: str) -> bool:
        if not (_is_component(importer) and _is_component(imported)):
            return True
        mine, other = _room(importer), _room(imported)
        if mine == other or not _has_stage(graph, other) or importer.endswith(".component"):
            return True
        return _has_stage(graph, mine) and (imported.endswith(".spec") or imported in self.interfaces)


def _is_component(module: str) -> bool:
    return module.startswith(f"{_COMPONENTS}.")


def _stands_at_the_end(module: str) -> bool:
    """Whether a module wraps or shows a stage: nothing but pipelines and commands comes after it."""
    return any(part in IN_A_ROOM for part in module.split(".")[3:])


def _runs(module: str) -> bool:
    """Whether a module is an engine, or another carrier that calls what decides."""
    return not (ENGINES.keys() | CALLING.keys()).isdisjoint(module.split(".")[3:])


def _room(module: str) -> str:
    return ".".join(module.split(".")[:3])


def _has_stage(graph: ImportGraph, room: str) -> bool:
    if room in LIBRARIES:
        return False
    return any(module.endswith(".stage") and module.startswith(f"{room}.") for module in graph.modules)
