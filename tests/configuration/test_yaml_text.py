"""YAML that we write reads back as the same: we write with PyYAML (YAML 1.1) and read as YAML 1.2."""

import textwrap
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gatehouse.configuration.yaml_lines import read_yaml, yaml_text

_NUMBERS = st.from_regex(r"[-+]?(0[ox])?[0-9._e]{1,6}", fullmatch=True)
_VALUES = st.one_of(st.text(max_size=8), _NUMBERS, st.floats(allow_nan=False), st.integers(), st.booleans())


@example({"1e100": "1e5", "0o14": "0x1F"}, {})
@example({"\x85": "a\u2028b"}, {})
@given(
    st.dictionaries(st.text(min_size=1, max_size=6), _VALUES | st.lists(_VALUES, max_size=3), min_size=1, max_size=4),
    st.sampled_from([{}, {"default_flow_style": None, "width": 110}, {"default_flow_style": True, "width": 10_000}]),
)
def test_what_is_written_reads_back_as_the_same(body: dict[str, Any], style: dict[str, Any]) -> None:
    text = "body:\n" + textwrap.indent(yaml_text(body, **style), "  ")
    assert read_yaml(text, "here") == {"body": body}
