"""Settings of pods that no launcher makes: those of a pipeline's tasks, and of services."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from gatehouse.configuration.strict import Strict
from gatehouse.launchers.spec import FromSecret, Toleration, Volume

_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_SIZE = r"^([1-9][0-9]*(Mi|Gi|Ti))?$"
_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
Name = Annotated[str, Field(pattern=_NAME, max_length=253)]


class Mounted(Strict):
    """A secret or a config map whose keys are files in a folder of the pod."""

    source: Literal["secret", "config_map"] = "secret"
    name: Name
    path: str = Field(pattern="^/", description="The folder.")
    optional: bool = Field(False, description="Whether a pod starts even if it does not exist.")


class Pods(Strict):
    """Settings of pods besides their resources."""

    node_selector: dict[str, str] = Field({}, description="Labels of the nodes that they run on.")
    tolerations: tuple[Toleration, ...] = Field((), description="Taints that they tolerate.")
    labels: dict[str, str] = Field({}, description="Labels of the pods.")
    annotations: dict[str, str] = Field({}, description="Annotations of the pods.")
    priority_class: str = Field("", description="Kueue's workload priority class; empty for none.")
    image_pull_secrets: tuple[Name, ...] = Field((), description="Image pull secrets.")
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = Field(
        "", description="When images are pulled; empty for the cluster's default."
    )
    run_as_user: int | None = Field(None, ge=1, description="User id; null for the image's.")
    run_as_group: int | None = Field(None, ge=1, description="Group id; null for the image's.")
    scratch: str = Field(
        "",
        pattern=_SIZE,
        description="Size of the pod's own volume at /tmp, such as 20Gi; empty for none.",
    )
    volumes: tuple[Volume, ...] = Field((), description="Claims that are mounted.")
    environment: tuple[FromSecret, ...] = Field(
        (), description="Variables from further secrets and config maps, besides `settings` and `credentials`."
    )
    mounted: tuple[Mounted, ...] = Field((), description="Secrets and config maps as files.")

    @field_validator("volumes")
    @classmethod
    def _writable(cls, volumes: tuple[Volume, ...]) -> tuple[Volume, ...]:
        if wrong := [volume.claim for volume in volumes if volume.read_only]:
            raise ValueError(f"KFP mounts every claim for writing: leave read_only out of {', '.join(wrong)}")
        return volumes

    @field_validator("node_selector", "labels", "annotations")
    @classmethod
    def _of_kubernetes(cls, texts: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        for key, value in texts.items():
            form = re.compile("[ -~]*") if info.field_name == "annotations" else _LABEL_VALUE
            if not _LABEL.fullmatch(key) or not form.fullmatch(value):
                raise ValueError(f"{key}: expected a label or annotation that Kubernetes takes, found {value!a}")
        return texts

    def over(self, general: "Pods") -> dict[str, Any]:
        """These settings combined with more general ones: lists are joined, keys are added, and these settings win."""
        merged: dict[str, Any] = {}
        for name in Pods.model_fields:
            own, other = getattr(self, name), getattr(general, name)
            if isinstance(own, dict):
                merged[name] = {**other, **own}
            elif isinstance(own, tuple):
                merged[name] = tuple(dict.fromkeys((*other, *own)))
            else:
                merged[name] = own or other
        return merged
