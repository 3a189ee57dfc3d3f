"""Committed specs are held against the code: what is stale, what is missing, and everything that is wrong at once."""

from pathlib import Path

import pytest

from gatehouse.kfp.compilation.compiling import refuse, stale
from gatehouse.kfp.compilation.specification import SpecError, content_of, read_spec, tags_of
from gatehouse.project.project import Project
from gatehouse.store.canonical import digest_of

ROOT = Path(__file__).parents[3]


def test_a_stale_spec_and_a_missing_one_are_both_told(compiled: Path, flights: Project, tmp_path: Path) -> None:
    for path in compiled.glob("*.yaml"):
        # Another version of the SDK makes no spec stale.
        (tmp_path / path.name).write_text(path.read_text().replace("sdkVersion: kfp-", "sdkVersion: kfp-0"))
    changed = tmp_path / "flights-training.yaml"
    changed.write_text(changed.read_text().replace("Train the candidate", "Search another"))
    (tmp_path / "flights-monitoring.yaml").unlink()
    result = list(stale(flights, sorted(compiled.glob("*.yaml")), tmp_path))
    missing = f"{tmp_path / 'flights-monitoring.yaml'} is missing"
    assert result == [missing, f"{changed} is not what the code compiles to"]
    with pytest.raises(SpecError, match="2 findings"):
        refuse(result)
    refuse([])


def test_tags_say_what_a_version_was_compiled_from_and_fit_into_kfp(compiled: Path, released: Path) -> None:
    here, there = (read_spec(folder / "flights-training.yaml") for folder in (compiled, released))
    tags = tags_of(there)
    assert tags == there.stamp | {"spec": digest_of(content_of(there))[:16]}
    assert (tags["project"], tags["platform"]) == ("flights", "cluster")
    assert tags["spec"] != tags_of(here)["spec"]
    assert len(tags) <= 20 and all(len(text) <= 63 and "." not in key for key, text in tags.items())
