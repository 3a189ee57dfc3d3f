"""The server's requests to the registry and their answers: thin wrappers of the functions behind the command line."""

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.project.project import Project
from gatehouse.registry.explanation import Act, VersionSummary, act_of, version_summaries
from gatehouse.registry.ledger import ALIASES, model_names
from gatehouse.registry.naming import VersionName, named
from gatehouse.registry.registration import require_policy
from gatehouse.registry.stage import PromoteRequest, PromoteResult, RegisterRequest, RegisterResult, promote, register
from gatehouse.server.cache import ReadCache
from gatehouse.server.problems import ProblemError
from gatehouse.server.tokens import Token
from gatehouse.store.store import ArtifactStore

MODEL = r"^[a-z][a-z0-9-]{0,63}$"
VERSION = r"^[a-z][a-z0-9-]{0,63}(:[0-9]{1,9}|@[a-z]{1,20})$"


class Resolved(BaseModel):
    """A version: what it is, where its model lies, and how old this knowledge is."""

    name: str
    version: int
    stage: str
    aliases: tuple[str, ...]
    model: str = Field(description="The reference of the model.")
    address: str = Field(description="The model in the store of the server.")
    evaluation: str
    age_seconds: float = Field(
        0.0, description="Age of the answer: seconds since the ledger was read. Above 1 s, the store does not answer."
    )


class Model(BaseModel):
    """A registered model: how many versions it has, and which of them holds each alias."""

    name: str
    versions: int
    aliases: dict[str, int]


class _RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Acting(_RequestBody):
    """An act on a version. It names the version, so that a repeat changes nothing."""

    version: int = Field(ge=1, lt=10**9, description="Number of the version.")
    reason: str = Field("", max_length=2000, description="Why; it is kept in the ledger.")


class Word(_RequestBody):
    """A person's word on the last verdict on a version."""

    version: int = Field(0, ge=0, lt=10**9, description="0 is the version in staging.")
    reason: str = Field(
        min_length=1, max_length=2000, pattern=r"\S", description="Why, in words; it is kept in the ledger."
    )


class Promotion(_RequestBody):
    """A promotion."""

    version: int = Field(0, ge=0, lt=10**9, description="0 is the version in staging.")
    reason: str = Field("", max_length=2000, description="Why; it is kept in the ledger.")
    override: bool = Field(False, description="Promote although the gate refused it; needs a reason.")
    to: str = Field("champion", max_length=20, description=f"The alias that it gets: {', '.join(ALIASES)}.")


class Registration(_RequestBody):
    """An evaluation that judged a candidate under the policy of the server's project."""

    evaluation: str = Field(max_length=500, description="Reference of the evaluation.")


def require_named(store: ArtifactStore, text: str) -> VersionName:
    """The model or version that a text names. Raises ProblemError: 404 if there is none."""
    try:
        return named(store, text)
    except ConfigurationError as error:
        raise ProblemError(404, str(error)) from error


def require_version(store: ArtifactStore, name: str, version: int) -> None:
    """Check that a model exists, and a version if one is named (0 for none).

    Raises ProblemError: 404 if there is none.
    """
    require_named(store, f"{name}:{version}" if version else name)


def resolve(store: ArtifactStore, text: str) -> Resolved:
    """The version that a text names, from the ledger alone."""
    which = require_named(store, text)
    version, state = which.version, which.ledger.state()
    return Resolved(
        name=which.ledger.model_name,
        version=version.version,
        stage=state.stage_of(version),
        aliases=state.aliases_of(version.version),
        model=version.model,
        address=store.address_of(version.model),
        evaluation=version.evaluation,
    )


def models(store: ArtifactStore) -> list[Model]:
    """Every registered model."""
    return [model(store, name) for name in model_names(store)]


def model(store: ArtifactStore, name: str) -> Model:
    """One registered model."""
    state = require_named(store, name).ledger.state()
    aliases = {alias: state.holder(alias) for alias in ALIASES if state.holder(alias)}
    return Model(name=name, versions=len(state.versions), aliases=aliases)


def versions(store: ArtifactStore, name: str) -> tuple[VersionSummary, ...]:
    """The versions of a model, with their numbers."""
    return version_summaries(store, require_named(store, name).ledger.model_name)


def history(store: ArtifactStore, name: str) -> list[Act]:
    """The ledger of a model, record by record."""
    records = require_named(store, name).ledger.records()
    return [act_of(number, record) for number, record in enumerate(records, start=1)]


def act(store: ArtifactStore, name: str, action: str, body: Acting | Promotion, token: Token) -> PromoteResult:
    """Promote, roll back or archive, in the name of a token's owner."""
    require_version(store, name, body.version)
    fields = body.model_dump() | {"model_name": name, "action": action, "by": token.name}
    return promote(PromoteRequest.model_validate(fields), store)


def enter(store: ArtifactStore, name: str, body: Registration, project: Project | None, token: Token) -> RegisterResult:
    """Register what an evaluation judged, under the policy of the server's project.

    Raises ConfigurationError if the server has no project, or its project is that of another model.
    """
    if project is None or project.file.model != name:
        present = f"one for {project.file.model}" if project else "no project"
        raise ConfigurationError(
            f"{name} is registered under the policy of its project: expected `gatehouse serve --project` with that of "
            f"{name}, found {present}."
        )
    candidate = store.manifest(body.evaluation).derived_from.get("model", "")
    require_policy(store, body.evaluation, project.policy)
    request = RegisterRequest(model_name=name, model=candidate, evaluation=body.evaluation, by=token.name)
    return register(request, store)


T = TypeVar("T")


class Server:
    """The shared state of a server's routes: its store, its project, and recently resolved versions."""

    def __init__(self, store: ArtifactStore, project: Project | None) -> None:
        self.store, self.project = store, project
        self._versions = ReadCache(lambda text: resolve(store, text))

    def resolved(self, text: str) -> Resolved:
        """The version that a text names; while the store does not answer, the last known one, with its age."""
        cached = self._versions.get(text)
        return cached.value.model_copy(update={"age_seconds": round(cached.age, 3)})

    def changed(self, result: T) -> T:
        """Return the result of a change, and read versions again, so that the caller sees the change at once."""
        self._versions.forget()
        return result

    def warm(self) -> None:
        """Resolve every alias once, so that a new server can answer even if the store stops answering."""
        for entry in models(self.store):
            for alias in entry.aliases:
                self.resolved(f"{entry.name}@{alias}")

    def answers(self) -> bool:
        """Whether the store answers."""
        try:
            model_names(self.store)
        except GatehouseError:
            return False
        return True

    def close(self) -> None:
        """End its threads."""
        self._versions.close()
