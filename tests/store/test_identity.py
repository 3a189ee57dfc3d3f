"""What identifies a model: neither operational fields nor defaults, and tags always."""

from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import Field, ValidationError

from gatehouse.store.identity import Spec, Unordered, identity_digest, identity_of, operational


class Inner(Spec):
    kind: Literal["inner"] = "inner"
    width: int = 4
    waits: timedelta = timedelta(minutes=3)


class Other(Spec):
    kind: Literal["other"] = "other"
    width: int = 4


class Outer(Spec):
    name: str
    rate: float = 0.1
    part: Inner | Other = Inner()
    parts: tuple[Inner, ...] = ()
    bars: dict[str, Inner] = Field({})
    chosen: frozenset[str] = frozenset()
    left_out: Unordered = ()
    timeout_minutes: int = operational(60, ge=1)


def test_defaults_and_operational_fields_are_left_out() -> None:
    assert identity_of(Outer(name="a", timeout_minutes=5)) == {"name": "a"}
    assert identity_of(Outer(name="a", rate=0.1, part=Inner(width=4))) == {"name": "a"}
    assert identity_of(Outer(name="a", part=Other()))["part"] == {"kind": "other"}, "a tag is kept"


@pytest.mark.parametrize("where", [{"rate": True}, {"part": {"kind": "inner", "width": False}}])
def test_a_truth_value_is_no_number(where: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"unable to parse string as an? (number|integer)"):
        Outer.model_validate({"name": "a"} | where)


def test_what_differs_from_a_default_is_kept_at_every_depth() -> None:
    identity = identity_of(
        Outer(name="a", part=Inner(width=8), parts=(Inner(),), bars={"x": Inner(waits=timedelta(0))}, chosen={"b", "a"})
    )
    assert identity == {
        "name": "a",
        "part": {"kind": "inner", "width": 8},
        "parts": [{"kind": "inner"}],
        "bars": {"x": {"kind": "inner", "waits": "PT0S"}},
        "chosen": ["a", "b"],
    }


def test_a_field_that_is_added_with_a_default_changes_no_digest() -> None:
    class Grown(Outer):
        more: int = 0

    assert identity_digest(Grown(name="a", rate=0.2)) == identity_digest(Outer(name="a", rate=0.2))
    assert identity_digest(Grown(name="a", more=1)) != identity_digest(Outer(name="a"))


def test_an_identity_is_read_again_as_the_same_model() -> None:
    policy = Outer(name="a", rate=0.2, left_out=("b", "a"))
    assert Outer.model_validate(identity_of(policy)) == policy


def test_the_order_and_repeats_of_an_unordered_field_change_no_digest() -> None:
    written = (("b", "a"), ("a", "b", "a"))
    assert len({identity_digest(Outer(name="a", left_out=names)) for names in written}) == 1
    assert identity_of(Outer(name="a", left_out=("b", "a")))["left_out"] == ["a", "b"]
