"""The stage that deploys a model: it applies manifests, waits for the version, and goes back if that does not come."""

from typing import Any, Literal

import yaml
from pydantic import Field

from gatehouse.deployment.objects import TEMPLATE, Object, manifests_of, objects_of
from gatehouse.deployment.spec import DeploySpec
from gatehouse.errors import ConfigurationError
from gatehouse.registry.naming import VersionName, named
from gatehouse.runtime.images import TRAINING, image
from gatehouse.store.identity import operational
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.stage import CONTENTS, Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

MANIFESTS = "manifests.yaml"


class DeployRequest(StageModel):
    """A model as `gatehouse predictor` takes it: NAME for champion, canary and shadow, NAME@champion, or NAME:4.

    With `action` *write* the manifests are only published, *try* asks the cluster whether it would take them, and
    *rollback* applies the deployment before the present one. `keep` leaves a deployment that fails, and `take` takes
    fields that others have set.
    """

    model: str
    settings: DeploySpec = Field(DeploySpec())
    platform: str = Field("", description="Name of the platform, for the record.")
    action: Literal["deploy", "rollback", "try", "write"] = "deploy"
    take: bool = operational(False)
    keep: bool = operational(False)


class DeployResult(StageModel):
    """The deployment, the version that answers, the kinds of objects that were changed, and the service's address."""

    deployment: str
    version: int
    changed: tuple[str, ...] = ()
    address: str = ""


@stage(
    "deploy",
    title="Deploy",
    effects=Effects(
        reads="the ledger, the cluster",
        writes="the cluster",
        why="Others change a cluster too; a repeat changes nothing.",
    ),
    pages={"deployments": CONTENTS},
)
def deploy(request: DeployRequest, store: ArtifactStore) -> DeployResult:
    """Apply the objects of a model's predictor, and wait until all its pods answer with the version.

    If they do not in time, the deployment before it is applied again, and the error says why.

    Raises ConfigurationError if there is no such model or champion, or nothing to go back to; DeploymentError if the
    pods do not answer; ClusterError if the cluster refuses an object.
    """
    chosen = _version(store, request.model)
    name = chosen.ledger.model_name
    spec = request.settings.model_copy(
        update={
            "store": request.settings.store or store.address,
            "image": request.settings.image or image(TRAINING),
            "service": request.settings.service or name,
        }
    )
    if request.action == "write":
        return DeployResult(deployment=_published(store, spec, chosen, request), version=chosen.number)
    from gatehouse.deployment.service import DEPLOYMENT, PREVIOUS, ClusterService, DeploymentError
    from gatehouse.launchers.kubernetes.api import ApiTimeouts, KubernetesApi

    service = ClusterService(KubernetesApi(ApiTimeouts()), spec.namespace, spec.service, spec.kind)
    spec = spec.model_copy(update={"namespace": service.namespace})
    present = ((service.get() or {}).get("metadata") or {}).get("annotations") or {}
    if request.action == "rollback":
        deployment, previous = present.get(PREVIOUS, ""), present.get(DEPLOYMENT, "")
        if not deployment:
            raise ConfigurationError(
                f"{spec.service} in {service.namespace}: expected a deployment before the present one "
                f"({previous or 'none'}), found none."
            )
        chosen = _version(store, str(store.manifest(deployment).details["model"]))
    else:
        deployment = _published(store, spec, chosen, request)
        same = present.get(DEPLOYMENT) == deployment
        previous = present.get(PREVIOUS if same else DEPLOYMENT, "")
    if request.action == "try":
        service.apply(_objects(store, deployment), {}, request.take, dry_run=True)
        return DeployResult(deployment=deployment, version=chosen.number)

    def apply(reference: str, before: str) -> list[str]:
        about = {DEPLOYMENT: reference} | ({PREVIOUS: before} if before else {})
        return service.apply(_objects(store, reference), about, request.take)

    changed = apply(deployment, previous)
    manifest, template = store.manifest(deployment), _template(_objects(store, deployment))
    replicas, text = int(manifest.configuration["replicas"]), str(manifest.details["model"])
    try:
        service.await_version(name, lambda: _version(store, text).number, template, replicas, spec.timeout_minutes)
    except DeploymentError as error:
        if request.keep or request.action == "rollback" or not (previous and store.exists(previous)):
            raise
        apply(previous, present.get(PREVIOUS, "") if present.get(DEPLOYMENT) == previous else "")
        raise DeploymentError(
            f"{error}\nThe deployment before it, {previous}, is in place again.", error.cause
        ) from error
    status = (service.get() or {}).get("status") or {}
    address = str(status.get("url") or f"http://{spec.service}.{service.namespace}.svc")
    version = _version(store, text).number
    return DeployResult(deployment=deployment, version=version, changed=tuple(changed), address=address)


def _version(store: ArtifactStore, text: str) -> VersionName:
    """The version that a text names, the champion if it names none."""
    chosen = named(store, text)
    if not chosen.number:
        chosen = named(store, f"{chosen.ledger.model_name}@champion")
    return chosen


def _published(store: ArtifactStore, spec: DeploySpec, chosen: VersionName, request: DeployRequest) -> str:
    """Reference of the manifests of a deployment."""
    if isinstance(store.objects, LocalObjects) and not any(spec.store.startswith(row.path) for row in spec.volumes):
        raise ConfigurationError(
            "store: expected an address that pods reach, as gs://bucket/gatehouse, or a folder in a volume of theirs, "
            f"found {spec.store}."
        )
    name, text = chosen.ledger.model_name, request.model
    model = name + text[len(text.partition(":")[0].partition("@")[0]) :]  # The name may be left out.
    manifests = manifests_of(objects_of(spec, spec.service, model))
    about: dict[str, Any] = {"model": model, "version": chosen.number, "image": spec.image, "kind": spec.kind}
    about |= {"service": spec.service, "namespace": spec.namespace, "platform": request.platform}
    return str(
        store.publish(
            "deployments",
            name,
            {MANIFESTS: manifests},
            derived_from={"model": chosen.version.model},
            configuration=spec.model_dump(mode="json"),
            details=about,
        )
    )


def _objects(store: ArtifactStore, deployment: str) -> list[Object]:
    return list(yaml.safe_load_all(store.path(deployment, MANIFESTS).read_text(encoding="utf-8")))


def _template(objects: list[Object]) -> str:
    """The label of the pods that objects make."""
    specs = [body["spec"].get("template", {}).get("metadata") or body["spec"].get("predictor") for body in objects]
    return next(str(spec["labels"][TEMPLATE]) for spec in specs if spec)
