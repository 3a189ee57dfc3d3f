"""The settings of a deployment: what runs a predictor in a cluster, and what its pods get."""

from typing import Literal, Self

from pydantic import Field, model_validator

from gatehouse.launchers.pod_settings import Name, Pods
from gatehouse.runtime.variables import CREDENTIALS, SETTINGS

OWN_ARGUMENTS = ("--store", "--project", "--host", "--port", "--drain")
"""Options of `gatehouse predictor` that a deployment sets itself."""


class DeploySpec(Pods):
    """How predictors run in a cluster, and settings of their pods."""

    kind: Literal["deployment", "kserve"] = Field(
        "deployment", description="A Deployment with its Service, or an InferenceService of KServe with our predictor."
    )
    service: str = Field(
        "",
        pattern=r"^([a-z]([-a-z0-9]{0,51}[a-z0-9])?)?$",
        description="Name of the objects, and of the service in the cluster; empty for the name of the model.",
    )
    namespace: Name | Literal[""] = Field("", description="Namespace of the objects; empty for that of the runs.")
    store: str = Field("", description="The store as pods reach it; empty for that of the platform.")
    image: str = Field("", description="Image of the predictor; empty for the platform's `training`.")
    service_account: Name | Literal[""] = Field("", description="Empty for that of the platform, else the default one.")
    replicas: int = Field(1, ge=1, description="Pods; with `max_replicas` the fewest.")
    max_replicas: int = Field(0, ge=0, description="Pods at most, by their use of CPU; 0 for a fixed number.")
    cpu_percent: int = Field(70, ge=1, description="With `max_replicas`, the mean use of the requested CPU to keep to.")
    cpu: str = Field("1", pattern=r"^[0-9]+(\.[0-9]+|m)?$", description="CPUs of each pod: request and limit.")
    memory: str = Field(
        "2Gi",
        pattern=r"^[1-9][0-9]*(Ki|Mi|Gi|Ti)$",
        description="Memory of each pod: request and limit. Two versions are loaded at once while they are exchanged.",
    )
    arguments: tuple[str, ...] = Field(
        (), description="More options of `gatehouse predictor`, such as --online, --tokens, or --log and all."
    )
    settings: Name = Field(SETTINGS, description="Config map with addresses; it may be missing.")
    credentials: Name = Field(CREDENTIALS, description="Secret with credentials; it may be missing.")
    timeout_minutes: float = Field(
        15.0, gt=0, description="How long the pods may take until all answer with the version that was asked for."
    )

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.max_replicas and self.max_replicas < self.replicas:
            raise ValueError(
                f"max_replicas: expected 0, or at least replicas={self.replicas}, found {self.max_replicas}"
            )
        if self.priority_class:
            raise ValueError("priority_class: expected none, as no queue of Kueue holds a service")
        if own := [text for text in self.arguments if text.partition("=")[0] in OWN_ARGUMENTS]:
            raise ValueError(f"arguments: expected no {own[0]}, which a deployment sets itself")
        return self
