"""Writes docs/platforms.md: every key of a platform profile, read from the model that checks it."""

from _pages import EXAMPLE, main
from make_reference import section

from gatehouse.project.platforms import Platform

_HEAD = """# Platform profiles

<!-- Written by docs/make_platforms.py from the model that checks these files; do not edit. -->

A profile is one YAML file that says where a project's pipelines run and how their pods are set up there: by convention
`platforms/NAME.yaml` beside `project.yaml`. It never changes the result of a stage, so a project has one profile for
each cluster. `gatehouse compile PROJECT --platform FILE` compiles for it ([specs](specs.md)); commands that call KFP
take its endpoint and namespace from there ([a cluster](cluster.md)).

The error for a wrong profile names line and key: a key that does not exist, the name of an unknown stage, a store that
pods cannot reach. A source that pods cannot reach is refused when a project is compiled. Pods reach a folder if it is
in a volume under `pods.volumes`.

The settings of a pod come from four places, and later ones override earlier ones: the stage's declaration,
`resources` of `project.yaml`, `pods` of the profile, and `stages.NAME` of the profile. Labels, annotations and node
selectors of the last two are merged key by key; tolerations, volumes, secrets and pull secrets are added up.

KFP has no setting for a Kubernetes priority class or for a service account of single pods: `priority_class` is Kueue's
workload priority class, given as a label, and `service_account` goes with each run that is created for the profile.

The profile of the example:

```yaml
"""


def page() -> dict[str, str]:
    """The page, by its path."""
    example = (EXAMPLE / "platforms" / "cluster.yaml").read_text(encoding="utf-8")
    return {"docs/platforms.md": f"{_HEAD}{example}```\n\n{section('Keys', Platform, 2)}"}


if __name__ == "__main__":
    main(page, __doc__)
