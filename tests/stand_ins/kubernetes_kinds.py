"""The kinds of jobs that the stand-in for a cluster knows, with the schemas of their CRDs."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CRDS = Path(__file__).parent / "crds"
Object = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """What the stand-in knows of one kind of job."""

    crd: str
    container: str
    label: str
    success: str


KINDS = {
    "PyTorchJob": Kind("kubeflow.org_pytorchjobs.yaml", "pytorch", "training.kubeflow.org/job-name", "Succeeded"),
    "TrainJob": Kind("trainer.kubeflow.org_trainjobs.yaml", "node", "jobset.sigs.k8s.io/jobset-name", "Complete"),
    "RayJob": Kind("ray.io_rayjobs.yaml", "pieces", "gatehouse.dev/pieces", "Complete"),
    "Job": Kind("", "pieces", "gatehouse.dev/pieces", "Complete"),
}


class _JobFields:
    """In place of a CRD for Kubernetes' own jobs: their types in its client, which drops unknown fields."""

    @staticmethod
    def iter_errors(body: Object) -> list[Any]:
        """One problem if a field is unknown, or a value not of its type."""
        from kubernetes.client import ApiClient

        client = ApiClient()
        known = client.sanitize_for_serialization(client._ApiClient__deserialize(body, "V1Job"))
        return [] if known == _filled(body) else [_Problem("$", f"expected what types know {known}, found {body}")]


@dataclass(frozen=True)
class _Problem:
    json_path: str
    message: str


def _filled(value: Any) -> Any:
    """An object without empty values, which the client leaves out."""
    if isinstance(value, dict):
        return {name: _filled(entry) for name, entry in value.items()}
    return [_filled(entry) for entry in value] if isinstance(value, list) else value


@cache
def validator(kind: str) -> Any:
    """The schema that a cluster holds objects of this kind against, and no unknown fields."""
    if kind == "Job":
        return _JobFields
    if kind == "InferenceService":
        return validator_of("serving.kserve.io_inferenceservices.yaml")
    return validator_of(KINDS[kind].crd) if kind in KINDS else _core(kind)


def _core(kind: str) -> Any:
    """The schema of a kind of Kubernetes itself."""
    from jsonschema import Draft202012Validator

    definitions = json.loads((CRDS / "kubernetes.json").read_text())["definitions"]
    (name,) = [name for name in definitions if name.endswith(f".{kind}")]
    return Draft202012Validator({"definitions": _strict_each(definitions), "$ref": f"#/definitions/{name}"})


def _strict_each(definitions: dict[str, Any]) -> dict[str, Any]:
    quantity = {"type": ["integer", "string"]}
    free = {name: quantity for name in definitions if name.endswith((".Quantity", ".IntOrString"))}
    return {name: _strict(schema) for name, schema in definitions.items()} | free


@cache
def validator_of(crd: str) -> Any:
    """The schema of a CRD in the version that a cluster stores, and no unknown fields."""
    from jsonschema import Draft202012Validator

    definition = yaml.load((CRDS / crd).read_text(), Loader=yaml.CSafeLoader)
    (schema,) = [
        version["schema"]["openAPIV3Schema"] for version in definition["spec"]["versions"] if version["storage"]
    ]
    return Draft202012Validator(_strict(schema))


def _strict(schema: Any) -> Any:
    """Kubernetes' structural schema as JSON schema. A cluster drops unknown fields; here they are errors."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string") is True:
        return {"type": ["integer", "string"]}
    copied = {
        name: {key: _strict(entry) for key, entry in value.items()} if name == "properties" else _strict(value)
        for name, value in schema.items()
        if name not in ("description", "default", "format")
    }
    if "properties" in copied and not schema.get("x-kubernetes-preserve-unknown-fields"):
        copied.setdefault("additionalProperties", False)
    return copied


def container_of(job: Object) -> tuple[int, Object]:
    """Number of nodes of a job, and the container that each runs."""
    if job["kind"] == "TrainJob":
        trainer = job["spec"]["trainer"]
        return trainer["numNodes"], trainer
    replicas = job["spec"]["pytorchReplicaSpecs"]
    first = next(iter(replicas.values()))
    return sum(replica["replicas"] for replica in replicas.values()), first["template"]["spec"]["containers"][0]


def restart_policy(job: Object) -> str:
    """When the pods of a PyTorchJob start again."""
    return str(next(iter(job["spec"]["pytorchReplicaSpecs"].values()))["restartPolicy"])


def environment_of(job: Object, rank: int, port: int) -> dict[str, str]:
    """What its operator sets in the container of one node, as localhost is every node here.

    As Training Operator 1.9 (`setPodEnv`) and Kubeflow Trainer (the plugin `torch`) do, for one node as for several.
    """
    nodes, _ = container_of(job)
    meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    places = {f"PET_{name}": value for name, value in meeting.items()}
    if job["kind"] == "TrainJob":
        trainer = job["spec"]["trainer"]
        counts = {"PET_NNODES": str(nodes), "PET_NPROC_PER_NODE": str(trainer.get("numProcPerNode", 1))}
        return counts | {"PET_NODE_RANK": str(rank)} | places
    spec = job["spec"]
    environment = {"PYTHONUNBUFFERED": "1"}
    world = nodes * int(spec.get("nprocPerNode", "1"))
    environment |= meeting | places | {"WORLD_SIZE": str(world), "RANK": str(rank), "PET_NODE_RANK": str(rank)}
    if "nprocPerNode" in spec:
        environment["PET_NPROC_PER_NODE"] = spec["nprocPerNode"]
    return environment | {"PET_NNODES": str(nodes)}
