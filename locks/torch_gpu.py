"""Prints the lock of the CUDA builds of torch and XGBoost: of pip's report, what training.lock lacks."""

import json
import re
import sys
from pathlib import Path

_HEAD = "# The CUDA builds of torch and XGBoost for Linux on x86-64, and what they require besides training.lock.\n"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def lock(report: str, training: str) -> str:
    """The lock.

    Args:
        report: Output of `pip install --dry-run --ignore-installed --report -`.
        training: Text of training.lock.
    """
    metadata = {_normal(each["metadata"]["name"]): each for each in json.loads(report)["install"]}
    needs = {
        name: {_normal(re.split(r"[^\w.-]", asked)[0]) for asked in each["metadata"].get("requires_dist", ())}
        for name, each in metadata.items()
    }
    entries = []
    for name in sorted(metadata.keys() - set(re.findall(r"^([a-z0-9][\w.-]*)==", training, re.MULTILINE))):
        digest = metadata[name]["download_info"]["archive_info"]["hashes"]["sha256"]
        askers = "".join(f"\n    # via {asker}" for asker in sorted(needs) if name in needs[asker])
        entries.append(f"{name}=={metadata[name]['metadata']['version']} \\\n    --hash=sha256:{digest}{askers}\n")
    if not any(entry.startswith("nvidia-") for entry in entries):
        raise SystemExit("error: torch-gpu.lock: expected the CUDA build of torch, found another. Lock with PyPI.")
    return _HEAD + "".join(entries)


if __name__ == "__main__":
    sys.stdout.write(lock(sys.stdin.read(), (Path(__file__).parent / "training.lock").read_text()))
