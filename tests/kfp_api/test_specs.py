"""Names of versions, and values of parameters as people write them."""

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.kfp_api.specs import parsed_parameters, parts_of, tasks_of, upload_of, version_name
from tests.stand_ins.kfp_api import PIPELINE

SPEC = parts_of(PIPELINE)[0]


def test_a_version_is_named_by_what_it_runs() -> None:
    assert version_name(PIPELINE.replace("kfp-2.17.0", "kfp-2.17.4")) == version_name(f"# A comment\n{PIPELINE}")
    names = {
        version_name(text)
        for text in (
            PIPELINE,
            PIPELINE.replace("sha256:00", "sha256:01"),
            f"{PIPELINE}---\nplatforms: {{kubernetes: {{}}}}\n",
            upload_of(SPEC, cache=False),
        )
    }
    assert len(names) == 4
    assert version_name(upload_of(SPEC)) == version_name(PIPELINE)


def test_without_cache_a_spec_loses_nothing_else() -> None:
    spec, platform = parts_of(upload_of({"pipeline_spec": SPEC, "platform_spec": {"platforms": {}}}, cache=False))
    (task,) = tasks_of(spec)
    (cached,) = tasks_of(SPEC)
    assert task == {key: value for key, value in cached.items() if key != "cachingOptions"}
    assert platform == {"platforms": {}}


def test_values_are_read_as_the_type_of_their_parameter() -> None:
    assert parsed_parameters(SPEC, {"word": "12", "times": "3"}) == {"word": "12", "times": 3}
    with pytest.raises(ConfigurationError, match="times: expected a whole number, found '3 times'"):
        parsed_parameters(SPEC, {"word": "12", "times": "3 times"})
    with pytest.raises(ConfigurationError, match=r"times: expected a whole number, found 7\.0"):
        parsed_parameters(SPEC, {"word": "12", "times": "7.0"})
