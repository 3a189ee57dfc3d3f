"""Makes an artifact again in another store: external inputs are copied, and every later stage runs again."""

from dataclasses import dataclass, field
from typing import Any

from gatehouse.errors import GatehouseError
from gatehouse.registry.explaining.answers import provenance_of
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.stage import Stage, declared_stages
from gatehouse.store.store import ArtifactStore
from gatehouse.store.transfer import pull

_GIVEN = "config"


class NotReproducibleError(GatehouseError):
    """An artifact cannot be made again: its origin is unknown, or the stage that made it is missing here."""

    permanent = True


@dataclass(frozen=True)
class Step:
    """One artifact: `copied`, or made again by `stage` as `again`, with code of digest `code`."""

    identity: str
    again: str
    stage: str = ""
    code: str = ""

    @property
    def same(self) -> bool:
        """Whether the result is identical."""
        return self.identity == self.again


@dataclass
class Rebuild:
    """Makes artifacts of `source` again in the empty store `target`.

    External inputs of stages (snapshots with their tables) and configuration are copied. Every other artifact is made
    again from the request in its provenance, with inputs replaced by their rebuilt versions.

    Attributes:
        steps: The steps taken, in order.
        known: For each artifact in the target, by its original identity, its identity there.
    """

    source: ArtifactStore
    target: ArtifactStore
    steps: list[Step] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)

    def make(self, identity: str) -> str:
        """Make an artifact, after the inputs that its request names; returns its new identity.

        Raises:
            NotReproducibleError: if the origin of the artifact, or of one of its inputs, is not known.
            GatehouseError: as the stages raise.
        """
        if identity not in self.known:
            self.steps.append(self._step(identity))
            self.known[identity] = self.steps[-1].again
        return self.known[identity]

    def _step(self, identity: str) -> Step:
        made = provenance_of(self.source, identity)
        name = str(made.get("stage", "")).rpartition(":")[2]
        stage = declared_stages().get(name)
        if Reference.parse(identity).kind == _GIVEN or (stage is not None and not stage.declared.effects.memo):
            pull(self.source, identity, self.target)
            return Step(identity, identity)
        if stage is None or "request" not in made:
            found = f"the stage {name} alone" if stage else f"no stage {name} of this version of Gatehouse"
            raise NotReproducibleError(
                f"{identity} cannot be made again: expected its stage and request in its provenance, found {found}. "
                "Make it again with `gatehouse run --rerun STAGE`, so that its provenance is whole."
            )
        request = self._replaced(made["request"])
        found = _like(identity, stage(stage.request.model_validate(request), self.target), stage)
        return Step(identity, found, name, str(made.get("code", "")))

    def _replaced(self, value: Any) -> Any:
        """A request with its references replaced by those of the rebuilt artifacts."""
        if isinstance(value, dict):
            return {name: self._replaced(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._replaced(inner) for inner in value]
        return self.make(value) if isinstance(value, str) and references_in(value) else value


def _like(identity: str, result: Any, stage: Stage[Any, Any]) -> str:
    """The reference among a stage's results that matches an artifact: the same one, or one of its kind and name."""
    wanted, found = Reference.parse(identity), references_in(result.model_dump(mode="json"))
    same = [each for each in found if (each.kind, each.name) == (wanted.kind, wanted.name)]
    if not same:
        raise NotReproducibleError(
            f"{stage.name} once made {identity}, but now makes {', '.join(map(str, found)) or 'nothing'}: expected an "
            f"artifact {wanted.kind}/{wanted.name}. Use the version of Gatehouse that made it."
        )
    return str(wanted if wanted in same else same[0])
