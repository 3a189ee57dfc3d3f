"""Imports stages as a pod does: with KFP's runtime only, none of the packages that KFP itself depends on.

`python smoke.py control` imports all that the stages of an image can load; without a name, everything. Run inside an
image, where those packages are not installed; elsewhere they are hidden.
"""

import importlib
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

# Before anything imports kfp: KFP's executor sets it, and kfp then loads nothing but that executor.
os.environ["_KFP_RUNTIME"] = "true"

ABSENT = (
    "click_option_group",
    "docstring_parser",
    "kfp_pipeline_spec",
    "kfp.pipeline_spec",
)


class Hidden(MetaPathFinder):
    """Hides what an image does not hold."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Refuse the packages that are absent in a pod; everything else is found as usual."""
        if any(fullname == name or fullname.startswith(f"{name}.") for name in ABSENT):
            raise ModuleNotFoundError(f"{fullname} is not in the image", name=fullname)
        return None


def modules(image: str) -> list[str]:
    """The modules that the components of an image can load; of all components without an image."""
    from gatehouse.runtime.images import DATA, RAY, TRAINING, TRAINING_GPU
    from gatehouse.store.image import image_names, modules_of

    like = {TRAINING_GPU: TRAINING, RAY: DATA}.get(image, image)
    components = [name for name, own in image_names().items() if not image or own == like]
    return sorted(frozenset().union(*map(modules_of, components)))


def main() -> int:
    """Import everything; 0 where all of it could be imported."""
    sys.meta_path.insert(0, Hidden())
    importlib.import_module("kfp.dsl.executor_main")
    failed = 0
    # `feast_store` comes first: it imports Feast the fast way, and another module would not.
    names = sorted(modules(*sys.argv[1:] or [""]), key=lambda name: not name.endswith(".feast_store"))
    if sys.argv[1:] == ["ray"]:  # Ray starts a head without its dashboard where a package of that is missing.
        names += ["ray.dashboard.head", "ray.dashboard.modules.job.job_head"]
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # every kind of failure is reported with the module that fails
            failed += 1
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    if sys.argv[1:] == ["training-gpu"] and not importlib.import_module("torch.distributed").is_nccl_available():
        failed += 1
        print("torch: expected the CUDA build with NCCL, found one without", file=sys.stderr)
    interfaces = [name for name in sys.modules if name.startswith("gatehouse.") and name.endswith(".component")]
    for name in interfaces:
        failed += 1
        print(f"{name} was imported: only the compiler may, it defines components of KFP", file=sys.stderr)
    stages = [name for name in names if name.endswith(".stage")]
    print(f"{len(names)} modules, {len(stages)} stages, {failed} failed")
    return 1 if failed or not stages else 0


if __name__ == "__main__":
    sys.exit(main())
