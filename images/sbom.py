"""Writes what is in an image as a CycloneDX bill of materials, from its locks: the same bytes for the same locks.

`python images/sbom.py control`. Components are the distributions with their versions and the digests of their files;
dependencies are those that the lock notes under `via`.
"""

import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gatehouse.runtime.images import LOCKS

FOLDER = Path(__file__).resolve().parent.parent / "locks"
_ENTRY = re.compile(r"^([a-z0-9][\w.-]*)==(\S+)(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_REQUIRED_BY = re.compile(r"#\s+(?:via\s+)?([A-Za-z0-9][\w.-]*)(?: \(pyproject\.toml\))?\s*$", re.MULTILINE)


def bill_of(image: str) -> dict[str, Any]:
    """The bill of materials of an image, in the form of CycloneDX 1.6."""
    text = "".join((FOLDER / f"{lock}.lock").read_text() for lock in LOCKS[image])
    entries = {name: (pinned, rest) for name, pinned, rest in _ENTRY.findall(text)}
    root = _purl("gatehouse", version("gatehouse"))
    needs: dict[str, set[str]] = {root: set()} | {_purl(name, entries[name][0]): set() for name in entries}
    for name, (pinned, rest) in entries.items():
        askers = [asker for asker in _REQUIRED_BY.findall(rest) if asker in entries]
        for asker in askers:
            needs[_purl(asker, entries[asker][0])].add(_purl(name, pinned))
        if not askers or "gatehouse" in _REQUIRED_BY.findall(rest):
            needs[root].add(_purl(name, pinned))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "name": f"gatehouse-{image}",
                "version": version("gatehouse"),
                "bom-ref": root,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [_component(name, *entries[name]) for name in sorted(entries)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(on)} for ref, on in sorted(needs.items())],
    }


def _component(name: str, pinned: str, rest: str) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": pinned,
        "bom-ref": _purl(name, pinned),
        "purl": _purl(name, pinned),
    }
    # One digest for each file of the distribution that may be installed: a lock serves several platforms.
    if digests := sorted(re.findall(r"sha256:([0-9a-f]{64})", rest)):
        component["externalReferences"] = [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{name}/{pinned}/",
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in digests],
            }
        ]
    return component


def _purl(name: str, pinned: str) -> str:
    return f"pkg:pypi/{name}@{pinned}"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(bill_of(sys.argv[1]), indent=1, sort_keys=True) + "\n")
