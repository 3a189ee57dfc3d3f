"""Deployments: a model of a project's platform in a cluster, or as manifests."""

from pathlib import Path
from typing import Any

from gatehouse.deployment.stage import MANIFESTS, DeployRequest, DeployResult
from gatehouse.deployment.stage import deploy as apply
from gatehouse.project.platforms import Platform
from gatehouse.store.store import ArtifactStore


def deploy(platform: Platform, model: str, kind: str = "", minutes: float = 0.0, **how: Any) -> DeployResult:
    """Deploy a model as the profile of a platform says, with another kind or time limit if given.

    `how` are fields of `DeployRequest`. Raises as the stage `deploy`.
    """
    own = {"kind": kind, "timeout_minutes": minutes}
    settings = platform.deployment().model_dump() | {name: value for name, value in own.items() if value}
    request = DeployRequest.model_validate({"model": model, "settings": settings, "platform": platform.name} | how)
    return apply(request, ArtifactStore.open(platform.store))


def manifests(platform: Platform, deployment: str) -> bytes:
    """The manifests of a deployment, for a repository of GitOps."""
    path: Path = ArtifactStore.open(platform.store).path(deployment, MANIFESTS)
    return path.read_bytes()
